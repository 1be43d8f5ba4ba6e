"""What a query for estimates asks for: which windows, a page of them, and which intervals. Pure."""

import hashlib
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from dither_protocol.windows import ONCE
from dither_server.problems import Problem
from dither_server.selection import PARAMETERS as RANGE
from dither_server.selection import Selection, interval, read_selection, refuse_unknown

PUBLISHED_LEVEL: Final = 0.95
"""Level of the intervals that the estimator publishes."""

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1_000
"""Windows of one page."""

MAX_RESTATED_LIMIT: Final = 100
"""The same where intervals are computed anew."""

PAGE: Final = ("limit", "cursor")
INTERVALS: Final = ("level", "simultaneous")

_LEVEL: Final = re.compile(r"0?\.[0-9]{1,9}", re.ASCII)
_DIGEST_BYTES: Final = 9
_LONGEST_CURSOR: Final = 64


@dataclass(frozen=True, slots=True)
class Intervals:
    """Which intervals are asked for.

    Attributes:
        level: of them, in (0.5, 1).
        simultaneous: whether those of an estimate cover all its values at once.
    """

    level: float = PUBLISHED_LEVEL
    simultaneous: bool = False

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Self:
        """Read ``level`` and ``simultaneous`` of a query; either may be left out.

        Raises:
            Problem: query-invalid, naming the parameter.
        """
        return cls(_level(query.get("level")), _flag(query, "simultaneous"))

    @property
    def as_published(self) -> bool:
        """Whether they are those that the estimator published."""
        return self.level == PUBLISHED_LEVEL and not self.simultaneous


@dataclass(frozen=True, slots=True)
class EstimatesQuery:
    """A query for estimates of one metric.

    Attributes:
        selection: which ones, the page among them.
        intervals: which intervals they come with.
        digest: of all that but the page; a cursor belongs to the queries of one digest.
    """

    selection: Selection
    intervals: Intervals
    digest: bytes

    @classmethod
    def read(cls, name: str, query: Mapping[str, str], *, intervals: bool = True) -> Self:
        """Read the query of an address.

        Args:
            name: of the metric.
            query: its parameters.
            intervals: whether ``level``, ``simultaneous``, ``dimensions`` and ``rollup`` are parameters.

        Raises:
            Problem: query-invalid, naming the parameter.
        """
        wanted = RANGE if intervals else ("from", "to")
        refuse_unknown(query, (*wanted, *(INTERVALS if intervals else ()), *PAGE))
        selection = read_selection({key: query[key] for key in RANGE if key in query})
        chosen = Intervals.read(query)
        estimates = (name, *selection.scores, selection.dimensions, selection.rollup)
        asked = [*estimates, chosen.level, chosen.simultaneous]
        digest = hashlib.sha256(json.dumps(asked).encode()).digest()[:_DIGEST_BYTES]
        limit = min(_limit(query.get("limit")), MAX_LIMIT if chosen.as_published else MAX_RESTATED_LIMIT)
        selection = replace(selection, limit=limit, after=_after(query.get("cursor"), digest))
        return cls(selection, chosen, digest)

    def cursor(self, last: str | None) -> str | None:
        """What asks for the page after the window ``last``; None after the last page."""
        return None if last is None else urlsafe_b64encode(self.digest + last.encode()).decode().rstrip("=")


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= MAX_LIMIT):
        raise Problem("query-invalid", f"must be a whole number from 1 to {MAX_LIMIT}", "limit")
    return int(text)


def _level(text: str | None) -> float:
    if text is None:
        return PUBLISHED_LEVEL
    if not _LEVEL.fullmatch(text) or not 0.5 < float(text) < 1:
        raise Problem("query-invalid", "must be a number between 0.5 and 1, both excluded", "level")
    return float(text)


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise Problem("query-invalid", "must be true or false", name)
    return text == "true"


def _after(text: str | None, digest: bytes) -> str | None:
    if text is None:
        return None
    label = _label(text, digest)
    if label is None:
        raise Problem("query-invalid", "is no cursor of this query", "cursor")
    return label


def _label(text: str, digest: bytes) -> str | None:
    if len(text) > _LONGEST_CURSOR:
        return None
    try:
        found = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        label = found[len(digest) :].decode("ascii")
    except (Base64Error, UnicodeError):
        return None
    if found[: len(digest)] != digest or not (label == ONCE or interval(label)):
        return None
    return label
