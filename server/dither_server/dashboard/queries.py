"""What is chosen on a metric's page, read from its address; the same choices make a link that can be kept. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self
from urllib.parse import urlencode

from dither_protocol.storage import ROLLUPS
from dither_protocol.windows import ONCE
from dither_server.estimates_query import INTERVALS, PUBLISHED_LEVEL, Intervals
from dither_server.problems import Problem
from dither_server.selection import ALL_DIMENSIONS, interval, read_selection, refuse_unknown

RAW: Final = "raw"
NORM_SUB: Final = "norm_sub"
BY_SIZE: Final = "size"
AS_LISTED: Final = "listed"
SINGLE: Final = "1"

_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "values": (RAW, NORM_SUB),
    "order": (BY_SIZE, AS_LISTED),
    "over": (SINGLE, *map(str, ROLLUPS)),
}


_LEVELS: Final = (0.8, 0.9, PUBLISHED_LEVEL, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """The choices; the defaults are what a bare address shows.

    Attributes:
        window: label of the (last) window; empty for the latest.
        dimensions: text of the dimensions, ``*`` for the sum over all.
        values: which shares the charts draw: ``raw`` or ``norm_sub``.
        order: of the values: by ``size``, or as ``listed`` in the registry.
        over: over how many windows, ``1`` for a single one.
        level: of the intervals, in (0.5, 1).
        simultaneous: whether the intervals of an estimate cover all its values at once.
    """

    window: str = ""
    dimensions: str = ALL_DIMENSIONS
    values: str = RAW
    order: str = BY_SIZE
    over: str = SINGLE
    level: float = PUBLISHED_LEVEL
    simultaneous: bool = False

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Self:
        """Read the query of an address; an empty parameter is not there.

        Raises:
            Problem: query-invalid, naming the parameter.
        """
        refuse_unknown(query, ("window", "dimensions", *_CHOICES, *INTERVALS))
        given = {name: value for name, value in query.items() if value}
        for name, choices in _CHOICES.items():
            if given.get(name, choices[0]) not in choices:
                raise Problem("query-invalid", f"must be one of {', '.join(choices)}", name)
        window = given.get("window", "")
        if window not in ("", ONCE) and (len(window) > 16 or interval(window) is None):
            problem = "must be a window such as 2026-11-29, 2026-11-29T13, 2026-W48 or 2026-11"
            raise Problem("query-invalid", problem, "window")
        if "dimensions" in given:
            given["dimensions"] = (
                read_selection({"dimensions": given["dimensions"]}).dimensions or ALL_DIMENSIONS
            )
        intervals = Intervals.read(given)
        words = {name: value for name, value in given.items() if name not in INTERVALS}
        found = cls(**words, level=intervals.level, simultaneous=intervals.simultaneous)
        if found.over != SINGLE and found.dimensions != ALL_DIMENSIONS:
            raise Problem("query-invalid", "several windows are published over all dimensions only", "over")
        return found

    @property
    def norm_sub(self) -> bool:
        """Whether the charts draw the post-processed shares."""
        return self.values == NORM_SUB

    @property
    def rollup(self) -> int | None:
        """Over how many windows; None for single ones."""
        return None if self.over == SINGLE else int(self.over)

    @property
    def intervals(self) -> Intervals:
        """Which intervals are shown."""
        return Intervals(self.level, self.simultaneous)

    @property
    def levels(self) -> list[float]:
        """Levels to choose from, the chosen one among them."""
        return sorted({*_LEVELS, self.level})

    def link(self, path: str, **changes: Any) -> str:
        """The address ``path`` with these choices, some of them changed; defaults are left out."""
        changed, bare = replace(self, **changes), type(self)()
        names = self.__slots__
        given = {
            name: _word(getattr(changed, name))
            for name in names
            if getattr(changed, name) != getattr(bare, name)
        }
        return f"{path}?{urlencode(given)}" if given else path


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
