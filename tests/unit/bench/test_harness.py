"""Rows and repeated timing."""

import time

import pytest

from harness import Row, beside, in_turns


def test_a_row_carries_its_figure_over_the_yardstick() -> None:
    """Beside what was there before: target, ratio, met."""
    found = Row("a", 6.0, "us", 8.0, higher_is_better=False, over=4.0, yardstick="loop").as_json()
    assert (found["relative"], found["over"], found["yardstick"]) == (1.5, 4.0, "loop")
    assert (found["value"], found["unit"], found["target"], found["ratio"], found["met"]) == (
        6.0, "us", 8.0, 0.75, True,
    )  # fmt: skip


def test_a_row_without_a_yardstick_has_no_relative_figure() -> None:
    """None, not zero and not the value."""
    assert Row("a", 6.0, "us").relative is None


def test_work_and_yardstick_are_timed_in_turns_by_the_processor() -> None:
    """Both at least five times, and each by itself; waiting is not counted."""
    calls: list[str] = []

    def work() -> None:
        calls.append("work")
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass

    def loop() -> None:
        calls.append("loop")
        time.sleep(0.1)

    took, waited = beside(work, loop)
    assert calls[:10] == ["work", "loop"] * 5
    assert took >= 0.05 > waited


def test_calls_in_turns_give_the_least_of_each() -> None:
    """Round by round, so that a slow minute meets all of them."""
    first, second = iter([3.0, 1.0, 2.0]), iter([5.0, 9.0, 4.0])
    assert in_turns([lambda: next(first), lambda: next(second)], 3) == [1.0, 4.0]
    with pytest.raises(StopIteration):
        next(first)
