"""Lower bounds of the epsilon that reports prove, from guesses at what was answered. Pure.

A device holds one of two values, drawn by a fair coin. Whoever sees its report guesses which, or does not guess. Under
pure epsilon-LDP a guess is right with probability at most E/(E+1), E = e^epsilon, whatever the rule of guessing, so
the number of right guesses among m is at most Binomial(m, E/(E+1)) (Kairouz, Oh, Viswanath, IEEE Transactions on
Information Theory 63(6), 2017; with abstention: Steinke, Nasr, Jagielski, NeurIPS 2023, for delta = 0). The lower limit
of Clopper and Pearson for the share of right guesses is a lower bound of epsilon.

The rule must not be fitted to the reports that it is judged by: it is known beforehand, or it is learnt from one half
of the reports and judged by the other (Ding, Wang, Wang, Zhang, Kifer, CCS 2018).
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, bdtri, betaincinv

from dither_protocol import Mechanism

MISS: Final = 1e-6
"""Chance at which a violation of the size that is stated may escape."""

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Game:
    """What one rule of guessing achieved.

    Attributes:
        name: what the rule looks at.
        right: guesses that were right.
        decided: guesses, right or wrong.
    """

    name: str
    right: int
    decided: int

    def epsilon_bound(self, alpha: float) -> float:
        """The epsilon that these guesses prove; too high with probability ``alpha`` at most. 0 proves nothing."""
        return float(epsilon_bounds(np.array([self.right]), np.array([self.decided]), alpha)[0])


def epsilon_bounds(right: Ints, decided: Ints, alpha: float) -> NDArray[np.float64]:
    """ln(s/(1-s)) of the lower Clopper-Pearson limit s of the share of right guesses, never below 0.

    Args:
        right: right guesses, int64 of any shape.
        decided: all guesses, of the same shape.
        alpha: probability that a limit is too high.
    """
    wrong = decided - right
    share = np.where(right == 0, 0.0, betaincinv(np.maximum(right, 1), wrong + 1.0, alpha))
    with np.errstate(divide="ignore"):
        bounds: NDArray[np.float64] = np.maximum(0.0, np.log(share) - np.log1p(-share))
    return bounds


def support_game(first_in: Bools, second_in: Bools, is_first: Bools) -> Game:
    """Guess the value that the report speaks for, where it speaks for one of the two alone.

    For every frequency oracle of Dither this is the best rule there is: right and wrong are as E to 1.

    Args:
        first_in: whether each report supports the first value.
        second_in: the same of the second value.
        is_first: whether the device held the first value.
    """
    decided = first_in != second_in
    return Game("support", int((decided & (first_in == is_first)).sum()), int(decided.sum()))


def learnt_game(name: str, cells: Ints, is_first: Bools, alpha: float) -> Game:
    """Guess by which value was more frequent among like reports of the first half; judged by the second half.

    The rule is silent where the first half told the values apart too little: it speaks in those cells that together
    would have given the highest bound there.

    Args:
        name: what the cells are made of.
        cells: a number from 0 for each report: what the rule sees of it. Reports in the order they were made.
        is_first: whether the device held the first value.
        alpha: at which bounds are compared.
    """
    half = cells.size // 2
    size = int(cells.max(initial=0)) + 1
    first = np.bincount(cells[:half][is_first[:half]], minlength=size)
    second = np.bincount(cells[:half][~is_first[:half]], minlength=size)
    right, seen = np.maximum(first, second), first + second
    order = np.argsort(-(right + 1) / (seen + 2), kind="stable")
    bounds = epsilon_bounds(right[order].cumsum(), seen[order].cumsum(), alpha)
    speaks = np.zeros(size, dtype=np.bool_)
    speaks[order[: int(bounds.argmax()) + 1]] = True
    later, truth = cells[half:], is_first[half:]
    decided = speaks[later]
    guess = (first > second)[later]
    return Game(name, int((decided & (guess == truth)).sum()), int(decided.sum()))


def decided_share(mechanism: Mechanism) -> float:
    """Share of the reports that support exactly one of two values, one of which is held.

    With x the share that supports both, (p - x)/(q - x) = E for every oracle, so the two parts are (p-q) E/(E-1) and
    (p-q)/(E-1). E is that of the weights, so that the share is right even where they are not what they should be.
    """
    return mechanism.gap / math.tanh(float(mechanism.realized_epsilon()) / 2)


def _odds(epsilon: float) -> float:
    return 1 / (1 + math.exp(-epsilon))


def smallest_violation(epsilon: float, decided: int, alpha: float, miss: float = MISS) -> float:
    """The least realised epsilon that this many guesses would have proved to be above ``epsilon``.

    Args:
        epsilon: the declared one.
        decided: guesses by the best rule.
        alpha: probability that the declared epsilon is refused though it is true.
        miss: probability that the violation is not proved.

    Returns:
        It may be infinite: where even right guesses alone would prove nothing.
    """
    fewest = bisect_left(
        range(decided + 1), True, key=lambda k: bdtrc(k - 1, decided, _odds(epsilon)) <= alpha
    )
    if fewest > decided:
        return math.inf
    share = float(bdtri(fewest - 1, decided, miss))
    return math.log(share / (1 - share)) if share < 1 else math.inf


def reports_for(mechanism: Mechanism, factor: float, alpha: float, miss: float = MISS) -> int:
    """How many reports prove a realised epsilon of ``factor`` times the declared one, by the support alone.

    Args:
        mechanism: the declared one. A sampler that spends more decides no fewer reports.
        factor: above 1.
        alpha: probability that the declared epsilon is refused though it is true.
        miss: probability that the violation is not proved.
    """
    goal = factor * mechanism.epsilon
    enough = bisect_left(
        range(1 << 26),
        True,
        key=lambda m: m > 0 and smallest_violation(mechanism.epsilon, m, alpha, miss) <= goal,
    )
    # So many are decided but for a chance far below `miss`: six standard deviations more than the mean.
    return math.ceil((enough + 6 * math.sqrt(enough)) / decided_share(mechanism))
