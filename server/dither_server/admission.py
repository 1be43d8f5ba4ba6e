"""What becomes of a batch: which reports are accepted into which cell, and why the others are not.

Pure: no HTTP, no store, no clock. The same batch at the same time always gets the same answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final

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
from dither_server.places import Place

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
    tally = _Tally()
    for index, document in enumerate(envelope.reports):
        judge = _Judge(catalogue, now)
        try:
            place, packed = judge.accept(document)
        except ReportError as error:
            tally.refuse(index, error, judge.bucket, judge.metric)
        else:
            tally.accept(place, packed)
    return tally.admission(envelope)


class _Tally:
    """The verdict on a batch while it is being found."""

    __slots__ = ("_accepted", "_outcomes", "_refusals", "_refused")

    def __init__(self) -> None:
        self._accepted: dict[str, tuple[Place, list[bytes]]] = {}
        self._outcomes: dict[Bucket, dict[str, int]] = {}
        self._refusals: list[Refusal] = []
        self._refused: dict[Refused, int] = {}

    def accept(self, place: Place, packed: bytes) -> None:
        """A report goes to its cell."""
        found = self._accepted.get(place.cell)
        if found is None:
            found = self._accepted[place.cell] = (place, [])
        found[1].append(packed)

    def refuse(self, index: int, error: ReportError, bucket: Bucket, metric: Metric | None) -> None:
        """A report goes nowhere; it is accounted for in a bucket, and by its version where that is a known one."""
        self._refusals.append(Refusal(index, error.rejection, str(error)))
        self._count(bucket, REJECTED + error.rejection, 1)
        if metric is not None:
            known = (metric.name, metric.version, error.rejection)
            self._refused[known] = self._refused.get(known, 0) + 1

    def _count(self, bucket: Bucket, outcome: str, reports: int) -> None:
        counts = self._outcomes.setdefault(bucket, {RECEIVED: 0})
        counts[RECEIVED] += reports
        counts[outcome] = counts.get(outcome, 0) + reports

    def admission(self, envelope: Envelope) -> Admission:
        """The verdict, once each report was accepted or refused."""
        cells: list[tuple[str, list[bytes]]] = []
        for cell, (place, reports) in self._accepted.items():
            self._count(_bucket(place), ACCEPTED, len(reports))
            cells.append((cell, reports))
        return Admission(
            envelope.batch_id,
            envelope.until,
            len(envelope.reports) - len(self._refusals),
            tuple(self._refusals),
            encode_entry(cells) if cells else b"",
            self._outcomes,
            self._refused,
        )


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

    def accept(self, document: Any) -> tuple[Place, bytes]:
        """Where a report goes, and its packed data.

        Raises:
            ReportError: the first rule that it breaks, in the order of the list in the README.
        """
        place = self._catalogue.places.find(document, self._now) or self._place(document)
        try:
            return place, place.metric.mechanism.pack(document["data"])
        except MechanismError as error:
            self.bucket, self.metric = _bucket(place), place.metric
            detail = str(error).removeprefix("data ")
            raise ReportError(Rejection.PAYLOAD_INVALID, "data", detail) from None

    def _place(self, document: object) -> Place:
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
        span = self._in_time(span)
        cell = f"{metric.name}:{metric.version}:{report.window}:{dimensions}"
        place = Place(metric, report.window, cell, span.opens, span.closes)
        self._catalogue.places.keep(report, place)
        return place

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

    def _in_time(self, span: Span | None) -> Span:
        if span is None:
            raise ReportError(Rejection.WINDOW_INVALID, "window", "is no label of the metric's period")
        if self._now < span.opens:
            raise ReportError(Rejection.REPORT_TOO_EARLY, "window", "has not begun")
        if self._now >= span.closes:
            raise ReportError(Rejection.REPORT_TOO_OLD, "window", "is closed")
        return span


def _bucket(place: Place) -> Bucket:
    return place.metric.name, place.window
