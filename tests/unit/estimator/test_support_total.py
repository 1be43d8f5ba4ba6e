"""Totals of supports: what honest reports give, and what they could not."""

import math

import numpy as np
import pytest

from dither_estimator import count, support
from dither_estimator.support_total import support_total
from dither_protocol import Mechanism, mechanism
from dither_protocol.mechanisms import MECHANISMS
from support.laws import report_law, supports
from support.reports import from_fleet

D = 5
NAMES = sorted(MECHANISMS)
EXACT = [name for name in NAMES if name not in ("olh", "blh")]


def _made(name: str, epsilon: float = 1.5) -> Mechanism:
    return mechanism(name, epsilon, 2 if name == "rr" else D)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("name", EXACT)
def test_mean_and_deviation_are_those_of_the_law_of_a_report(name: str, epsilon: float) -> None:
    """The mean is the same whatever is held; the deviation is the largest over the values held."""
    made = _made(name, epsilon)
    found = support_total(made, np.zeros(made.d, dtype=np.int64), 1)
    deviations = []
    for held in range(made.d):
        sizes = {data: sum(supports(made, data, v) for v in range(made.d)) for data in report_law(made, held)}
        law = {data: float(chance) for data, chance in report_law(made, held).items()}
        mean = sum(law[data] * size for data, size in sizes.items())
        assert mean == pytest.approx(found.expected, rel=1e-9)
        deviations.append(sum(law[data] * (size - mean) ** 2 for data, size in sizes.items()))
    assert found.std_dev == pytest.approx(math.sqrt(max(deviations)), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_honest_reports_are_not_flagged(name: str) -> None:
    """Reports of real devices that all hold one value, for each mechanism."""
    made = _made(name)
    counters, n = count(made, from_fleet(made, 1, 3_000))
    found = support_total(made, support(made, counters), n)
    assert found.total == support(made, counters).sum()
    assert not found.flagged, found


def test_reports_that_support_too_much_are_flagged() -> None:
    """A tenth of hand-made reports with every bit set, or of the one index that supports all values."""
    n = 3_000
    unary = _made("oue")
    counters, _ = count(unary, from_fleet(unary, 1, n - n // 10))
    assert support_total(unary, counters + n // 10, n).flagged
    made = _made("hadamard")
    counters, _ = count(made, list(from_fleet(made, 1, n - n // 10)) + [0] * (n // 10))
    assert support_total(made, support(made, counters), n).flagged


def test_where_all_reports_support_equally_many_any_other_total_is_flagged() -> None:
    """Not even one report can be out."""
    made = _made("grr")
    counters, n = count(made, from_fleet(made, 1, 100))
    assert not support_total(made, counters, n).flagged
    assert support_total(made, counters, n + 1).flagged
