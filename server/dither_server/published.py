"""Choosing among published estimates. Pure; the documents themselves are the estimator's and pass through unread."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, Self

import msgspec

from dither_protocol.errors import WindowError
from dither_protocol.storage import dimensions_text, parse_dimensions_text
from dither_protocol.windows import ONCE, PERIODS, Window, parse_window
from dither_server.problems import Problem
from dither_server.store_rules import PublishedVersion

_COMPANION: Final = "n|"
"""Begins the fields in which the worker keeps how many reports an estimate is from: for its own script alone."""
_ALL_DIMENSIONS: Final = "*"


@lru_cache(maxsize=4_096)
def _interval(label: str) -> Window | None:
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
    """Which estimates are asked for.

    Attributes:
        start: only windows that begin then or later; None for all.
        end: only windows that begin before; None for all.
        dimensions: only this text of dimensions, ``*`` for the sum over all; None for every one.
    """

    start: datetime | None = None
    end: datetime | None = None
    dimensions: str | None = None

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Self:
        """Read ``from``, ``to`` (labels of any period, both included) and ``dimensions`` (``os=linux`` or ``*``).

        Raises:
            Problem: query-invalid, naming the parameter.
        """
        first, last = _bound(query, "from"), _bound(query, "to")
        return cls(
            start=None if first is None else first.start,
            end=None if last is None else last.end,
            dimensions=_dimensions(query.get("dimensions")),
        )

    def takes(self, window: str, dimensions: str) -> bool:
        """Whether an estimate is asked for. A ``once`` window lies in every range."""
        if self.dimensions is not None and dimensions != self.dimensions:
            return False
        found = _interval(window)
        if found is None:
            return True
        return (self.start is None or self.start <= found.start) and (
            self.end is None or found.start < self.end
        )


def _bound(query: Mapping[str, str], name: str) -> Window | None:
    label = query.get(name)
    if label is None:
        return None
    found = _interval(label) if len(label) <= 16 else None
    if found is None:
        raise Problem(
            "query-invalid", "must be a window such as 2026-11-29, 2026-11-29T13, 2026-W48 or 2026-11", name
        )
    return found


def _dimensions(text: str | None) -> str | None:
    if text is None or text == _ALL_DIMENSIONS:
        return text
    try:
        return dimensions_text(tuple(sorted(parse_dimensions_text(text))))
    except ValueError:
        raise Problem("query-invalid", "must be such as os=linux,channel=beta, or *", "dimensions") from None


def version_documents(published: Iterable[PublishedVersion], selection: Selection) -> list[dict[str, object]]:
    """The chosen estimates of each version, by window and dimensions; versions side by side, never mixed."""
    return [
        {
            "version": version.version,
            "params": msgspec.json.decode(version.definition)["params"],
            "estimates": [msgspec.Raw(document) for document in _chosen(version.estimates, selection)],
        }
        for version in published
    ]


def _chosen(estimates: Mapping[str, bytes], selection: Selection) -> list[bytes]:
    """Labels of one period sort as text in the order of time."""
    fields = (field.partition("|") for field in estimates if not field.startswith(_COMPANION))
    wanted = sorted(
        (window, dimensions) for window, _, dimensions in fields if selection.takes(window, dimensions)
    )
    return [estimates[f"{window}|{dimensions}"] for window, dimensions in wanted]
