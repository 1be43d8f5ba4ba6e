"""The ledger: exact sums, limits that hold, refusals that change nothing."""

from contextlib import suppress
from datetime import date, timedelta

import pytest

from dither_client import RecordStatus
from dither_client.ledger import Charge, Limits, nano_charge, spent, strictest
from dither_client.spending import summary
from dither_client.state import State
from support.bookings import charged

TODAY = date(2026, 11, 29)
FREE = Limits(None, None)


class _Refused(Exception):
    """Rolls back."""


def _charge(state: State, item: Charge, limits: Limits, today: date = TODAY) -> RecordStatus:
    """As the client does it: what is not queued is rolled back."""
    status = RecordStatus.QUEUED
    with suppress(_Refused), state.transaction() as connection:
        status = charged(connection, item, today, limits)
        if status is not RecordStatus.QUEUED:
            raise _Refused
    return status


def _item(window: str = "2026-11-29", nano: int = 1_000_000_000) -> Charge:
    return Charge("dark_mode", 1, window, "()", nano)


@pytest.mark.parametrize(
    ("epsilon", "nano"), [(0.1, 100_000_000), (1.0, 10**9), (0.001, 10**6), (1 / 3, 333_333_334)]
)
def test_a_charge_is_rounded_up_to_whole_nano_epsilon(epsilon: float, nano: int) -> None:
    """0.1 is exactly 0.1, and a third is charged as a little more than a third."""
    assert nano_charge(epsilon) == nano


def test_the_strictest_limit_holds_and_is_rounded_down() -> None:
    """Several limits are one: the lowest; none at all is none."""
    assert strictest(None, 3.0, 1 / 3) == 333_333_333
    assert strictest(None, None) is None


def test_the_second_report_of_a_window_is_refused_and_costs_nothing() -> None:
    """One report per metric, version, window and dimensions."""
    state = State(None)
    assert _charge(state, _item(), FREE) is RecordStatus.QUEUED
    assert _charge(state, _item(), FREE) is RecordStatus.ALREADY_REPORTED
    with state.transaction() as connection:
        assert spent(connection) == 10**9
    state.close()


def test_the_daily_limit_refuses_and_the_next_day_allows() -> None:
    """A limit of 1.5 a day takes one report of 1.0 a day, and the refused one changes nothing."""
    state = State(None)
    limits = Limits(per_day=1_500_000_000, lifetime=None)
    assert _charge(state, _item("a"), limits) is RecordStatus.QUEUED
    assert _charge(state, _item("b"), limits) is RecordStatus.BUDGET_EXHAUSTED
    assert _charge(state, _item("b"), limits, date(2026, 11, 30)) is RecordStatus.QUEUED
    with state.transaction() as connection:
        assert spent(connection, "2026-11-29") == 10**9
        assert spent(connection) == 2 * 10**9
    state.close()


def test_the_lifetime_limit_is_reached_exactly_and_never_passed() -> None:
    """Ten reports of 0.1 fit into 1.0 exactly, which sums of doubles would not tell; the eleventh does not."""
    state = State(None)
    limits = Limits(per_day=None, lifetime=strictest(1.0))
    statuses = [_charge(state, _item(str(i), nano_charge(0.1)), limits) for i in range(11)]
    assert statuses == [RecordStatus.QUEUED] * 10 + [RecordStatus.BUDGET_EXHAUSTED]
    state.close()


def test_the_summary_adds_up_by_metric_window_day_and_life() -> None:
    """Two days, two metrics, two dimensions: every sum is exact, and what is left is never negative."""
    state = State(None)
    tomorrow = date(2026, 11, 30)
    for item, today in (
        (Charge("a", 1, "2026-11-29", "x", 100_000_000), TODAY),
        (Charge("a", 1, "2026-11-29", "y", 200_000_000), TODAY),
        (Charge("a", 2, "2026-11-30", "x", 300_000_000), tomorrow),
        (Charge("b", 1, "once", "()", 10**9), tomorrow),
    ):
        assert _charge(state, item, FREE, today) is RecordStatus.QUEUED
    with state.transaction() as connection:
        found = summary(connection, tomorrow, Limits(per_day=2 * 10**9, lifetime=10**9))
        unlimited = summary(connection, TODAY - timedelta(days=60), FREE)
    assert (found.spent_today, found.spent_lifetime) == (1.3, 1.6)
    assert (found.left_today, found.left_lifetime) == (0.7, 0.0)
    assert (unlimited.spent_today, unlimited.left_today, unlimited.left_lifetime) == (0.0, None, None)
    assert {name: (m.metric, m.epsilon, m.reports, m.windows) for name, m in found.metrics.items()} == {
        "a": ("a", 0.6, 3, {"2026-11-29": 0.3, "2026-11-30": 0.3}),
        "b": ("b", 1.0, 1, {"once": 1.0}),
    }
    state.close()


@pytest.mark.parametrize("days_back", [1, 7, 30, 40])
def test_a_clock_that_was_set_back_refills_no_day(days_back: int) -> None:
    """Back by a day, a week, a month, and forward again: the day that was used up stays so, and life adds up."""
    state, limits = State(None), Limits(per_day=2 * 10**9, lifetime=None)
    earlier = TODAY - timedelta(days=days_back)
    assert [_charge(state, _item(name), limits) for name in "ab"] == [RecordStatus.QUEUED] * 2
    for number, day in enumerate((earlier, TODAY, earlier, TODAY)):
        assert _charge(state, _item(f"c{number}"), limits, day) is RecordStatus.BUDGET_EXHAUSTED
        with state.transaction() as connection:
            found = summary(connection, day, limits)
        assert (found.spent_today, found.left_today, found.spent_lifetime) == (2.0, 0.0, 2.0)
    assert _charge(state, _item("d"), limits, TODAY + timedelta(days=1)) is RecordStatus.QUEUED
    assert (
        _charge(state, _item("e"), limits, TODAY) is RecordStatus.QUEUED
    )  # on the day that has begun already
    assert _charge(state, _item("f"), limits, TODAY) is RecordStatus.BUDGET_EXHAUSTED
    state.close()


def test_after_several_days_the_latest_one_is_charged() -> None:
    """Back by four days over two that were used: what is left of the latest is all that there is."""
    state, limits = State(None), Limits(per_day=2 * 10**9, lifetime=None)
    days = [TODAY - timedelta(days=1), TODAY, TODAY]
    assert {_charge(state, _item(str(number)), limits, day) for number, day in enumerate(days)} == {
        RecordStatus.QUEUED
    }
    assert _charge(state, _item("x"), limits, TODAY - timedelta(days=4)) is RecordStatus.BUDGET_EXHAUSTED
    state.close()


def test_a_day_that_was_never_used_up_is_not_refilled_by_halves() -> None:
    """What is recorded after the step back takes from the same day as what was recorded before it."""
    state, limits = State(None), Limits(per_day=2 * 10**9, lifetime=None)
    for name, day in (("a", TODAY), ("b", TODAY - timedelta(days=1))):
        assert _charge(state, _item(name), limits, day) is RecordStatus.QUEUED
    for day in (TODAY, TODAY - timedelta(days=1)):
        assert _charge(state, _item("c"), limits, day) is RecordStatus.BUDGET_EXHAUSTED
    with state.transaction() as connection:
        assert spent(connection, TODAY.isoformat()) == 2 * 10**9
    state.close()


def test_the_limit_for_life_knows_no_clock() -> None:
    """Wherever the clock goes, by years even, it is spent once."""
    state, limits = State(None), Limits(per_day=None, lifetime=3 * 10**9)
    days = [TODAY, TODAY.replace(year=2031), TODAY.replace(year=2001), TODAY, TODAY - timedelta(days=1)]
    statuses = [_charge(state, _item(str(number)), limits, day) for number, day in enumerate(days)]
    assert statuses == [RecordStatus.QUEUED] * 3 + [RecordStatus.BUDGET_EXHAUSTED] * 2
    state.close()


def test_a_clock_that_was_far_ahead_once_does_not_silence_the_device() -> None:
    """A day more than 40 days ahead can only come from a wrong clock: the right one has its own day."""
    state, limits = State(None), Limits(per_day=10**9, lifetime=None)
    for number, day in enumerate((TODAY + timedelta(days=41), TODAY, TODAY + timedelta(days=1))):
        status = _charge(state, _item(str(number)), limits, day)
        assert status is (RecordStatus.BUDGET_EXHAUSTED if number == 2 else RecordStatus.QUEUED)
    state.close()
