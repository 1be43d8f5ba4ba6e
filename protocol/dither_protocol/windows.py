"""Windows: the half-open UTC intervals that reports are about.

Labels (design section 7): hour ``2026-11-29T13``, day ``2026-11-29``, ISO week ``2026-W48``, month
``2026-11``, and ``once``. A label names exactly one interval of its period; a label of another period is
refused.
"""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from dither_protocol.errors import WindowError

PERIODS: Final = ("hour", "day", "week", "month", "once")
ONCE: Final = "once"

CLOCK_SKEW: Final = timedelta(minutes=10)
"""How far a device's clock may run ahead of the server's (design section 7)."""

MAX_UNTIL_DAYS: Final = 40
ONCE_UNTIL_DAYS: Final = 30

# The open ends of a `once` window. Far enough for every registry, and safe to add days to.
_BEGINNING: Final = datetime(2000, 1, 1, tzinfo=UTC)
_LABEL_SHAPES: Final[dict[str, re.Pattern[str]]] = {
    "hour": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}", re.ASCII),
    "day": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII),
    "week": re.compile(r"[0-9]{4}-W[0-9]{2}", re.ASCII),
    "month": re.compile(r"[0-9]{4}-[0-9]{2}", re.ASCII),
}
# Far from datetime's own limits, wide enough for a device whose clock starts at 1970. Both are Mondays: no week
# lies across them.
_FIRST: Final = datetime(1900, 1, 1, tzinfo=UTC)
_AFTER: Final = datetime(2300, 1, 1, tzinfo=UTC)


class Window(NamedTuple):
    """A half-open interval ``[start, end)``, both aware datetimes in UTC.

    Attributes:
        period: hour, day, week, month or once.
        label: the text on the wire.
        start: first instant inside.
        end: first instant outside.
    """

    period: str
    label: str
    start: datetime
    end: datetime


def _next_month(start: datetime) -> datetime:
    return (start + timedelta(days=32)).replace(day=1)


def _start_of(period: str, when: datetime) -> datetime:
    """The start of the period around ``when``, which is in UTC."""
    if period == "hour":
        return datetime(when.year, when.month, when.day, when.hour, tzinfo=UTC)
    midnight = datetime(when.year, when.month, when.day, tzinfo=UTC)
    if period == "day":
        return midnight
    if period == "week":
        return midnight - timedelta(days=when.weekday())
    return midnight.replace(day=1)


_LENGTHS: Final[dict[str, timedelta]] = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
}


def _read(period: str, label: str) -> datetime:
    """The start that a label of the right shape names; ValueError where the calendar has no such time."""
    year = int(label[:4])
    if period == "week":
        monday = date.fromisocalendar(year, int(label[6:]), 1)
        return datetime(monday.year, monday.month, monday.day, tzinfo=UTC)
    day = 1 if period == "month" else int(label[8:10])
    hour = int(label[11:]) if period == "hour" else 0
    return datetime(year, int(label[5:7]), day, hour, tzinfo=UTC)


_LABEL_LENGTHS: Final = {"hour": 13, "day": 10, "month": 7}  # of ISO 8601


def _label(period: str, start: datetime) -> str:
    if period == "week":
        year, week, _ = start.isocalendar()
        return f"{year:04d}-W{week:02d}"
    return start.isoformat()[: _LABEL_LENGTHS[period]]


def _window(period: str, start: datetime) -> Window:
    end = _next_month(start) if period == "month" else start + _LENGTHS[period]
    return Window(period, _label(period, start), start, end)


def once_window(expires: date) -> Window:
    """The window of a ``once`` metric: open until the end of the day ``expires``."""
    end = datetime(expires.year, expires.month, expires.day, tzinfo=UTC) + timedelta(days=1)
    return Window(ONCE, ONCE, _BEGINNING, end)


def window_at(period: str, when: datetime, expires: date | None = None) -> Window:
    """The window of ``period`` that contains ``when``.

    Args:
        period: one of PERIODS.
        when: an aware datetime, in any zone.
        expires: last day of the metric; needed by ``once`` alone.

    Raises:
        WindowError: unknown period, naive datetime, a year outside 1900 to 2299, or ``once`` without
            ``expires``.
    """
    if period not in PERIODS:
        raise WindowError("the period is not one of " + ", ".join(PERIODS))
    if when.utcoffset() is None:
        raise WindowError("a window needs a time with its zone")
    if not _FIRST <= when < _AFTER:
        raise WindowError("the time is outside the years 1900 to 2299")
    if period == ONCE:
        if expires is None:
            raise WindowError("a 'once' metric needs a date 'expires'")
        return once_window(expires)
    return _window(period, _start_of(period, when.astimezone(UTC)))


def parse_window(period: str, label: str, expires: date | None = None) -> Window:
    """Read a label strictly: ``parse_window(p, w.label).label == w.label`` for every window.

    Raises:
        WindowError: the label is not one of this period (the label itself is not repeated).
    """
    if period == ONCE:
        if label != ONCE:
            raise WindowError("the window of a 'once' metric is 'once'")
        return window_at(ONCE, _BEGINNING, expires)
    if period not in PERIODS:
        raise WindowError("the period is not one of " + ", ".join(PERIODS))
    problem = f"the label is not one of period '{period}'"
    if not _LABEL_SHAPES[period].fullmatch(label) or not _FIRST.year <= int(label[:4]) < _AFTER.year:
        raise WindowError(problem)
    try:
        start = _read(period, label)
    except ValueError:
        raise WindowError(problem) from None
    return _window(period, start)


def windows_until(last: Window, count: int) -> list[Window]:
    """The ``count`` consecutive windows of which ``last`` is the latest, in order; fewer where the labels begin.

    Raises:
        WindowError: a `once` window has no neighbours.
    """
    found = [last]
    while len(found) < count and found[-1].start > _FIRST:
        found.append(_neighbour(last.period, found[-1].start - timedelta(microseconds=1)))
    return found[::-1]


def windows_from(first: Window, count: int) -> list[Window]:
    """The ``count`` consecutive windows of which ``first`` is the earliest, in order; fewer where the labels end.

    Raises:
        WindowError: a `once` window has no neighbours.
    """
    found = [first]
    while len(found) < count and found[-1].end < _AFTER:
        found.append(_neighbour(first.period, found[-1].end))
    return found


def _neighbour(period: str, when: datetime) -> Window:
    if period == ONCE:
        raise WindowError("a 'once' window has no neighbours")
    return _window(period, _start_of(period, when))


def closes_at(window: Window, late_days: int) -> datetime:
    """The first instant at which reports about ``window`` are no longer accepted: its end plus the late days.

    A `once` window ends with its metric's last day.
    """
    return window.end + timedelta(days=late_days)


def last_accepted_date(window: Window, late_days: int) -> date | None:
    """The latest UTC date on which a report about ``window`` is still accepted; None for `once`.

    A `once` window stays open as long as its metric, which is no help in bounding how long a batch id has to
    be remembered: `batch_until` gives such reports their own date.
    """
    if window.period == ONCE:
        return None
    return (closes_at(window, late_days) - timedelta(microseconds=1)).date()


def batch_until(last_dates: Iterable[date | None], sealed_on: date) -> date:
    """The date ``until`` of a batch (design section 7).

    Args:
        last_dates: `last_accepted_date` of every report in the batch, None for a report about `once`;
            not empty.
        sealed_on: today's UTC date on the device.

    Returns:
        The latest date on which any of the reports would be accepted, at most 40 days ahead; for ``once``
        the sealing day + 30.
    """
    once = sealed_on + timedelta(days=ONCE_UNTIL_DAYS)
    latest = max(once if last is None else last for last in last_dates)
    return min(latest, sealed_on + timedelta(days=MAX_UNTIL_DAYS))
