"""Which published estimates are asked for, read from a query. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final

from dither_protocol.errors import WindowError
from dither_protocol.storage import ROLLUPS, dimensions_text, parse_dimensions_text
from dither_protocol.windows import ONCE, PERIODS, Window, once_window, parse_window
from dither_server.problems import Problem

ONCE_SCORE: Final = int(once_window(date(2000, 1, 1)).start.timestamp())
"""By which a ``once`` window stands in the index of published windows."""

ALL_DIMENSIONS: Final = "*"
PARAMETERS: Final = ("from", "to", "dimensions", "rollup")
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_LONGEST_BOUND: Final = 40
_PLAIN_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}", re.ASCII)


@lru_cache(maxsize=4_096)
def interval(label: str) -> Window | None:
    """The window of a label of any period but ``once``; None where it is no label."""
    for period in PERIODS:
        if period != ONCE:
            try:
                return parse_window(period, label)
            except WindowError:
                continue
    return None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which estimates of a metric are asked for.

    Attributes:
        start: only windows that begin then or later; None for all.
        end: only windows that begin before; None for all.
        dimensions: only this text of dimensions, ``*`` for the sum over all; None for every one.
        rollup: those over so many windows, chosen by the last one; None for those of single windows.
        after: only windows that stand after the one of this label in their order (`position`); None for all.
        limit: the first so many windows; None for all.
    """

    start: datetime | None = None
    end: datetime | None = None
    dimensions: str | None = None
    rollup: int | None = None
    after: str | None = None
    limit: int | None = None

    @property
    def scores(self) -> tuple[str, str]:
        """The range in the index of windows by their start, as the store's ZRANGEBYSCORE takes it."""
        lows = [] if self.start is None else [math.ceil(self.start.timestamp())]
        if self.after is not None:
            lows.append(position(self.after)[0])
        high = "+inf" if self.end is None else f"({math.ceil(self.end.timestamp())}"
        return str(max(lows)) if lows else "-inf", high

    def takes(self, window: str) -> bool:
        """Whether a window lies in the range. A ``once`` window lies in every range."""
        found = interval(window)
        if found is None:
            return True
        return (self.start is None or self.start <= found.start) and (
            self.end is None or found.start < self.end
        )


def position(label: str) -> tuple[int, str]:
    """Where a window stands among those of a metric: by its start, Unix seconds, then by its label."""
    found = interval(label)
    return (ONCE_SCORE if found is None else int(found.start.timestamp())), label


def read_selection(query: Mapping[str, str]) -> Selection:
    """Read ``from``, ``to``, ``dimensions`` and ``rollup`` of a query.

    ``from`` and ``to`` are labels of windows of any period, both included, or instants by RFC 3339: then they bound the
    starts of the windows, ``from`` included and ``to`` not. ``dimensions`` is such as ``os=linux``, or ``*`` for the
    sum over all. ``rollup`` is a number of windows; then the range is of the last of them, and there are estimates
    over all dimensions alone.

    Raises:
        Problem: query-invalid, naming the parameter: it is unknown or not understood, a range that is reversed, or
            dimensions of a rollup.
    """
    refuse_unknown(query, PARAMETERS)
    first, last = _bound(query, "from"), _bound(query, "to")
    start, end = first and first[0], last and last[1]
    if start is not None and end is not None and start >= end:
        raise Problem("query-invalid", "must be before the end of 'to'", "from")
    dimensions, rollup = _dimensions(query.get("dimensions")), _rollup(query.get("rollup"))
    if rollup is not None and dimensions not in (None, ALL_DIMENSIONS):
        raise Problem("query-invalid", "of a rollup can only be *", "dimensions")
    return Selection(
        start=start,
        end=end,
        dimensions=dimensions,
        rollup=rollup,
    )


def refuse_unknown(query: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse a query with another parameter than the ``known``.

    Raises:
        Problem: query-invalid, naming the parameter where its name is a plain word.
    """
    for name in query:
        if name not in known:
            field = name if _PLAIN_NAME.fullmatch(name) else "query"
            there_are = f"known are {', '.join(known)}" if known else "there are none"
            raise Problem("query-invalid", f"is not a parameter here; {there_are}", field)


def _bound(query: Mapping[str, str], name: str) -> tuple[datetime, datetime] | None:
    """Start and end of what a bound names; those of an instant are the same."""
    text = query.get(name)
    if text is None:
        return None
    if len(text) <= _LONGEST_BOUND:
        found = interval(text)
        if found is not None:
            return found.start, found.end
        instant = _instant(text)
        if instant is not None:
            return instant, instant
    raise Problem(
        "query-invalid",
        "must be a window such as 2026-11-29, 2026-11-29T13, 2026-W48 or 2026-11, or 2026-11-29T13:00:00Z",
        name,
    )


def _instant(text: str) -> datetime | None:
    """A time by RFC 3339, in UTC; None where it is none."""
    if not _INSTANT.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _rollup(text: str | None) -> int | None:
    if text is None:
        return None
    found = {str(windows): windows for windows in ROLLUPS}.get(text)
    if found is None:
        raise Problem("query-invalid", f"must be one of {', '.join(map(str, ROLLUPS))}", "rollup")
    return found


def _dimensions(text: str | None) -> str | None:
    if text is None or text == ALL_DIMENSIONS:
        return text
    try:
        return dimensions_text(tuple(sorted(parse_dimensions_text(text))))
    except ValueError:
        raise Problem("query-invalid", "must be such as os=linux,channel=beta, or *", "dimensions") from None
