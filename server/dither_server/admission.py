"""What becomes of a batch: which reports are accepted into which cell, and why the others are not.

Pure: no HTTP, no store, no clock. The same batch at the same time always gets the same answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final

from dither_protocol.errors import (
    BatchError,
    BatchProblem,
    DimensionError,
    MechanismError,
    Rejection,
    ReportError,
)
from dither_protocol.registry import Metric
from dither_protocol.storage import UNKNOWN, encode_entry
from dither_protocol.windows import CLOCK_SKEW, MAX_UNTIL_DAYS
from dither_protocol.wire import Envelope, Report, parse_report
from dither_server.catalogue import Catalogue, Span

RECEIVED: Final = "received"
ACCEPTED: Final = "accepted"
REJECTED: Final = "rejected:"
"""Fields of an outcome hash; after ``rejected:`` comes the word of the `Rejection`."""

Bucket = tuple[str, str]
"""(metric, window) that a report is accounted under; `NOWHERE` where its own are not acceptable."""

NOWHERE: Final[Bucket] = (UNKNOWN, UNKNOWN)

Refused = tuple[str, int, Rejection]
"""(metric, version, reason) of a refused report, where the catalogue has that version: a closed set."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One report that is not accepted.

    Attributes:
        index: its place in the batch.
        rejection: why, as a stable word.
        detail: why, for people; names the key and its rule, never the value.
    """

    index: int
    rejection: Rejection
    detail: str


@dataclass(frozen=True, slots=True)
class Admission:
    """The verdict on one batch.

    Attributes:
        batch_id: the batch's 16 bytes.
        until: last day on which it is accepted, and its id remembered.
        accepted: number of accepted reports.
        refusals: the others, in the order of the batch.
        entry: the accepted reports as a stream entry; empty where there is none.
        outcomes: what to add to each bucket's counts of received, accepted and rejected reports.
        refused: numbers of refused reports of known versions. They are in ``outcomes``, too.
    """

    batch_id: bytes
    until: date
    accepted: int
    refusals: tuple[Refusal, ...]
    entry: bytes
    outcomes: Mapping[Bucket, Mapping[str, int]]
    refused: Mapping[Refused, int] = field(default_factory=dict)

    @property
    def reports(self) -> int:
        """Number of reports, accepted or not."""
        return self.accepted + len(self.refusals)


def check_until(envelope: Envelope, now: datetime) -> None:
    """Refuse a batch whose id could be forgotten already, or would have to be remembered for too long.

    Raises:
        BatchError: UNTIL_PAST or UNTIL_TOO_FAR.
    """
    if envelope.until < now.date():
        raise BatchError(BatchProblem.UNTIL_PAST, "until", "this day is over in UTC")
    if envelope.until > (now + CLOCK_SKEW).date() + timedelta(days=MAX_UNTIL_DAYS):
        raise BatchError(BatchProblem.UNTIL_TOO_FAR, "until", f"is more than {MAX_UNTIL_DAYS} days ahead")


def admit(catalogue: Catalogue, envelope: Envelope, now: datetime) -> Admission:
    """Judge every report of a batch by itself.

    Args:
        catalogue: the metrics that are accepted.
        envelope: a batch that `dither_protocol.wire.parse_envelope` has read.
        now: the server's time, aware, in UTC.

    Raises:
        BatchError: the batch as a whole is too late or lasts too long.
    """
    check_until(envelope, now)
    refusals: list[Refusal] = []
    cells: dict[str, list[bytes]] = {}
    outcomes: dict[Bucket, dict[str, int]] = {}
    refused: dict[Refused, int] = {}
    for index, document in enumerate(envelope.reports):
        judge = _Judge(catalogue, now)
        try:
            cell, packed = judge.accept(document)
        except ReportError as error:
            refusals.append(Refusal(index, error.rejection, str(error)))
            outcome = REJECTED + error.rejection
            if judge.metric is not None:
                known = (judge.metric.name, judge.metric.version, error.rejection)
                refused[known] = refused.get(known, 0) + 1
        else:
            cells.setdefault(cell, []).append(packed)
            outcome = ACCEPTED
        counts = outcomes.setdefault(judge.bucket, {RECEIVED: 0})
        counts[RECEIVED] += 1
        counts[outcome] = counts.get(outcome, 0) + 1
    entry = encode_entry(cells.items()) if cells else b""
    accepted = len(envelope.reports) - len(refusals)
    return Admission(envelope.batch_id, envelope.until, accepted, tuple(refusals), entry, outcomes, refused)


class _Judge:
    """Looks at one report.

    ``bucket`` says where to account for it, accepted or not; ``metric`` is its version, where that is a known one.
    """

    __slots__ = ("_catalogue", "_now", "bucket", "metric")

    def __init__(self, catalogue: Catalogue, now: datetime) -> None:
        self._catalogue = catalogue
        self._now = now
        self.bucket = NOWHERE
        self.metric: Metric | None = None

    def accept(self, document: object) -> tuple[str, bytes]:
        """The cell of a report and its packed data.

        Raises:
            ReportError: the first rule that it breaks, in the order of the list in the README.
        """
        report = parse_report(document)
        metric = self.metric = self._metric(report)
        span = self._catalogue.span(metric, report.window)
        if span is not None and span.expired:
            raise ReportError(Rejection.METRIC_EXPIRED, "window", "begins after the last day of the metric")
        if span is not None and span.opens <= self._now < span.closes:
            self.bucket = (metric.name, report.window)
        if report.params != metric.params_hash:
            raise ReportError(Rejection.PARAMS_MISMATCH, "params", "is not the hash of this version")
        dimensions = self._dimensions(metric, report)
        self._check_time(span)
        return f"{metric.name}:{metric.version}:{report.window}:{dimensions}", _pack(metric, report)

    def _metric(self, report: Report) -> Metric:
        versions = self._catalogue.versions(report.metric)
        if not versions:
            raise ReportError(Rejection.UNKNOWN_METRIC, "metric", "is not in the registry")
        metric = versions.get(report.version)
        if metric is None:
            raise ReportError(Rejection.UNKNOWN_VERSION, "version", "is none that the registry has had")
        return metric

    def _dimensions(self, metric: Metric, report: Report) -> str:
        try:
            return self._catalogue.dimensions(metric, report.dimensions)
        except DimensionError as error:
            raise ReportError(Rejection.DIMENSIONS_INVALID, "dimensions", str(error)) from None

    def _check_time(self, span: Span | None) -> None:
        if span is None:
            raise ReportError(Rejection.WINDOW_INVALID, "window", "is no label of the metric's period")
        if self._now < span.opens:
            raise ReportError(Rejection.REPORT_TOO_EARLY, "window", "has not begun")
        if self._now >= span.closes:
            raise ReportError(Rejection.REPORT_TOO_OLD, "window", "is closed")


def _pack(metric: Metric, report: Report) -> bytes:
    try:
        return metric.mechanism.pack(report.data)
    except MechanismError as error:
        detail = str(error).removeprefix("data ")
        raise ReportError(Rejection.PAYLOAD_INVALID, "data", detail) from None
