"""Coverage of the intervals, exact: all outcomes of a value's count, each with its probability."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from dither_estimator.intervals import (
    Interval,
    clopper_pearson,
    debiased,
    default_interval,
    simultaneous_interval,
    wilson,
)
from dither_protocol import Mechanism, mechanism

LEVEL = 0.95
DEFAULT_FLOOR = 0.93
"""Wilson may fall short of its level, and Clopper-Pearson makes good for it only where it takes its place."""

MECHANISMS = (("rr", 2), ("grr", 16), ("grr", 1_024), ("sue", 16), ("oue", 16))
GRID = [
    (name, d, epsilon, n, share)
    for name, d in MECHANISMS
    for epsilon in (0.5, 1.0, 2.0, 4.0)
    for n in (50, 1_000)
    for share in (0.0, 0.01, 0.1, 0.5)
]
Kind = Callable[[NDArray[np.int64], int, float], Interval]


def _binomial(n: int, chance: float) -> NDArray[np.float64]:
    """Probabilities of 0..n successes."""
    c = np.arange(n + 1)
    ways = gammaln(n + 1) - gammaln(c + 1) - gammaln(n - c + 1)
    law: NDArray[np.float64] = np.exp(ways + xlogy(c, chance) + xlog1py(n - c, -chance))
    return law


def _population_law(made: Mechanism, n: int, share: float) -> NDArray[np.float64]:
    return _binomial(n, made.q + share * made.gap)


def _reporters_law(made: Mechanism, n: int, holders: int) -> NDArray[np.float64]:
    return np.convolve(_binomial(holders, made.p), _binomial(n - holders, made.q))


def _coverage(made: Mechanism, kind: Kind, law: NDArray[np.float64], share: float) -> float:
    """Probability that the mapped interval of one value contains its share."""
    n = law.size - 1
    assert abs(law.sum() - 1) < 1e-9
    interval = debiased(made, kind(np.arange(n + 1), n, LEVEL))
    inside = (interval.lower <= share) & (share <= interval.upper)
    return float(law[inside].sum())


@pytest.mark.parametrize(("name", "d", "epsilon", "n", "share"), GRID)
def test_intervals_cover_the_share_of_a_population(
    name: str, d: int, epsilon: float, n: int, share: float
) -> None:
    """Clopper-Pearson covers at its level or above, the default at 93 % or above."""
    made = mechanism(name, epsilon, d)
    law = _population_law(made, n, share)
    assert _coverage(made, clopper_pearson, law, share) >= LEVEL
    assert _coverage(made, default_interval, law, share) >= DEFAULT_FLOOR


@pytest.mark.parametrize(("name", "d", "epsilon", "n", "share"), GRID)
def test_intervals_cover_the_share_of_these_reporters(
    name: str, d: int, epsilon: float, n: int, share: float
) -> None:
    """The same intervals hold for target "reporters", whose counts spread less."""
    made = mechanism(name, epsilon, d)
    holders = round(n * share)
    law = _reporters_law(made, n, holders)
    assert _coverage(made, clopper_pearson, law, holders / n) >= LEVEL
    assert _coverage(made, default_interval, law, holders / n) >= DEFAULT_FLOOR


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("n", [50, 1_000])
def test_simultaneous_intervals_miss_together_with_what_is_left_outside(epsilon: float, n: int) -> None:
    """The chances of missing, added up over all values of a domain, are at most 1 - level."""
    shares = [0.5, 0.3, 0.1, 0.05, 0.03, 0.02] + [0.0] * 10
    made = mechanism("grr", epsilon, len(shares))

    def kind(successes: NDArray[np.int64], n: int, level: float) -> Interval:
        rows = [simultaneous_interval(np.full(len(shares), c), n, level) for c in successes]
        return Interval(*(np.array([row[part][0] for row in rows]) for part in range(3)))

    missed = sum(1 - _coverage(made, kind, _population_law(made, n, share), share) for share in shares)
    assert missed <= 1 - LEVEL


def _wald(successes: NDArray[np.int64], n: int, level: float) -> Interval:
    """The textbook interval that is not offered."""
    x = successes / n
    half = 1.959963984540054 * np.sqrt(x * (1 - x) / n)
    return Interval(x - half, x + half, np.full(x.shape, "wald"))


@pytest.mark.parametrize("kind", [_wald, wilson])
def test_the_grid_would_notice_an_interval_that_promises_too_much(kind: Kind) -> None:
    """Wald, and Wilson where counts are small, fall below the floor somewhere on the grid."""
    worst = 1.0
    for name, d, epsilon, n, share in GRID:
        made = mechanism(name, epsilon, d)
        worst = min(worst, _coverage(made, kind, _population_law(made, n, share), share))
    assert worst < DEFAULT_FLOOR
