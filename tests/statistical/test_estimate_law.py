"""Bias and mean squared error of `estimate` over many repetitions, against the formulas."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from dither_estimator import estimate
from dither_protocol import MECHANISMS, mechanism
from support.exact_draws import draw_counters
from support.statistics import SHIFT, mean_is

REPETITIONS = 5_000
"""A pooled mean squared error is then known to sqrt(2/5000) = 2 % at worst, and a wrong one by 15 % is seen."""

N = 1_000
EPSILON = 3.0
"""Large enough that sampling devices adds much to the noise: the two targets' variances differ by 15 % and more."""

TARGETS = ("population", "reporters")
CASES = [(name, target) for name in MECHANISMS for target in TARGETS]
Target = Literal["population", "reporters"]


@dataclass(frozen=True)
class Sample:
    """What the repetitions gave, each array of shape (REPETITIONS, d), and the formulas' variances, shape (d,)."""

    shares: NDArray[np.float64]
    errors: NDArray[np.float64]
    std_errors: NDArray[np.float64]
    variance: NDArray[np.float64]
    variance_of_other_target: NDArray[np.float64]


def _shares(name: str) -> NDArray[np.float64]:
    return np.array([0.3, 0.7] if name == "rr" else [0.42, 0.25, 0.15, 0.1, 0.05, 0.03, 0.0, 0.0])


@cache
def _repeat(name: str, target: Target) -> Sample:
    """Devices drawn once with a seed, so that a fault can be looked at again; noise from the operating system."""
    shares = _shares(name)
    made = mechanism(name, EPSILON, shares.size)
    if target == "population":
        holders = np.random.default_rng(20_261).multinomial(N, shares, size=REPETITIONS)
    else:
        holders = np.tile(np.rint(N * shares).astype(np.int64), (REPETITIONS, 1))
    results = [
        estimate(made, row, N, target=target) for row in draw_counters(made, holders, np.random.default_rng())
    ]
    p, q = made.p, made.q
    pi = q + shares * (p - q)
    among_all = pi * (1 - pi) / (N * (p - q) ** 2)
    among_these = (shares * p * (1 - p) + (1 - shares) * q * (1 - q)) / (N * (p - q) ** 2)
    right, wrong = (among_all, among_these) if target == "population" else (among_these, among_all)
    return Sample(
        shares=shares,
        errors=np.array([result.estimate for result in results]) - shares,
        std_errors=np.array([result.std_error for result in results]),
        variance=right,
        variance_of_other_target=wrong,
    )


@pytest.mark.parametrize(("name", "target"), CASES)
def test_the_estimate_is_unbiased(name: str, target: Target) -> None:
    """The mean error of every value is zero within chance; a truth shifted by 30 % is noticed."""
    sample = _repeat(name, target)
    d = sample.shares.size
    for v in range(d):
        assert mean_is(sample.errors[:, v], 0.0, cases=d)
        if sample.shares[v] > 0:
            assert not mean_is(sample.errors[:, v], SHIFT * sample.shares[v], cases=d)
            assert not mean_is(sample.errors[:, v], -SHIFT * sample.shares[v], cases=d)


@pytest.mark.parametrize(("name", "target"), CASES)
def test_the_mean_squared_error_is_the_formula(name: str, target: Target) -> None:
    """Pooled over the values it is the target's variance; not 30 % more or less, nor the other target's."""
    sample = _repeat(name, target)
    squares = (sample.errors**2).sum(axis=1)
    expected = float(sample.variance.sum())
    assert mean_is(squares, expected)
    assert not mean_is(squares, expected * (1 + SHIFT))
    assert not mean_is(squares, expected * (1 - SHIFT))
    assert not mean_is(squares, float(sample.variance_of_other_target.sum()))


@pytest.mark.parametrize(("name", "target"), CASES)
def test_the_standard_error_is_right_on_average(name: str, target: Target) -> None:
    """The published standard errors, squared, average to the variance, and not to the other target's."""
    sample = _repeat(name, target)
    squares = (sample.std_errors**2).sum(axis=1)
    # At C/n in place of pi, pi(1-pi) comes out smaller by the factor 1 - Var(C)/(n^2 pi(1-pi)) = 1 - 1/n.
    plugged = 1 - 1 / N if target == "population" else 1.0
    assert mean_is(squares, float(sample.variance.sum()) * plugged)
    assert not mean_is(squares, float(sample.variance_of_other_target.sum()))
