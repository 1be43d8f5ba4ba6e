"""What a server must do with a batch, from the rules of the protocol and not from the server's code."""

from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

from dither_protocol.errors import Rejection
from dither_protocol.registry import Metric
from dither_protocol.registry.metric import Dimensions
from dither_protocol.windows import CLOCK_SKEW, MAX_UNTIL_DAYS, Window, closes_at

MALFORMED: Final = "http:400"
TOO_LATE: Final = "http:422"


class Cell(NamedTuple):
    """Where a report is counted."""

    metric: str
    version: int
    window: str
    dimensions: Dimensions


class Fate(NamedTuple):
    """What becomes of a batch.

    Attributes:
        cells: of each accepted report; the last one is that of the last report.
        rejected: reason of each rejected one.
        refused: why the whole batch is refused, as the transport says it; empty where it is not.
    """

    cells: tuple[Cell, ...]
    rejected: tuple[str, ...] = ()
    refused: str = ""

    @property
    def reports(self) -> int:
        """Reports that the server accounts for: none of a batch that it refuses."""
        return 0 if self.refused else len(self.cells) + len(self.rejected)


def rejection(metric: Metric, window: Window, now: datetime) -> str:
    """Why a report about a window is rejected at a time; empty where it is accepted."""
    if metric.expired(window):
        return Rejection.METRIC_EXPIRED.value
    if now < window.start - CLOCK_SKEW:
        return Rejection.REPORT_TOO_EARLY.value
    if now >= closes_at(window, metric.late_days):
        return Rejection.REPORT_TOO_OLD.value
    return ""


def refusal(until: date, now: datetime) -> str:
    """Why a batch with this date is refused as a whole; empty where it is not."""
    if until < now.date() or until > (now + CLOCK_SKEW).date() + timedelta(days=MAX_UNTIL_DAYS):
        return TOO_LATE
    return ""
