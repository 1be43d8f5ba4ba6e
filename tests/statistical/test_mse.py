"""Mean squared error over a whole domain, divided by the exact theory, at the size of a real collection.

The target is "reporters": how many devices hold each value is fixed (zipf 1.1, rounded), and the only error is the
noise, whose variance is `n_variance`. In every repetition some thousand devices go through the whole protocol:
randomised, by the SDK and by the fleet's sampler, and counted from their wire data. The counters of the others are
drawn from their exact joint law.

As a script it prints the table: ``python tests/statistical/test_mse.py``.
"""

import math
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from dither_client import randomize
from dither_estimator import count, estimate
from dither_fleet import randomize_many
from dither_protocol import MECHANISMS, Mechanism, mechanism
from support.exact_draws import draw_counters
from support.statistics import SHIFT, limit_of_few, mean_of_few_is

N = 100_000
D = 128
ZIPF = 1.1
EPSILONS = (0.5, 1.0, 2.0, 4.0)
CASES = [(name, epsilon) for name in MECHANISMS for epsilon in EPSILONS]


@dataclass(frozen=True)
class Size:
    """How often a case is repeated, and how many devices go through the whole protocol each time."""

    repetitions: int
    by_sdk: int
    by_fleet: int


SIZE = Size(repetitions=40, by_sdk=200, by_fleet=5_000)
SIZE_OF_RR = Size(repetitions=4_000, by_sdk=2, by_fleet=20)
"""Two values are one number: a hundredth of the squares in each repetition, so a hundred times as many."""


def zipf(d: int) -> NDArray[np.float64]:
    """Shares proportional to rank^-1.1."""
    weights = np.arange(1, d + 1) ** -ZIPF
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def _holders(d: int) -> NDArray[np.int64]:
    """How many of N devices hold each value; the first takes what rounding leaves."""
    held = np.rint(N * zipf(d)).astype(np.int64)
    held[0] += N - held.sum()
    return held


def _one_by_one(made: Mechanism, size: Size, values: NDArray[np.int64]) -> NDArray[np.int64]:
    data = [randomize(made, int(value)) for value in values[: size.by_sdk]]
    by_sdk, _ = count(made, data)
    by_fleet, _ = count(made, randomize_many(made, values[size.by_sdk :]))
    return by_sdk + by_fleet


@cache
def ratios(name: str, epsilon: float) -> NDArray[np.float64]:
    """Sum of squared errors over the domain by sum of the variances, one number per repetition."""
    made = mechanism(name, epsilon, 2 if name == "rr" else D)
    size = SIZE_OF_RR if name == "rr" else SIZE
    held = _holders(made.d)
    devices = np.repeat(np.arange(made.d), held)
    population = np.random.default_rng(20_263)  # who is among the few; their noise has no seed
    few = [
        population.choice(devices, size.by_sdk + size.by_fleet, replace=False)
        for _ in range(size.repetitions)
    ]
    rest = held - np.array([np.bincount(part, minlength=made.d) for part in few])
    counters = draw_counters(made, rest, np.random.default_rng())
    counters += np.array([_one_by_one(made, size, part) for part in few])
    shares = held / N
    variance = sum(made.n_variance(share) for share in shares) / N
    errors = np.array([estimate(made, row, N, target="reporters").estimate for row in counters]) - shares
    found: NDArray[np.float64] = (errors**2).sum(axis=1) / variance
    return found


@pytest.mark.parametrize(("name", "epsilon"), CASES)
def test_the_error_over_the_whole_domain_is_the_theory(name: str, epsilon: float) -> None:
    """The squared error pooled over the domain is the sum of the variances; not 30 % more or less."""
    sample = ratios(name, epsilon)
    assert mean_of_few_is(sample, 1.0)
    assert not mean_of_few_is(sample, 1 + SHIFT)
    assert not mean_of_few_is(sample, 1 - SHIFT)


def table() -> None:
    """Print the ratio of every case, its limit at one false alarm in a million, and the issue's band."""
    print(f"n = {N:,}, zipf {ZIPF}, target reporters, d = {D} (rr: 2)")
    print(
        "mechanism  epsilon   R     whole protocol   MSE/theory   +-limit   +-band   variance of ratio * d/2"
    )
    for name, epsilon in CASES:
        size, d = (SIZE_OF_RR, 2) if name == "rr" else (SIZE, D)
        sample = ratios(name, epsilon)
        whole = size.repetitions * (size.by_sdk + size.by_fleet)
        band = 5 * math.sqrt(2 / (size.repetitions * d))
        print(
            f"{name:<11}{epsilon:>5}{size.repetitions:>8}{whole:>12,}{sample.mean():>17.4f}"
            f"{limit_of_few(sample):>11.4f}{band:>9.4f}{sample.var(ddof=1) * d / 2:>12.2f}"
        )


if __name__ == "__main__":
    table()
