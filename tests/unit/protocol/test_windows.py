from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol.errors import WindowError
from dither_protocol.windows import (
    MAX_UNTIL_DAYS,
    ONCE_UNTIL_DAYS,
    PERIODS,
    Window,
    batch_until,
    closes_at,
    last_accepted_date,
    once_window,
    parse_window,
    window_at,
    windows_from,
    windows_until,
)
from support.protocol_samples import MARKER, refused

CALENDAR_PERIODS = [period for period in PERIODS if period != "once"]
MICROSECOND = timedelta(microseconds=1)
SEALED = date(2026, 11, 29)

instants = st.datetimes(
    min_value=datetime(1900, 1, 2),
    max_value=datetime(2299, 12, 30),
    timezones=st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
periods = st.sampled_from(CALENDAR_PERIODS)
dates = st.dates(min_value=date(2000, 1, 1), max_value=date(2199, 12, 31))


def _utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


@given(periods, instants)
def test_label_round_trip(period: str, when: datetime) -> None:
    """Reading the label of any window gives the same window again."""
    window = window_at(period, when)
    assert parse_window(period, window.label) == window


@given(periods, instants)
def test_window_contains_its_instant(period: str, when: datetime) -> None:
    """A window holds the instant that it was asked for, its start included and its end excluded."""
    window = window_at(period, when)
    assert window.start <= when < window.end
    assert window_at(period, window.start) == window
    assert window_at(period, window.end - MICROSECOND) == window


@given(periods, instants)
def test_windows_tile_time(period: str, when: datetime) -> None:
    """The next window begins where this one ends, and the previous one ends where this one begins."""
    window = window_at(period, when)
    if window.end < _utc(2300, 1, 1):
        assert window_at(period, window.end).start == window.end
    if window.start > _utc(1900, 1, 1):
        assert window_at(period, window.start - MICROSECOND).end == window.start


@given(periods, instants)
def test_zone_of_the_clock_does_not_matter(period: str, when: datetime) -> None:
    """One instant in two zones lies in one window."""
    assert window_at(period, when) == window_at(period, when.astimezone(UTC))


@given(periods, st.sampled_from(PERIODS), instants)
def test_label_of_another_period_is_refused(period: str, other: str, when: datetime) -> None:
    """A label is read as one of its own period only."""
    label = window_at(period, when).label
    if other != period:
        with pytest.raises(WindowError):
            parse_window(other, label, SEALED)


@pytest.mark.parametrize(
    ("period", "label", "start", "end"),
    [
        ("hour", "2026-11-29T13", _utc(2026, 11, 29, 13), _utc(2026, 11, 29, 14)),
        ("hour", "2026-12-31T23", _utc(2026, 12, 31, 23), _utc(2027, 1, 1)),
        ("day", "2026-11-29", _utc(2026, 11, 29), _utc(2026, 11, 30)),
        ("day", "2028-02-29", _utc(2028, 2, 29), _utc(2028, 3, 1)),
        ("week", "2026-W48", _utc(2026, 11, 23), _utc(2026, 11, 30)),
        ("week", "2026-W53", _utc(2026, 12, 28), _utc(2027, 1, 4)),
        ("week", "2026-W01", _utc(2025, 12, 29), _utc(2026, 1, 5)),
        ("month", "2026-11", _utc(2026, 11, 1), _utc(2026, 12, 1)),
        ("month", "2026-12", _utc(2026, 12, 1), _utc(2027, 1, 1)),
        ("month", "2027-02", _utc(2027, 2, 1), _utc(2027, 3, 1)),
    ],
)
def test_examples(period: str, label: str, start: datetime, end: datetime) -> None:
    """The examples of the design, and the corners of the calendar, have these ends."""
    window = parse_window(period, label)
    assert (window.period, window.label, window.start, window.end) == (period, label, start, end)


@pytest.mark.parametrize(
    ("period", "label"),
    [
        ("hour", "2026-11-29T24"),
        ("hour", "2026-11-29T13:00"),
        ("hour", "2026-11-29t13"),
        ("day", "2027-02-29"),
        ("day", "2026-13-01"),
        ("day", "2026-1-1"),
        ("day", "20261129"),
        ("day", "2026-11-29\n"),
        ("day", " 2026-11-29"),
        ("day", "２０２６-11-29"),  # noqa: RUF001  # digits, but not those of ASCII
        ("week", "2025-W53"),
        ("week", "2026-W00"),
        ("week", "2026-W54"),
        ("week", "2026W48"),
        ("week", "2026-W48-1"),
        ("month", "2026-00"),
        ("month", "2026-13"),
        ("day", "1899-12-31"),
        ("day", "2300-01-01"),
        ("day", "0000-00-00"),
        ("day", ""),
        ("once", "ONCE"),
        ("once", "2026-11-29"),
    ],
)
def test_bad_labels_are_refused(period: str, label: str) -> None:
    """A label of the wrong shape, or of a time that the calendar has not, is refused."""
    with pytest.raises(WindowError):
        parse_window(period, label, SEALED)


@pytest.mark.parametrize("period", PERIODS)
def test_error_does_not_repeat_the_label(period: str) -> None:
    """The error about a label names the period and never the label."""
    with refused(WindowError, period):
        parse_window(period, MARKER, SEALED)
    with refused(WindowError, "'day'", secret="2026-02-31"):
        parse_window("day", "-".join(("2026", "02", "31")))


def test_unknown_period_is_refused() -> None:
    """Both ways to a window refuse a period that does not exist."""
    with refused(WindowError, "hour, day, week, month, once"):
        window_at(MARKER, _utc(2026, 11, 29))
    with refused(WindowError, "hour, day, week, month, once"):
        parse_window(MARKER, "2026-11-29")


def test_time_without_zone_is_refused() -> None:
    """A naive datetime would mean another instant on every device."""
    with pytest.raises(WindowError, match="zone"):
        window_at("day", datetime(2026, 11, 29))


@pytest.mark.parametrize("period", PERIODS)
@pytest.mark.parametrize(
    "when",
    [
        datetime.min.replace(tzinfo=UTC),
        _utc(1899, 12, 31, 23, 59, 59),
        _utc(2300, 1, 1),
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_time_outside_the_years_is_refused(period: str, when: datetime) -> None:
    """A clock that is centuries wrong is a WindowError, never an OverflowError of the calendar."""
    with pytest.raises(WindowError, match="1900 to 2299"):
        window_at(period, when, SEALED)


@pytest.mark.parametrize("period", CALENDAR_PERIODS)
def test_first_and_last_window_round_trip(period: str) -> None:
    """The very first and the very last instant lie in windows whose labels can be read, weeks included."""
    for when in (_utc(1900, 1, 1), _utc(2300, 1, 1) - MICROSECOND):
        window = window_at(period, when)
        assert parse_window(period, window.label) == window


def test_once_needs_its_expiry() -> None:
    """A `once` window without `expires` would never close."""
    with pytest.raises(WindowError, match="expires"):
        window_at("once", _utc(2026, 11, 29))
    with pytest.raises(WindowError, match="expires"):
        parse_window("once", "once")


@given(dates, dates)
def test_once_is_open_through_its_last_day(expires: date, today: date) -> None:
    """A `once` window holds every instant from 2000 on up to the end of the day `expires`."""
    window = once_window(expires)
    assert window == parse_window("once", "once", expires)
    noon = _utc(today.year, today.month, today.day, 12)
    assert window_at("once", noon, expires) == window
    assert (window.start <= noon < window.end) == (today <= expires)


def test_window_is_frozen() -> None:
    """Nobody moves the ends of a window."""
    window = parse_window("day", "2026-11-29")
    with pytest.raises(AttributeError):
        window.end = window.start  # type: ignore[misc]


@given(periods, instants, st.integers(0, 30))
def test_last_accepted_date_holds_the_last_accepted_instant(period: str, when: datetime, late: int) -> None:
    """The last accepted date is that of the last instant before end + late_days."""
    window = window_at(period, when)
    last = last_accepted_date(window, late)
    assert last is not None
    assert _utc(last.year, last.month, last.day) < window.end + timedelta(days=late)
    assert _utc(last.year, last.month, last.day) + timedelta(days=1) >= window.end + timedelta(days=late)


def test_once_has_no_last_accepted_date() -> None:
    """The far end of a `once` window bounds no batch."""
    assert last_accepted_date(once_window(date(2027, 6, 30)), 3) is None


@pytest.mark.parametrize(
    ("period", "label", "late_days", "expected"),
    [
        ("day", "2026-11-29", 3, date(2026, 12, 2)),  # the example of design section 7
        ("day", "2026-11-29", 0, date(2026, 11, 29)),
        ("hour", "2026-11-29T13", 0, date(2026, 11, 29)),
        ("hour", "2026-11-29T23", 0, date(2026, 11, 29)),
        ("hour", "2026-11-29T13", 1, date(2026, 11, 30)),
        ("week", "2026-W48", 3, date(2026, 12, 2)),
        ("month", "2026-11", 3, date(2026, 12, 3)),
        ("month", "2026-12", 30, date(2027, 1, 8)),  # 40 days after sealing, not the 30th of January
    ],
)
def test_until_examples(period: str, label: str, late_days: int, expected: date) -> None:
    """A batch sealed on 2026-11-29 about one window has this `until`."""
    last = last_accepted_date(parse_window(period, label), late_days)
    assert batch_until([last], SEALED) == expected


def test_until_of_once_is_thirty_days_after_sealing() -> None:
    """A `once` report bounds its batch by the sealing day, since its window ends with the metric."""
    assert batch_until([None], SEALED) == date(2026, 12, 29)
    assert batch_until([None, SEALED], SEALED) == SEALED + timedelta(days=ONCE_UNTIL_DAYS)


@given(st.lists(st.none() | dates, min_size=1, max_size=5), dates)
def test_until_is_the_latest_and_capped(last_dates: list[date | None], sealed_on: date) -> None:
    """`until` covers every report of the batch unless the cap of 40 days cuts it; order does not matter."""
    until = batch_until(last_dates, sealed_on)
    cap = sealed_on + timedelta(days=MAX_UNTIL_DAYS)
    assert until <= cap
    assert until == batch_until(reversed(last_dates), sealed_on)
    for last in last_dates:
        assert until >= min(cap, last or sealed_on + timedelta(days=ONCE_UNTIL_DAYS))


@given(periods, instants, st.integers(1, 40))
def test_neighbours_follow_each_other_without_a_gap(period: str, when: datetime, count: int) -> None:
    """Each begins where the one before ends; the same run is found from either side."""
    last = window_at(period, when)
    run = windows_until(last, count)
    assert run[-1] == last
    assert all(before.end == after.start for before, after in pairwise(run))
    assert all(parse_window(period, window.label) == window for window in run)
    assert windows_from(run[0], len(run)) == run
    assert len(run) == count or run[0].start <= datetime(1900, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("period", "last", "first"),
    [
        ("hour", "2026-11-29T05", "2026-11-28T23"),
        ("day", "2026-03-02", "2026-02-24"),
        ("week", "2027-W02", "2026-W49"),  # 2026 has 53 weeks
        ("month", "2027-03", "2026-09"),
    ],
)
def test_seven_windows(period: str, last: str, first: str) -> None:
    """Over the ends of days, months and years."""
    run = windows_until(parse_window(period, last), 7)
    assert (len(run), run[0].label, run[-1].label) == (7, first, last)


def test_runs_end_where_labels_do() -> None:
    """There is no window before 1900 nor after 2299; one window is a run of one."""
    first, last = parse_window("month", "1900-02"), parse_window("month", "2299-11")
    assert [window.label for window in windows_until(first, 7)] == ["1900-01", "1900-02"]
    assert [window.label for window in windows_from(last, 7)] == ["2299-11", "2299-12"]
    assert windows_until(first, 1) == windows_from(first, 1) == [first]


def test_once_has_no_neighbours() -> None:
    """Asking for them is an error."""
    for run in (windows_until, windows_from):
        with pytest.raises(WindowError, match="once"):
            run(once_window(SEALED), 7)


@pytest.mark.parametrize(
    ("window", "late_days", "closes"),
    [
        (parse_window("day", "2026-11-29"), 3, _utc(2026, 12, 3)),
        (parse_window("hour", "2026-11-29T23"), 0, _utc(2026, 11, 30)),
        (parse_window("month", "2026-12"), 30, _utc(2027, 1, 31)),
        (once_window(date(2027, 6, 30)), 3, _utc(2027, 7, 4)),
    ],
)
def test_windows_close_after_their_late_days(window: Window, late_days: int, closes: datetime) -> None:
    """Counted from the end of the window, of a `once` window from the end of its last day."""
    assert closes_at(window, late_days) == closes
