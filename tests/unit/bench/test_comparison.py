"""The regression guard: what counts as worse."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from comparison import FAILING, Figure, Verdict, compare, figures, settle

RATE = Figure("rate", "suite", 100.0, True, "loop")
TIME = Figure("time", "suite", 100.0, False, "loop")
LOST = Figure("lost", "suite", 0.0, False, "any machine")


def at(figure: Figure, relative: float, **others: Any) -> Figure:
    """The same row with another figure."""
    return Figure(**(vars(figure) | {"relative": relative} | others))


def verdict(committed: Figure, measured: Figure) -> Verdict:
    """What becomes of one row."""
    return compare({committed.name: committed}, {measured.name: measured}, {})[0].verdict


@pytest.mark.parametrize(
    ("committed", "relative", "expected"),
    [
        (RATE, 74.0, Verdict.WORSE),
        (RATE, 75.0, Verdict.HELD),
        (RATE, 76.0, Verdict.HELD),
        (RATE, 400.0, Verdict.HELD),
        (TIME, 126.0, Verdict.WORSE),
        (TIME, 125.0, Verdict.HELD),
        (TIME, 124.0, Verdict.HELD),
        (TIME, 25.0, Verdict.HELD),
        (LOST, 0.0, Verdict.HELD),
        (LOST, 1.0, Verdict.WORSE),
    ],
)
def test_a_row_is_worse_beyond_a_quarter(committed: Figure, relative: float, expected: Verdict) -> None:
    """26 % fail and 24 % pass, of throughput downwards, of time upwards; of what was nothing, anything fails."""
    assert verdict(committed, at(committed, relative)) is expected


def test_a_finding_has_both_figures_and_the_share() -> None:
    """A row that is better has a negative share."""
    committed = {"rate": RATE, "time": TIME}
    rate, time = compare(committed, {"rate": at(RATE, 50.0), "time": at(TIME, 90.0)}, {})
    assert (rate.committed, rate.measured, rate.worse_by) == (100.0, 50.0, 0.5)
    assert (time.committed, time.measured, time.worse_by) == (100.0, 90.0, -0.1)


def test_what_is_no_longer_measured_fails() -> None:
    """A row cannot leave the guard by being renamed."""
    (found,) = compare({"rate": RATE}, {}, {"another suite": "not installed"})
    assert found.verdict is Verdict.MISSING
    assert found.verdict in FAILING


def test_what_this_machine_cannot_measure_is_skipped_with_the_reason() -> None:
    """The suite says why."""
    (found,) = compare({"rate": RATE}, {}, {"suite": "wrk is not installed"})
    assert (found.verdict, found.reason) == (Verdict.SKIPPED, "wrk is not installed")
    assert found.verdict not in FAILING


def test_a_new_row_is_named_and_does_not_fail() -> None:
    """It stands after the committed ones."""
    held, new = compare({"rate": RATE}, {"time": TIME, "rate": RATE}, {})
    assert held.verdict is Verdict.HELD
    assert (new.name, new.verdict, new.measured) == ("time", Verdict.NEW, 100.0)
    assert new.verdict not in FAILING


def test_another_condition_is_skipped_and_both_are_named() -> None:
    """Instruction counts of two builds of Python say nothing about each other, however far apart."""
    committed = at(TIME, 100.0, condition="Python 3.11")
    (found,) = compare({"time": committed}, {"time": at(TIME, 900.0, condition="Python 3.12")}, {})
    assert found.verdict is Verdict.SKIPPED
    assert "Python 3.11" in found.reason
    assert "Python 3.12" in found.reason


@pytest.mark.parametrize("change", [{"yardstick": "another loop"}, {"higher_is_better": False}])
def test_another_yardstick_fails(change: Mapping[str, Any]) -> None:
    """A ratio over something else is another figure, even if it is better."""
    found = verdict(RATE, at(RATE, 100.0, **change))
    assert found is Verdict.OTHER_YARDSTICK
    assert found in FAILING


def row(**others: Any) -> dict[str, Any]:
    """A row as it stands in results.json."""
    return {
        "name": "rate", "value": 5.0, "unit": "1/s", "higher_is_better": True, "over": 2.0, "relative": 2.5,
        "yardstick": "loop", "condition": "", "suite": "suite", "guarded": True,
    } | others  # fmt: skip


def test_guarded_rows_alone_are_compared() -> None:
    """A row without a yardstick, or of results that are older than the guard, is none of them."""
    assert figures([row()]) == {"rate": Figure("rate", "suite", 2.5, True, "loop")}
    assert figures([row(guarded=False), row(relative=None), {"name": "old", "value": 1.0}]) == {}


@pytest.mark.parametrize("relative", [math.nan, math.inf])
def test_what_is_no_number_is_refused(relative: float) -> None:
    """A comparison with it would always pass."""
    with pytest.raises(ValueError, match="rate"):
        figures([row(relative=relative)])


@pytest.mark.parametrize(
    ("given", "measurements"),
    [
        ([110.0], 1),  # better at once
        ([76.0], 1),
        ([50.0, 99.0], 2),  # noise
        ([50.0, 60.0, 99.0], 3),
        ([50.0, 70.0, 60.0, 99.0], 3),  # a loss: no fourth try
    ],
)
def test_a_row_that_seems_worse_is_measured_up_to_three_times(given: list[float], measurements: int) -> None:
    """The best of its figures is what counts, and no more is measured than is needed."""
    left = iter(given)
    taken = []

    def measure() -> dict[str, Figure]:
        taken.append(next(left))
        return {"rate": at(RATE, taken[-1])}

    found = settle(measure, {"rate": RATE})
    assert len(taken) == measurements
    assert found["rate"].relative == max(taken)


def test_the_best_of_a_time_is_the_least() -> None:
    """The tries of the rows of one case are told apart."""
    left = iter([{"rate": at(RATE, 50.0), "time": at(TIME, 90.0)}, {"rate": RATE, "time": at(TIME, 120.0)}])
    found = settle(lambda: next(left), {"rate": RATE, "time": TIME})
    assert {name: figure.relative for name, figure in found.items()} == {"rate": 100.0, "time": 90.0}


def test_new_and_incomparable_rows_are_measured_once() -> None:
    """Nothing says that they are worse."""
    left = iter([{"time": TIME, "rate": at(RATE, 1.0, condition="another build")}])
    assert len(settle(lambda: next(left), {"rate": RATE})) == 2
