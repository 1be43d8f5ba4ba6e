"""Exponents and knees of known curves."""

import math
import random
from collections.abc import Callable

import pytest

from growth_fit import MOST_EXPONENT, exponent, faster_than_linear, knee_words, line, upper

SIZES = [10.0 ** (step / 2) for step in range(2, 13)]  # 10 to 1,000,000, two in a decade


def _curve(law: Callable[[float], float], noise: float = 0.0, seed: int = 1) -> list[tuple[float, float]]:
    jitter = random.Random(seed)  # noqa: S311  noise of a curve, the same each time
    return [(size, law(size) * (1 + noise * jitter.uniform(-1, 1))) for size in SIZES]


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (lambda _: 7.0, 0.0),
        (lambda x: 3 * x, 1.0),
        (lambda x: 2 * x**2, 2.0),
        (math.sqrt, 0.5),
        (lambda x: x**1.2, 1.2),
    ],
)
def test_the_exponent_of_a_power_is_that_power(law: Callable[[float], float], expected: float) -> None:
    """Whatever its factor."""
    assert exponent(_curve(law)) == pytest.approx(expected, abs=1e-9)


def test_the_upper_half_is_judged() -> None:
    """By logarithm: what is fixed counts no more there, so a line has nearly exponent 1."""
    points = _curve(lambda x: 100 + x)
    assert [size for size, _ in upper(points)] == [
        size for size in SIZES if size >= math.sqrt(10 * 1e6) * 0.999
    ]
    assert exponent(points) < 0.9
    assert exponent(upper(points)) == pytest.approx(1.0, abs=0.02)


def test_the_upper_half_is_a_decade_and_three_points_at_least() -> None:
    """Few sizes close together are all judged."""
    close = [(1.0, 1.0), (2.0, 2.0), (4.0, 4.0), (8.0, 8.0)]
    assert upper(close) == close
    far = [(1.0, 1.0), (1e3, 1.0), (1e6, 1.0), (1e9, 1.0)]
    assert upper(far) == far[-3:]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("law", "too_fast"),
    [
        (lambda _: 5.0, False),
        (lambda x: 4 * x, False),
        (lambda x: 1_000 + x, False),
        (lambda x: x * math.log(x), False),
        (lambda x: x**2, True),
        (lambda x: 1e4 + x**2, True),
        (lambda x: x + x**2 / 1e4, True),
        (lambda x: x**1.35, True),
    ],
)
def test_faster_than_linear_is_told_from_linear_under_noise(
    law: Callable[[float], float], too_fast: bool, seed: int
) -> None:
    """With 15 % of noise: n log n passes, a square fails even where it begins late."""
    assert faster_than_linear(_curve(law, 0.15, seed)) is too_fast


def test_a_line_is_found_again() -> None:
    """Both parts, at relative errors that count alike over five decades."""
    found = line(_curve(lambda x: 250 + 2 * x))
    assert (found.fixed, found.each) == (pytest.approx(250), pytest.approx(2))
    assert found.knee == pytest.approx(125)
    assert found.error == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_a_knee_is_found_under_noise(seed: int) -> None:
    """Within a factor of one and a half."""
    assert 125 / 1.5 < line(_curve(lambda x: 250 + 2 * x, 0.2, seed)).knee < 125 * 1.5


def test_no_part_of_a_line_is_negative() -> None:
    """A falling cost is a fixed one; a square is all growth."""
    falling = line(_curve(lambda x: 1 / x))
    assert (falling.each, falling.knee) == (0.0, math.inf)
    square = line(_curve(lambda x: x**2))
    assert (square.fixed, square.knee) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (lambda _: 5.0, "none up to 1,000,000 cells"),
        (lambda x: 5e6 + x, "none up to 1,000,000 cells"),
        (lambda x: 2e6 + x, "beyond 1,000,000 cells"),
        (lambda x: 2_500 + 2 * x, "about 1,200 cells"),
        (lambda x: 3 * x, "in proportion from the start"),
    ],
)
def test_the_knee_in_words(law: Callable[[float], float], words: str) -> None:
    """Where the cost turns from constant to proportional."""
    assert knee_words(_curve(law), "cells") == words


def test_a_small_knee_has_two_digits() -> None:
    """Numbers below ten, too."""
    assert knee_words([(1.0, 5.0), (10.0, 14.0), (100.0, 104.0)], "windows") == "about 4 windows"


def test_what_cannot_be_fitted_is_refused() -> None:
    """One size has no exponent; a cost of nothing has no relative error."""
    with pytest.raises(ValueError, match="two sizes"):
        exponent([(1.0, 1.0), (1.0, 2.0)])
    with pytest.raises(ValueError, match="positive"):
        line([(1.0, 0.0), (2.0, 1.0)])
    with pytest.raises(ValueError, match="positive"):
        line([])


def test_n_log_n_stays_below_the_limit_where_n_is_large() -> None:
    """The limit lies between it and what is faster."""
    assert 1.05 < exponent(upper(_curve(lambda x: x * math.log(x)))) < MOST_EXPONENT - 0.04
