"""Amplification by shuffling: what one report reveals when it arrives among n others that nobody can tell apart.

Feldman, McMillan, Talwar, FOCS 2021 (arXiv:2012.12803), in its numerical form: each other report is a clone of the one
in question with probability e^-epsilon. The later theorems for special mechanisms (SODA 2023, arXiv:2208.04591) are not
used: an erratum restricts them.
"""

import math
from dataclasses import dataclass
from typing import Final

from dither_protocol.accounting.bounds import Bound
from dither_protocol.accounting.loss import MAX_LOSS, check_count, check_delta, check_epsilon
from dither_protocol.errors import AccountingError
from dither_protocol.mechanisms.base import MIN_EPSILON

MAX_REPORTS: Final = 10**7
"""A greater n counts as this many: more reports never reveal more, and the bound takes a second at most."""

BLOCKS: Final = 64
_ROUNDING: Final = 1e-6  # share of delta that cut tails and the logarithms of factorials may be off by

ASSUMPTION: Final = (
    "An anonymous channel: n honest reports of the same metric arrive mixed, with no id, token, address or time beside "
    "a report; reports of colluders do not count in n. Each device sends one of them."
)


def shuffled_epsilon(epsilon: float, n: int, delta: float) -> Bound:
    """The epsilon that holds at delta against somebody who sees only the n reports in random order.

    Holds for every mechanism of this epsilon and for every n, without the condition of the paper's closed
    formula (epsilon at most ln(n / (16 ln(2/delta)))), below which that one is no bound. Never above ``epsilon``.

    Args:
        epsilon: of one report, nats, MIN_EPSILON to MAX_LOSS.
        n: reports in the shuffle.
        delta: probability with which it may fail.

    Raises:
        AccountingError: an argument is out of its range.
    """
    epsilon, n, delta = check_epsilon(epsilon), check_count(n, "n"), check_delta(delta)
    if not MIN_EPSILON <= epsilon <= MAX_LOSS:
        raise AccountingError(f"epsilon must be from {MIN_EPSILON:g} to {MAX_LOSS:g}")
    blocks = _clones(min(n, MAX_REPORTS) - 1, math.exp(-epsilon), delta * _ROUNDING / 4)
    return Bound("shuffled", _least_epsilon(blocks, epsilon, delta * (1 - _ROUNDING)), delta, ASSUMPTION)


@dataclass(frozen=True)
class _Block:
    """With this probability there are at least ``clones`` clones."""

    clones: int
    probability: float


def _clones(trials: int, chance: float, cut: float) -> list[_Block]:
    """The binomial number of clones, each outcome taken as the least one of its block.

    One clone more is one fair coin more in the comparison, drawn independently of the answer, so divergence never grows
    with clones.
    """
    mode = min(trials, int((trials + 1) * chance))
    top = _binomial(trials, mode, chance)
    upward, downward = [top], []
    odds = chance / (1 - chance)
    k, here = mode, top
    while k < trials and here > cut / trials:
        here *= (trials - k) / (k + 1) * odds
        k += 1
        upward.append(here)
    k, here = mode, top
    while k > 0 and here > cut / trials:
        here *= k / (trials - k + 1) / odds
        k -= 1
        downward.append(here)
    first, law = k, downward[::-1] + upward
    size = math.ceil(len(law) / BLOCKS)
    blocks = [_Block(first + i, math.fsum(law[i : i + size])) for i in range(0, len(law), size)]
    if first > 0:  # each outcome further down is less likely than the last one, at most cut / trials
        blocks.append(_Block(0, cut))
    # What lies above all of the blocks has at least as many clones as the last of them.
    return [*blocks, _Block(first + len(law) - 1, cut)]


def _least_epsilon(blocks: list[_Block], epsilon: float, goal: float) -> float:
    """The least epsilon whose delta is at most the goal, to a millionth, always from the safe side."""

    def holds(amplified: float) -> bool:
        parts = (block.probability * _divergence(block.clones, epsilon, amplified) for block in blocks)
        return math.fsum(parts) <= goal

    if holds(0.0):
        return 0.0
    low, high = 0.0, epsilon
    while high - low > 1e-6 * high:
        # What comes out may be a thousandth of the declared epsilon, so its order of magnitude is found first.
        middle = high / 16 if low == 0 else (low + high) / 2 if high < 2 * low else math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _divergence(clones: int, declared: float, epsilon: float) -> float:
    """Hockey-stick divergence at ``epsilon`` of (A + D, C - A + 1 - D) from (A + 1 - D, C - A + D), given C = clones.

    A is binomial (C, 1/2) and D is 1 with probability p = e^declared/(e^declared + 1). The likelihood ratio grows
    with the first number x, and is e^epsilon at x = share (C + 1). So the divergence is
    (p - e^eps (1-p)) Pr[A = x-1] - (e^eps - 1) Pr[A >= x] at the first x above that.
    """
    if epsilon >= declared:
        return 0.0
    p, lie = 1 / (1 + math.exp(-declared)), math.exp(-declared) / (1 + math.exp(-declared))
    share = (p - lie * math.exp(-epsilon)) / ((p - lie) * (1 + math.exp(-epsilon)))
    x = math.floor(share * (clones + 1)) + 1
    gain, loss = -math.expm1(epsilon - declared) * p, math.expm1(epsilon)
    at_last = _binomial(clones, x - 1, 0.5)
    if x > clones:
        return at_last * gain
    return at_last * max(0.0, gain - loss * _tail_ratio(clones, x))


def _tail_ratio(trials: int, x: int) -> float:
    """Pr[A >= x] / Pr[A = x - 1] of A binomial (trials, 1/2), from below, x above the mean."""
    term, total, k = 1.0, 0.0, x
    while k <= trials and term > 1e-17 * total:
        term *= (trials - k + 1) / k
        total += term
        k += 1
    return total


def _binomial(trials: int, k: int, chance: float) -> float:
    """Pr[k of so many trials], ``chance`` strictly between 0 and 1."""
    log_ways = math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
    return math.exp(log_ways + k * math.log(chance) + (trials - k) * math.log1p(-chance))
