"""Coverage of the intervals of one value, exact: all outcomes of its count, each with its probability.

As a script it prints the least coverage of every mechanism: ``python tests/statistical/test_coverage.py``.
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from dither_estimator import estimate
from dither_estimator.intervals import (
    Interval,
    clopper_pearson,
    debiased,
    default_interval,
    simultaneous_interval,
    wilson,
)
from dither_protocol import MECHANISMS, Mechanism, mechanism
from support.exact_draws import draw_counters
from support.statistics import FALSE_ALARM, follow_chances

LEVEL = 0.95
DEFAULT_FLOOR = 0.93
"""Wilson may fall short of its level, and Clopper-Pearson makes good for it only where it takes its place."""

JOINT_FLOOR = 0.94
EPSILONS = (0.5, 1.0, 2.0, 4.0)
SIZES = (50, 1_000, 100_000)
SHARES = (0.0, 0.01, 0.1, 0.5)
DOMAINS = [
    ("rr", 2),
    *((name, 16) for name in MECHANISMS if name != "rr"),
    ("subset", 128), ("projective", 128), ("grr", 1_024),
]  # fmt: skip
GRID = [(name, d, epsilon, n) for name, d in DOMAINS for epsilon in EPSILONS for n in SIZES]
JOINT = [(name, d, epsilon) for name in MECHANISMS if name != "rr" for d in (16, 128) for epsilon in EPSILONS]
Kind = Callable[[NDArray[np.int64], int, float], Interval]


class Law(NamedTuple):
    """Probabilities of the counts first, first + 1, and so on; what they lack to 1 counts as missed."""

    first: int
    chances: NDArray[np.float64]


def _binomial(n: int, chance: float) -> Law:
    """All counts, or for a large n those that carry all but 1e-12 of the probability.

    By Bernstein's inequality a count is farther than t from its mean with probability 2 exp(-t^2 / (2 var + 2t/3))
    at most, less than 1e-13 at t = 8 standard deviations + 40.
    """
    reach = 8 * (n * chance * (1 - chance)) ** 0.5 + 40
    c = np.arange(max(0, int(n * chance - reach)), min(n, int(n * chance + reach)) + 1)
    ways = gammaln(n + 1) - gammaln(c + 1) - gammaln(n - c + 1)
    chances = np.exp(ways + xlogy(c, chance) + xlog1py(n - c, -chance))
    assert abs(chances.sum() - 1) < 1e-9  # what gammaln leaves of it
    return Law(int(c[0]), chances)


def _population_law(made: Mechanism, n: int, share: float) -> Law:
    return _binomial(n, made.q + share * made.gap)


def _reporters_law(made: Mechanism, n: int, share: float) -> Law:
    """Of round(n share) holders and the others."""
    holders, others = _binomial(round(n * share), made.p), _binomial(n - round(n * share), made.q)
    return Law(holders.first + others.first, np.convolve(holders.chances, others.chances))


TARGETS = {"population": _population_law, "reporters": _reporters_law}


def _coverage(made: Mechanism, kind: Kind, n: int, law: Law, share: float) -> float:
    """Probability that the mapped interval of one value contains its share."""
    interval = debiased(made, kind(law.first + np.arange(law.chances.size), n, LEVEL))
    return float(law.chances[(interval.lower <= share) & (share <= interval.upper)].sum())


def _least(name: str, d: int, epsilon: float, n: int, *, kind: Kind, target: str) -> float:
    """The coverage at the share where it is least."""
    made = mechanism(name, epsilon, d)
    shares = SHARES if target == "population" else [round(n * share) / n for share in SHARES]
    return min(_coverage(made, kind, n, TARGETS[target](made, n, share), share) for share in shares)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "d", "epsilon", "n"), GRID)
def test_intervals_cover_every_share(name: str, d: int, epsilon: float, n: int, target: str) -> None:
    """Clopper-Pearson covers at its level or above, the default at 93 % or above, for both targets."""
    assert _least(name, d, epsilon, n, kind=clopper_pearson, target=target) >= LEVEL
    assert _least(name, d, epsilon, n, kind=default_interval, target=target) >= DEFAULT_FLOOR


def _wald(successes: NDArray[np.int64], n: int, level: float) -> Interval:
    """The textbook interval that is not offered."""
    x = successes / n
    half = 1.959963984540054 * np.sqrt(x * (1 - x) / n)
    return Interval(x - half, x + half, np.full(x.shape, "wald"))


@pytest.mark.parametrize("kind", [_wald, wilson])
def test_the_grid_would_notice_an_interval_that_promises_too_much(kind: Kind) -> None:
    """Wald, and Wilson where counts are small, fall below the floor somewhere on the grid."""
    few = [(name, d, epsilon, n) for name, d, epsilon, n in GRID if n < SIZES[-1]]
    assert min(_least(*case, kind=kind, target="population") for case in few) < DEFAULT_FLOOR


@pytest.mark.parametrize("n", SIZES)
def test_the_grid_would_notice_a_truth_beside_the_one_covered(n: int) -> None:
    """Intervals that cover a share do not cover one shifted by four of its standard errors nearly as often."""
    made = mechanism("oue", 1.0, 16)
    law = _population_law(made, n, 0.1)
    beside = 0.1 + 4 * (made.n_variance(0.1) / n) ** 0.5
    assert _coverage(made, clopper_pearson, n, law, beside) < 0.1


@cache
def _simultaneous(n: int, d: int) -> Interval:
    """The interval of every count 0..n, by calls for d values at a time: so many share what is left outside."""
    counts = np.resize(np.arange(n + 1), -(-(n + 1) // d) * d).reshape(-1, d)
    parts = [simultaneous_interval(row, n, LEVEL) for row in counts]
    lower, upper, method = (np.concatenate([part[end] for part in parts])[: n + 1] for end in range(3))
    return Interval(lower, upper, method)


def _zipf(d: int) -> NDArray[np.float64]:
    weights = np.arange(1, d + 1) ** -1.1
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def _missed(made: Mechanism, n: int) -> float:
    """The chances of missing, added up over all values: at least the chance of missing any."""

    def kind(successes: NDArray[np.int64], n: int, level: float) -> Interval:
        assert level == LEVEL
        lower, upper, method = _simultaneous(n, made.d)
        return Interval(lower[successes], upper[successes], method[successes])

    # Half of the values have no holder at all.
    shares = np.concatenate([_zipf(made.d // 2), np.zeros(made.d - made.d // 2)])
    return sum(1 - _coverage(made, kind, n, _population_law(made, n, share), share) for share in shares)


@pytest.mark.parametrize(("name", "d", "epsilon"), JOINT)
def test_simultaneous_intervals_miss_together_with_what_is_left_outside(
    name: str, d: int, epsilon: float
) -> None:
    """The chances of missing, added up over all values of a domain, are at most 1 - level, by exact laws."""
    made = mechanism(name, epsilon, d)
    for n in SIZES:
        assert _missed(made, n) <= 1 - LEVEL


@pytest.mark.parametrize("d", [16, 128])
@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "rr"])
def test_simultaneous_intervals_hold_all_at_once(name: str, d: int) -> None:
    """In repeated collections all shares are covered together at 94 % or above; one by one they are not."""
    repetitions, n = 1_000 if d < 100 else 400, 2_000
    made = mechanism(name, 1.0, d)
    shares = _zipf(d)
    holders = np.random.default_rng(20_264).multinomial(n, shares, size=repetitions)
    held_all = {True: 0, False: 0}
    for row in draw_counters(made, holders, np.random.default_rng()):
        for simultaneous in held_all:
            found = estimate(made, row, n, level=LEVEL, simultaneous=simultaneous)
            held_all[simultaneous] += bool(((found.lower <= shares) & (shares <= found.upper)).all())
    assert _not_below(held_all[True], repetitions, JOINT_FLOOR)
    assert not _not_below(held_all[False], repetitions, JOINT_FLOOR)


def _not_below(covered: int, repetitions: int, floor: float) -> bool:
    """Whether so few would not be a one-in-a-million surprise at this coverage."""
    few = covered < floor * repetitions
    return not few or follow_chances(np.array([covered]), repetitions, np.array([floor]))


def table() -> None:
    """Print the least coverage of every mechanism over epsilon, n and share."""
    print(f"least coverage over epsilon {EPSILONS}, n {SIZES}, shares {SHARES}; level {LEVEL}")
    print("mechanism      d   target        clopper-pearson   default")
    for name, d in DOMAINS:
        for target in TARGETS:
            least = [
                min(
                    _least(name, d, epsilon, n, kind=kind, target=target)
                    for epsilon in EPSILONS
                    for n in SIZES
                )
                for kind in (clopper_pearson, default_interval)
            ]
            print(f"{name:<11}{d:>5}   {target:<12}{least[0]:>17.4%}{least[1]:>10.4%}")
    print("simultaneous, chances of missing added up (level 95 %):")
    for d in (16, 128):
        for name in MECHANISMS:
            if name != "rr":
                worst = max(_missed(mechanism(name, epsilon, d), n) for epsilon in EPSILONS for n in SIZES)
                print(f"{name:<11}{d:>5}   {worst:.4%}  (joint coverage at least {1 - worst:.4%})")
    print(f"limits of the simulated joint coverage at {FALSE_ALARM}")


if __name__ == "__main__":
    table()
