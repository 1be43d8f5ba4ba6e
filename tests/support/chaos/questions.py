"""What the chaos test asks: identity mechanisms, so that each report of a run has a counter of its own.

The mechanism is `grr` with many categories, and the harness chooses the index that a device would have randomised:
one index of one cell for one report of the whole run. So a counter above one is a report counted twice, and a counter
where no report went is damage.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from dither_protocol.registry import Metric, Registry, parse_registry

BASE: Final = datetime(
    2101, 1, 3, 12, 30, tzinfo=UTC
)  # a Monday, far ahead: no store forgets an id meanwhile
SLOT: Final = timedelta(days=28)
"""Histories of a run stand so far apart in simulated time that no two share a window; whole weeks, so that the
calendar looks the same from each."""
SLOTS: Final = 512
"""Histories of one run of a fleet: as many as the shared cell has counters for."""

EVER: Final = "ever"
"""The one question whose cell all histories of a run share."""
EVER_BUCKETS: Final = 8
"""Counters of `EVER` that one history may use."""


@dataclass(frozen=True)
class Question:
    """One metric of the chaos test.

    Attributes:
        period: of its windows.
        late_days: how long after its end a window takes reports.
        buckets: number of categories, so of reports that one cell can tell apart.
        dimensions: lists of values by name.
        steps: windows that devices report about, counted from the one at the base time, with weights.
        min_reports: below it the estimator publishes no estimate; large where an estimate would be a large document.
    """

    period: str
    late_days: int
    buckets: int
    dimensions: Mapping[str, tuple[str, ...]]
    steps: Mapping[int, int]
    min_reports: int = 1_000_000


QUESTIONS: Final[dict[str, Question]] = {
    "hourly": Question("hour", 0, 48, {}, {-2: 1, -1: 2, 0: 8, 1: 2}, min_reports=1),
    "daily": Question("day", 2, 64, {"os": ("linux", "macos", "windows")}, {-4: 1, -2: 2, -1: 4, 0: 8, 1: 1}),
    "weekly": Question(
        "week", 3, 40, {"os": ("linux", "macos"), "channel": ("beta", "stable")}, {-2: 1, -1: 4, 0: 8, 1: 1}
    ),
    "wide": Question("day", 1, 1_000, {}, {-3: 1, -1: 4, 0: 8, 1: 1}),
    EVER: Question("once", 0, 4_096, {}, {0: 1}),
}
_LENGTHS: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


def _table(name: str, question: Question) -> str:
    dimensions = ", ".join(
        f"{key} = [{', '.join(map(repr, values))}]" for key, values in question.dimensions.items()
    )
    lines = [
        f"[metrics.{name}]",
        "version = 1",
        'type = "categorical"',
        'description = "One bucket for each report"',
        f"categories = [{', '.join(repr(f'b{bucket}') for bucket in range(question.buckets))}]",
        "epsilon = 1.0",
        'mechanism = "grr"',
        f'period = "{question.period}"',
        f"late_days = {question.late_days}",
        f"min_reports = {question.min_reports}",
        f"dimensions = {{ {dimensions} }}",
    ]
    return "\n".join([*lines, "expires = 2199-12-31" if question.period == "once" else ""])


REGISTRY: Final = "\n".join(
    ["schema = 1", 'project = "chaos"', *(_table(name, question) for name, question in QUESTIONS.items())]
)


@cache
def registry() -> Registry:
    """The registry of the chaos test."""
    return parse_registry(REGISTRY)


def metric(name: str) -> Metric:
    """One of its metrics."""
    return registry().metric(name)


def base_time(slot: int) -> datetime:
    """The server's time when the history in this place of a run begins."""
    return BASE + slot * SLOT


def window_label(name: str, base: datetime, step: int) -> str:
    """The window of a question so many windows after the one at ``base``."""
    length = _LENGTHS.get(QUESTIONS[name].period, timedelta())
    return metric(name).window_at(base + step * length).label
