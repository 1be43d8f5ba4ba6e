"""How the privacy losses of many reports add up: exact for one kind of report, on a grid for several.

Meiser and Mohammadi, CCS 2018 (privacy buckets), and Koskela, Jaelkoe, Honkela, AISTATS 2020, compose privacy losses by
adding up their distributions; here the three points of `PrivacyLoss` make that exact. Every rounding is upward.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import Final

from dither_protocol.accounting.loss import PrivacyLoss

Law = list[tuple[float, float]]
"""(loss, probability) from the greatest loss down."""

Plan = Sequence[tuple[PrivacyLoss, int]]
"""So many reports of each loss."""

EXACT_POINTS: Final = 50_000
STEPS: Final = 5_000
CUT: Final = 1e-5
"""Share of delta that all cut tails together may cost on each side."""

_LARGE: Final = 1e250
_DENSE: Final = 3  # a term of the dense product takes a third of the time of a sparse one
_NOTHING: Final = 1e-15  # what doubles leave of 0 in 1 - r (e^eps + 1)
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Sum:
    """The law of a sum of losses under the true answer, and the probability of what was cut off above it."""

    law: Law
    lost: float = 0.0


def epsilon_of(total: Sum, delta: float) -> float:
    """The least epsilon from 0 on at which the hockey-stick divergence of the sum is at most delta.

    delta(t) = E max(0, 1 - e^(t - loss)) (Kairouz, Oh, Viswanath 2015; Balle and Wang, ICML 2018). Between two
    losses it is linear in e^t, so t is solved for, not searched; going down, delta only grows by positive terms, so
    nothing cancels.
    """
    goal = delta * (1 - _ROUNDING) - total.lost
    if goal <= 0:
        return math.inf
    reached = 0.0  # delta at the loss `above`
    weight = 0.0  # E e^(above - loss) over the losses from there on
    above = math.inf
    for loss, probability in total.law:
        growth = weight * -math.expm1(loss - above)
        if reached + growth > goal or above <= 0:
            break
        reached += growth
        weight = weight * math.exp(loss - above) + probability
        above = loss
    missing = (goal - reached) / weight if weight else 1.0
    return max(0.0, above + math.log1p(-missing)) if missing < 1 else 0.0


def sum_of(plan: Plan, delta: float) -> Sum:
    """The law of the sum over a plan: exact where it has one kind of report, or few points, else on a grid.

    On the grid the epsilon at delta is never below the exact one. It is above by at most one grid step per kind of
    report, at (1 - 2e-5) delta; in practice by far less, since splitting errs by the square of a step.
    """
    laws = [law_of(loss, count) for loss, count in plan]
    if math.prod(len(law) for law in laws) > EXACT_POINTS and len(laws) > 1:
        return _on_grid(laws, CUT * delta / len(laws) / 2)
    law = laws[0]
    for other in laws[1:]:
        law = [(x + y, px * py) for x, px in law for y, py in other]
    return Sum(sorted(law, reverse=True))


def law_of(loss: PrivacyLoss, count: int) -> Law:
    """The law of the sum over ``count`` equal reports, at most 2 count + 1 points.

    Its probabilities are the coefficients of (r e^eps x + 1 - r(e^eps + 1) + r/x)^count. From the highest
    power down to 0 J. C. P. Miller's recurrence for powers of a polynomial (Henrici, JACM 3, 1956) has positive terms
    alone; below 0, P(-m) = e^(-m eps) P(m).
    """
    up = math.exp(math.log(loss.probability) + loss.epsilon)
    rest = 1 - up - loss.probability
    none = rest / up if rest > _NOTHING else 0.0
    down = math.exp(-loss.epsilon)
    log_scale = count * (math.log(loss.probability) + loss.epsilon)
    before, here = 0.0, 1.0
    law: Law = []
    for n in range(count + 1):
        law.append(((count - n) * loss.epsilon, here * math.exp(log_scale)))
        after = ((count - n) * none * here + (2 * count - n + 1) * down * before) / (n + 1)
        before, here = here, after
        if here > _LARGE:
            before, here, log_scale = before / _LARGE, here / _LARGE, log_scale + math.log(_LARGE)
    law += [(-x, probability * math.exp(-x)) for x, probability in reversed(law) if x > 0]
    return [(x, probability) for x, probability in law if probability > 0]


def _on_grid(laws: list[Law], cut: float) -> Sum:
    trimmed = [_trim(law, cut) for law in laws]
    width = sum(law[0][0] - law[-1][0] for law, _ in trimmed)
    step = width / STEPS
    lost = sum(upper for _, upper in trimmed)
    # From the short ones on: the first products stay small.
    grids = sorted((_split(law, step) for law, _ in trimmed), key=lambda grid: len(grid[1]))
    low, row = grids[0]
    for other_low, other in grids[1:]:
        low, row = low + other_low, _product(row, other)
    return Sum([((low + i) * step, row[i]) for i in range(len(row) - 1, -1, -1)], lost)


def _trim(law: Law, cut: float) -> tuple[Law, float]:
    """Without tails of at most ``cut``; the upper one is lost, the lower one is moved up to the least loss kept."""
    first, upper = _tail(law, cut)
    last, lower = _tail(law[::-1], cut)
    kept = law[first : len(law) - last]
    kept[-1] = (kept[-1][0], kept[-1][1] + lower)
    return kept, upper


def _tail(law: Law, cut: float) -> tuple[int, float]:
    total = 0.0
    for i, (_, probability) in enumerate(law):
        if total + probability > cut:
            return i, total
        total += probability
    return len(law) - 1, total - law[-1][1]


def _split(law: Law, step: float) -> tuple[int, list[float]]:
    """Each loss spread over the two multiples of the step around it, keeping the mean of e^(-loss).

    Every divergence is convex in e^(-loss), so spreading never lowers it, in any sum with other losses ("connect the
    dots": Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, PoPETs 2022).
    """
    low, high = math.floor(law[-1][0] / step), math.floor(law[0][0] / step) + 1
    row = [0.0] * (high - low + 1)
    for loss, probability in law:
        below = min(math.floor(loss / step), high - 1)
        to_above = min(1.0, max(0.0, math.expm1(below * step - loss) / math.expm1(-step)))
        row[below - low] += probability * (1 - to_above)
        row[below - low + 1] += probability * to_above
    return low, row


def _product(one: list[float], other: list[float]) -> list[float]:
    """The convolution of two rows; a row of few reports has few points, far apart."""
    short, long = sorted((one, other), key=lambda row: len(row) - row.count(0.0))
    points = [(i, weight) for i, weight in enumerate(short) if weight > 0]
    if len(points) < len(short) / _DENSE:
        row = [0.0] * (len(short) + len(long) - 1)
        for i, weight in points:
            shifted = row[i : i + len(long)]
            row[i : i + len(long)] = [x + weight * y for x, y in zip(shifted, long, strict=True)]
        return row
    turned = short[::-1]
    padding = [0.0] * (len(short) - 1)
    padded = padding + long + padding
    return [sum(map(mul, turned, padded[i : i + len(short)])) for i in range(len(long) + len(short) - 1)]
