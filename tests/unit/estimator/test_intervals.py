from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc, betaincc

from dither_estimator import EstimationError
from dither_estimator.intervals import (
    WILSON_FROM,
    clopper_pearson,
    debiased,
    default_interval,
    simultaneous_interval,
    wilson,
)
from dither_protocol import Mechanism
from support.reference_values import reference_rows

KINDS = (clopper_pearson, wilson, default_interval, simultaneous_interval)


def _row_label(row: dict[str, Any]) -> str:
    return f"{row['case']} n={row['n']} C={row['support']}"


@pytest.mark.parametrize("row", reference_rows("intervals"), ids=_row_label)
def test_raw_intervals_are_those_of_the_reference(row: dict[str, Any]) -> None:
    """Clopper-Pearson and Wilson, mapped through the debias, agree with independent values."""
    made = cast(Mechanism, SimpleNamespace(q=row["q"], gap=row["p"] - row["q"]))
    for kind, expected in ((clopper_pearson, "clopper_pearson_raw"), (wilson, "wilson_raw")):
        mapped = debiased(made, kind(np.array([row["support"]]), row["n"], 0.95))
        assert [mapped.lower[0], mapped.upper[0]] == pytest.approx(row[expected], rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [0, 1, -0.1, 1.1, 95, float("nan"), float("inf"), True, "0.95", None])
def test_a_level_outside_is_refused(kind: Any, level: Any) -> None:
    """A level is a number between 0 and 1, both excluded."""
    with pytest.raises(EstimationError, match="the level must be a number between 0 and 1"):
        kind(np.array([1]), 2, level)


@pytest.mark.parametrize("kind", KINDS)
def test_without_trials_the_interval_is_everything(kind: Any) -> None:
    """N = 0 gives [0, 1]."""
    interval = kind(np.zeros(3, dtype=np.int64), 0, 0.95)
    assert (interval.lower.tolist(), interval.upper.tolist()) == ([0, 0, 0], [1, 1, 1])


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)  # a busy machine is not a fault
@given(data=st.data(), level=st.floats(0.001, 0.999999), n=st.integers(1, 2**63 - 1))
def test_intervals_are_ordered_and_hold_the_share(kind: Any, data: Any, level: float, n: int) -> None:
    """0 <= lower <= C/n <= upper <= 1 and never NaN, up to the largest counts."""
    if kind is clopper_pearson:
        n = min(n, 2**40)
    c = np.array(data.draw(st.lists(st.integers(0, n), min_size=1, max_size=5)), dtype=np.int64)
    interval = kind(c, n, level)
    assert (interval.lower >= 0).all()
    assert (interval.lower <= c / n).all()
    assert (interval.upper >= c / n).all()
    assert (interval.upper <= 1).all()
    assert set(interval.method.tolist()) <= {"clopper-pearson", "wilson"}


@pytest.mark.parametrize("n", [10, 1_005, 10**5, 10**9, 2**34])
@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-6])
def test_clopper_pearson_inverts_the_tails(n: int, alpha: float) -> None:
    """At each end the tail of the binomial law is half of what is left outside, and at 1,000 too."""
    c = np.array([c for c in (1, 2, 9, 10, 999, 1_000, 1_001, n // 3, n // 2) if c < n])
    interval = clopper_pearson(c, n, 1 - alpha)
    assert betainc(c, n - c + 1, interval.lower) == pytest.approx(alpha / 2, rel=1e-4)
    assert betaincc(c + 1, n - c, interval.upper) == pytest.approx(alpha / 2, rel=1e-4)


def test_the_ends_of_clopper_pearson_are_closed() -> None:
    """Nothing of n reaches down to 0, everything reaches up to 1; the other end is (alpha/2)^(1/n)."""
    interval = clopper_pearson(np.array([0, 20]), 20, 0.95)
    assert interval.lower.tolist() == pytest.approx([0, 0.025 ** (1 / 20)], rel=1e-10)
    assert interval.upper.tolist() == pytest.approx([1 - 0.025 ** (1 / 20), 1], rel=1e-10)


def test_the_default_takes_wilson_where_both_counts_reach_ten() -> None:
    """Clopper-Pearson near both edges, Wilson from 10 reports on either side; each says its name."""
    n = 100
    c = np.array([0, WILSON_FROM - 1, WILSON_FROM, n - WILSON_FROM, n - WILSON_FROM + 1, n])
    interval = default_interval(c, n, 0.9)
    assert interval.method.tolist() == [
        "clopper-pearson", "clopper-pearson", "wilson", "wilson", "clopper-pearson", "clopper-pearson",
    ]  # fmt: skip
    exact, score = clopper_pearson(c, n, 0.9), wilson(c, n, 0.9)
    for end in (0, 1):
        assert interval[end][2:4].tolist() == score[end][2:4].tolist()
        assert interval[end][[0, 1, 4, 5]].tolist() == exact[end][[0, 1, 4, 5]].tolist()


def test_wilson_inverts_the_score_test() -> None:
    """At the ends of Wilson's interval the score is exactly at its limit."""
    c, n = np.array([10, 30, 70]), 100
    for end in wilson(c, n, 0.95)[:2]:
        score = (c / n - end) / np.sqrt(end * (1 - end) / n)
        assert abs(score) == pytest.approx([1.959963984540054] * 3, rel=1e-9)


def test_simultaneous_intervals_share_what_is_left_outside() -> None:
    """Over 4 values, each interval is Clopper-Pearson at 1 - 0.05/4, also where Wilson would be the default."""
    c = np.array([0, 5, 50, 90])
    together, alone = simultaneous_interval(c, 100, 0.95), clopper_pearson(c, 100, 1 - 0.05 / 4)
    assert together.method.tolist() == ["clopper-pearson"] * 4
    assert together.lower.tolist() == pytest.approx(alone.lower.tolist(), rel=1e-9)
    assert together.upper.tolist() == pytest.approx(alone.upper.tolist(), rel=1e-9)


def test_beyond_the_reach_of_the_inverse_large_counts_get_wilson() -> None:
    """From 2^40 reports on, simultaneous intervals of large counts are Wilson's, and say so."""
    n = 2**60
    interval = simultaneous_interval(np.array([3, 2**59]), n, 0.95)
    assert interval.method.tolist() == ["clopper-pearson", "wilson"]
    assert np.isfinite(interval[:2]).all()


def test_the_debias_does_not_cut() -> None:
    """Ends are mapped by (x - q)/(p - q) and may leave [0, 1]."""
    made = cast(Mechanism, SimpleNamespace(q=0.25, gap=0.5))
    mapped = debiased(made, clopper_pearson(np.array([0, 0]), 0, 0.95))
    assert (mapped.lower.tolist(), mapped.upper.tolist()) == ([-0.5, -0.5], [1.5, 1.5])
