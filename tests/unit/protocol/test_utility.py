"""Figures of utility against numbers worked out by hand."""

import math

import pytest

from dither_protocol import mechanism
from dither_protocol.utility import predicted_utility, real_utility, top_values

RR = mechanism("rr", math.log(3), 2)  # p = 3/4, q = 1/4: p - q = 1/2
NORMAL = math.sqrt(2 / math.pi)


def test_the_prediction_of_randomised_response() -> None:
    """With p = 3/4 a share of 0.2 is supported by 0.35 of the reports, one of 0.8 by 0.65: 0.2275 / 0.25 = 0.91."""
    found = predicted_utility(RR, [0.2, 0.8], 100, 0.95)
    error = NORMAL * math.sqrt(0.91 / 100)
    assert found.mean_absolute_error == pytest.approx(error)
    assert found.relative_error == pytest.approx((error / 0.8 + error / 0.2) / 2)
    assert found.coverage == 0.95
    assert found.noise_ratio == pytest.approx(math.sqrt(0.91 / 0.16))


def test_among_the_reporters_there_is_no_error_of_sampling() -> None:
    """Whatever the shares are, p (1-p) = q (1-q) = 3/16: 0.1875 / 0.25 = 0.75. The ratio stays what it is."""
    found = predicted_utility(RR, [0.2, 0.8], 100, 0.9, "reporters")
    assert found.mean_absolute_error == pytest.approx(NORMAL * math.sqrt(0.75 / 100))
    assert found.noise_ratio == pytest.approx(math.sqrt(0.91 / 0.16))
    assert found.coverage == 0.9


def test_four_times_the_reports_halve_the_errors_and_leave_the_ratio() -> None:
    """Errors shrink as one over the square root of n; the price of privacy does not depend on it."""
    few, many = (predicted_utility(RR, [0.5, 0.5], n, 0.95) for n in (100, 400))
    assert many.mean_absolute_error == pytest.approx(few.mean_absolute_error / 2)
    assert many.relative_error == pytest.approx(few.relative_error / 2)
    assert many.noise_ratio == few.noise_ratio == pytest.approx(2.0)


def test_without_noise_the_ratio_is_one() -> None:
    """At the largest epsilon next to nothing is a lie."""
    assert predicted_utility(
        mechanism("grr", 20.0, 4), [0.4, 0.3, 0.2, 0.1], 9, 0.95
    ).noise_ratio == pytest.approx(1, abs=1e-6)


def test_the_real_errors() -> None:
    """Mean of 0.1, 0.0 and 0.2; medians and covers by hand; squares 0.01 + 0.04 over f (1-f) = 0.24, 0.24 and 0."""
    found = real_utility([0.5, 0.4, 0.2], [(0.41, 0.6), (0.4, 0.4), (-0.1, 0.3)], truth=[0.6, 0.4, 0.0], n=25)
    assert found.mean_absolute_error == pytest.approx(0.1)
    assert found.relative_error == pytest.approx((0.1 / 0.6 + 0.0) / 2)
    assert (found.covered, found.values, found.coverage) == (3, 3, 1.0)
    beside = real_utility([0.5, 0.4, 0.2], [(0.4, 0.59), (0.41, 0.5), (0.0, 0.3)], [0.6, 0.4, 0.0], 25)
    assert (beside.covered, beside.values, beside.coverage) == (1, 3, pytest.approx(1 / 3))
    assert found.noise_ratio == pytest.approx(math.sqrt(25 * 0.05 / 0.48))


def test_the_relative_error_is_the_median_of_the_top_values() -> None:
    """Errors of 0.1, 0.03 and 0 over shares of 0.5, 0.3 and 0.2: 20, 10 and 0 of a hundred."""
    pairs = [(0.0, 1.0)] * 4
    found = real_utility([0.6, 0.33, 0.2, 0.9], pairs, truth=[0.5, 0.3, 0.2, 0.0], n=10)
    assert found.relative_error == pytest.approx(0.1)
    skewed = real_utility([0.9, 0.33, 0.2, 0.9], pairs, truth=[0.5, 0.3, 0.2, 0.0], n=10)
    assert skewed.relative_error == pytest.approx(0.1)


def test_where_all_hold_one_value_there_is_no_ratio() -> None:
    """So many true answers would have no error at all."""
    assert predicted_utility(RR, [1.0, 0.0], 100, 0.95).noise_ratio is None
    assert real_utility([0.9, 0.1], [(0.8, 1.0), (0.0, 0.2)], [1.0, 0.0], 100).noise_ratio is None


@pytest.mark.parametrize(
    ("shares", "top"),
    [
        ([0.05, 0.6, 0.35], [1, 2]),
        ([0.5, 0.4, 0.1], [0, 1]),  # exactly nine tenths
        ([0.5, 0.39, 0.11], [0, 1, 2]),
        ([1.0, 0.0, 0.0], [0]),
        ([0.1] * 10, list(range(9))),
    ],
)
def test_the_top_values_hold_nine_tenths(shares: list[float], top: list[int]) -> None:
    """The fewest, largest first: no share among them is zero, so that relative errors are finite."""
    assert top_values(shares) == top
    assert all(shares[index] > 0 for index in top)
