"""What a device can spend at most: by hand for every period, span, expiry and combination of dimensions."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from dither_protocol import Metric, Registry, registry_from_document
from dither_protocol.accounting import bounds as accounting
from dither_protocol.accounting.loss import PrivacyLoss
from dither_protocol.registry import spending as spent
from dither_protocol.registry.spending import DAY, LIFE, SPANS, WEEK, YEAR, Charge, group_charges, spending
from dither_protocol.registry.spending_bounds import MAX_COMPOSED, MAX_KINDS, below_the_sum, bounds

MONDAY = date(2026, 11, 30)


def _registry(privacy: dict[str, float] | None = None, **metrics: dict[str, Any]) -> Registry:
    tables = {
        name: {"version": 1, "type": "boolean", "description": "d", "epsilon": 1.0, "mechanism": "rr"}
        | changes
        for name, changes in metrics.items()
    }
    return registry_from_document({"schema": 1, "project": "p", "privacy": privacy or {}, "metrics": tables})


def _metric(**changes: Any) -> Metric:
    return _registry(m=changes).metric("m")


def _windows(metric: Metric, first: date = MONDAY) -> dict[str, int | None]:
    return {span: spent.open_windows(metric, span, first) for span in SPANS}


@pytest.mark.parametrize(
    ("period", "day", "week", "year"),
    [
        ("hour", 24, 168, 366 * 24),
        ("day", 1, 7, 366),
        ("week", 1, 1, 53),  # the weeks of 30 November 2026 to 29 November 2027, both Mondays
        ("month", 1, 2, 13),  # November 2026 to November 2027
    ],
)
def test_windows_without_end(period: str, day: int, week: int, year: int) -> None:
    """From Monday, 30 November 2026, to 30 November 2027: a window that is open on a day can be answered on it."""
    assert _windows(_metric(period=period)) == {DAY: day, WEEK: week, YEAR: year, LIFE: None}


def test_a_metric_that_is_asked_once() -> None:
    """One window in every span, up to and including its last day; none after it."""
    metric = _metric(period="once", expires="2026-11-30")
    assert _windows(metric) == {DAY: 1, WEEK: 1, YEAR: 1, LIFE: 1}
    assert _windows(metric, MONDAY + timedelta(days=1)) == {DAY: 0, WEEK: 0, YEAR: 0, LIFE: 0}


@pytest.mark.parametrize(
    ("period", "week", "life"),
    [("hour", 72, 72), ("day", 3, 3), ("week", 1, 1), ("month", 2, 2)],
)
def test_a_metric_that_expires_within_the_week(period: str, week: int, life: int) -> None:
    """30 November to 2 December 2026: three days, one week, the end of one month and the start of another."""
    metric = _metric(period=period, expires="2026-12-02")
    one_day = 24 if period == "hour" else 1
    assert _windows(metric) == {DAY: one_day, WEEK: week, YEAR: life, LIFE: life}


@pytest.mark.parametrize(
    ("period", "year", "life"), [("day", 184, 184), ("week", 27, 27), ("month", 8, 8), ("hour", 4416, 4416)]
)
def test_a_metric_that_expires_within_the_year(period: str, year: int, life: int) -> None:
    """30 November 2026 to 1 June 2027: 1 + 31 + 31 + 28 + 31 + 30 + 31 + 1 days; the year ends with the metric."""
    metric = _metric(period=period, expires="2027-06-01")
    assert (_windows(metric)[YEAR], _windows(metric)[LIFE]) == (year, life)


def test_a_metric_that_expires_after_the_year() -> None:
    """Life goes on where the year ends: 366 days, then 31 more of December 2027."""
    metric = _metric(period="day", expires="2027-12-31")
    assert _windows(metric) == {DAY: 1, WEEK: 7, YEAR: 366, LIFE: 366 + 31}


@pytest.mark.parametrize("first", [date(2026, 11, day) for day in range(23, 31)])
def test_a_window_that_began_before_its_metric_expired_is_open_to_its_end(first: date) -> None:
    """`expires` is the last day on which a window begins: the week of Monday 23 is answered until Sunday 29."""
    metric = _metric(period="week", expires="2026-11-25")
    assert _windows(metric, first)[LIFE] == (0 if first == MONDAY else 1)
    assert _windows(metric, first)[DAY] == _windows(metric, first)[LIFE]


@pytest.mark.parametrize("period", ["hour", "day", "week", "month"])
@pytest.mark.parametrize(
    "first", [date(2026, 2, 27), date(2027, 12, 31), date(2028, 1, 2), date(2028, 2, 29)]
)
def test_a_year_has_the_windows_that_the_protocol_names(period: str, first: date) -> None:
    """Counted hour by hour over 366 days, with and without an expiry in them."""
    for length in (366, 40, 1):
        expires = first + timedelta(days=length - 1)
        at = datetime(first.year, first.month, first.day, tzinfo=UTC)
        metric = _metric(period=period, expires=expires.isoformat())
        labels = {metric.window_at(at + timedelta(hours=hour)).label for hour in range(24 * length)}
        assert spent.open_windows(metric, YEAR, first) == len(labels)
        assert spent.windows_between(_metric(period=period), first, expires) == len(labels)


def test_no_week_and_no_day_has_more_windows_than_are_charged() -> None:
    """Over every calendar week and day of four years, the most that the calendar has is what is charged."""
    for period in ("day", "week", "month"):
        metric = _metric(period=period)
        for span, length in ((DAY, 1), (WEEK, 7)):
            starts = (date(2024, 1, 1) + timedelta(days=length * step) for step in range(4 * 366 // length))
            counts = [
                spent.windows_between(metric, start, start + timedelta(days=length - 1)) for start in starts
            ]
            assert max(count or 0 for count in counts) == spent.open_windows(metric, span, None)


def test_the_sum_over_a_registry() -> None:
    """Every combination of dimensions in every window; a sum has no end where a part has none."""
    registry = _registry(
        {"max_epsilon_per_day": 20.0, "max_epsilon_lifetime": 900.0},
        hourly={"period": "hour", "epsilon": 0.5, "expires": "2026-12-01"},
        daily={"dimensions": {"os": ["a", "b", "c"], "channel": ["x", "y"]}, "expires": "2026-12-31"},
        monthly={"period": "month", "epsilon": 2.0, "expires": "2027-02-28"},
        once={"period": "once", "epsilon": 4.0, "expires": "2027-01-01"},
    )
    found = spending(registry, MONDAY)
    assert [each.combinations for each in found.metrics] == [1, 6, 1, 1]
    assert found.metrics[1].reports == {DAY: 6, WEEK: 42, YEAR: 192, LIFE: 192}
    assert found.reports == {DAY: 24 + 6 + 1 + 1, WEEK: 48 + 42 + 2 + 1, YEAR: 48 + 192 + 4 + 1, LIFE: 245}
    assert found.epsilon(DAY) == 12 + 6 + 2 + 4
    assert found.epsilon(WEEK) == 24 + 42 + 4 + 4
    assert found.epsilon(YEAR) == found.epsilon(LIFE) == 24 + 192 + 8 + 4
    assert found.limits == {DAY: 20.0, WEEK: None, YEAR: None, LIFE: 900.0}
    endless = spending(_registry(m={}, n={"expires": "2026-12-01"}), MONDAY)
    assert (endless.epsilon(YEAR), endless.epsilon(LIFE), endless.reports[LIFE]) == (366 + 2, None, None)
    assert [each.epsilon(LIFE) for each in endless.metrics] == [None, 2.0]


def test_a_device_stops_at_its_limits() -> None:
    """By the limit of a day in every one of the days, and by the limit for life in any span."""
    daily = {"epsilon": 3.0}
    held = spending(_registry({"max_epsilon_per_day": 2.0, "max_epsilon_lifetime": 100.0}, m=daily), MONDAY)
    assert [held.at_most(span) for span in SPANS] == [2.0, 14.0, 100.0, 100.0]
    by_day = spending(_registry({"max_epsilon_per_day": 2.0}, m=daily), MONDAY)
    assert [by_day.at_most(span) for span in SPANS] == [2.0, 14.0, 732.0, None]
    free = spending(_registry(m=daily | {"expires": "2026-12-01"}), MONDAY)
    assert [free.at_most(span) for span in SPANS] == [3.0, 6.0, 6.0, 6.0]
    filtered = spending(_registry({"max_epsilon_lifetime": 5.0, "delta": 1e-6}, m=daily), MONDAY)
    assert (filtered.limits[LIFE], filtered.at_most(DAY), filtered.at_most(LIFE)) == (None, 3.0, None)
    assert (filtered.life_filter, held.life_filter) == ((5.0, 1e-6), None)


def test_a_day_by_date_is_the_worst_case_of_the_registry() -> None:
    """The same arithmetic: `worst_case_per_day` knows no date, so it counts what has expired, too."""
    registry = _registry(
        hourly={"period": "hour"}, weekly={"period": "week"}, gone={"epsilon": 3.0, "expires": "2026-11-29"}
    )
    assert registry.worst_case_per_day() == 24 + 1 + 3
    assert spending(registry, MONDAY).epsilon(DAY) == 24 + 1
    assert spending(registry, MONDAY - timedelta(days=1)).epsilon(DAY) == 24 + 1 + 3


def test_of_a_group_the_dearest_metric_is_charged() -> None:
    """One answer per window: the largest epsilon, the most combinations, in as many windows as any member has."""
    registry = _registry(
        a={"epsilon": 2.0, "expires": "2026-12-02"},
        b={"epsilon": 0.75, "dimensions": {"os": ["x", "y", "z"]}, "expires": "2026-12-01"},
        c={"epsilon": 1.0, "expires": "2026-12-09"},
    )
    together = list(registry)
    (day,), (life,) = group_charges(together, DAY, MONDAY), group_charges(together, LIFE, MONDAY)
    assert (day.epsilon, day.times, day.total) == (2.0, 3, 6.0)
    assert (life.times, life.total) == (30, 60.0)
    assert group_charges(together, LIFE, date(2026, 12, 3))[0] == Charge(1.0, 7, together[2], alone=True)
    assert group_charges([*together[:1], _metric()], LIFE, MONDAY)[0].times is None


def test_basic_bounds_say_what_they_assume() -> None:
    """The plain sum, without a delta; there is none of what has no end."""
    found = spending(_registry(m={"epsilon": 0.5}), MONDAY)
    (basic,) = [each for each in bounds(found.charges[WEEK], 1e-6) if each.name == "basic"]
    assert (basic.epsilon, basic.delta) == (3.5, 0.0)
    assert "None" in basic.assumption
    assert bounds(found.charges[LIFE], 1e-6) == []


def test_closer_bounds_are_those_of_the_same_plan() -> None:
    """366 fresh answers at epsilon 1: each rule is asked about these reports, at the delta that is given."""
    charges = spending(_registry(m={}), MONDAY).charges[YEAR]
    plan = [(PrivacyLoss.of(_metric().mechanism), 366)]
    found = {each.name: each for each in bounds(charges, 1e-5)}
    assert list(found) == ["basic", "advanced", "optimal", "rdp", "exact"]
    assert found["optimal"] == accounting.optimal(plan, 1e-5)
    assert found["exact"] == accounting.exact(plan, 1e-5)
    assert found["exact"].epsilon < found["basic"].epsilon < found["advanced"].epsilon
    assert [each.name for each in below_the_sum(bounds(charges, 1e-5))] == ["optimal", "rdp", "exact"]
    assert below_the_sum(bounds(spending(_registry(m={}), MONDAY).charges[DAY], 1e-6)) == []


def test_plans_that_would_take_seconds_have_fewer_bounds() -> None:
    """Above a number of different losses, or of reports, the law of the sum is not computed."""
    tables = {f"m{step}": {"epsilon": 0.5 + step / 100} for step in range(MAX_KINDS + 1)}
    found = bounds(spending(_registry(**tables), MONDAY).charges[YEAR], 1e-6)
    assert [each.name for each in found] == ["basic", "advanced", "rdp"]
    many = [Charge(1.0, MAX_COMPOSED + 1, _metric())]
    assert [each.name for each in bounds(many, 1e-6)] == ["basic", "advanced", "rdp"]
    assert len(bounds([Charge(1.0, MAX_COMPOSED, _metric())], 1e-6)) == 5


def test_a_group_has_the_plain_sum_alone() -> None:
    """Its dearest metric stands for it, which is right for no other rule."""
    together = list(_registry(a={"epsilon": 2.0}, b={"epsilon": 0.5}))
    assert [each.name for each in bounds(group_charges(together, WEEK, MONDAY), 1e-6)] == ["basic"]
    assert len(bounds(group_charges(together[:1], WEEK, MONDAY), 1e-6)) == 5


def test_memoised_answers_are_charged_once_for_life() -> None:
    """Two lasting answers of epsilon 3, in any span and for any number of windows, with their assumption."""
    lasting = {
        "mechanism": "grr",
        "collection": "memoized",
        "epsilon_permanent": 3.0,
        "max_distinct_values": 2,
    }
    found = spending(_registry(m=lasting | {"dimensions": {"os": ["a", "b"]}}, fresh={}), MONDAY)
    assert [found.metrics[0].epsilon(span) for span in SPANS] == [6.0] * 4
    assert found.metrics[0].reports == {DAY: 2, WEEK: 14, YEAR: 732, LIFE: None}
    assert [found.epsilon(span) for span in SPANS] == [7.0, 13.0, 372.0, None]
    basic, *others = bounds(found.charges[WEEK], 1e-6)
    assert basic.epsilon == 13.0
    assert all("change at the same times" in each.assumption for each in (basic, *others))
    exact = accounting.exact([(PrivacyLoss.pure(3.0), 2), (PrivacyLoss.of(_metric().mechanism), 7)], 1e-6)
    assert [each.epsilon for each in others if each.name == "exact"] == [exact.epsilon]
    gone = spending(_registry(m=lasting | {"expires": "2026-11-29"}), MONDAY)
    assert [gone.epsilon(span) for span in SPANS] == [0.0] * 4


def test_memoised_metrics_of_a_group_are_charged_each() -> None:
    """Over the windows a device comes to answer all of them; of the fresh ones one per window counts."""
    lasting = {
        "mechanism": "grr",
        "collection": "memoized",
        "epsilon_permanent": 3.0,
        "max_distinct_values": 2,
    }
    together = list(_registry(a=lasting, b=lasting | {"max_distinct_values": 1}, c={}, d={"epsilon": 0.5}))
    assert spent.total(group_charges(together, WEEK, MONDAY)) == 6 + 3 + 7
