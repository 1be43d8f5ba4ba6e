"""From a planned batch to the bytes that a device sends, and what must become of each of its reports."""

import hashlib
import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

from dither_protocol.storage import Cell, partition_of
from dither_protocol.windows import CLOCK_SKEW, MAX_UNTIL_DAYS, batch_until, last_accepted_date
from dither_protocol.wire import BATCH_ID_BYTES, Report, encode_batch
from support.chaos.history import PlannedBatch, PlannedReport, Spoil
from support.chaos.plan import PARTITIONS
from support.chaos.questions import EVER, EVER_BUCKETS, base_time, metric, window_label
from support.wire_documents import report_document

NOWHERE: Final = ("_unknown", "_unknown")


@dataclass(frozen=True)
class SealedReport:
    """One report as it goes over the wire.

    Attributes:
        document: its JSON value.
        cell: name of the cell that it belongs to.
        outcome: (metric, window) of that cell.
        bucket: its counter there.
        opens: from when its window takes reports, by the server's clock.
        closes: from when it takes none any more.
        sound: whether the server must accept it between the two; it must never accept the others.
    """

    document: Any
    cell: str
    outcome: tuple[str, str]
    bucket: int
    opens: datetime
    closes: datetime
    sound: bool

    def accepted_at(self, now: datetime) -> bool:
        """Whether a server must accept it at that time; otherwise it must refuse it."""
        return self.sound and self.opens <= now < self.closes


@dataclass(frozen=True)
class SealedBatch:
    """One batch: the same bytes at every try."""

    batch_id: bytes
    partition: int
    until: date
    body: bytes
    reports: tuple[SealedReport, ...]
    plan: PlannedBatch

    def taken_at(self, now: datetime) -> bool:
        """Whether a server must take the batch as a whole at that time."""
        latest = (now + CLOCK_SKEW).date() + timedelta(days=MAX_UNTIL_DAYS)
        return now.date() <= self.until <= latest


def seal(plan: PlannedBatch, slot: int, name: str) -> SealedBatch:
    """A batch in its place of the run: what is unique in a run depends on the place.

    Args:
        plan: the batch.
        slot: place of the history in the run.
        name: of the batch, unique in the run; it makes the id.
    """
    base = base_time(slot)
    reports = tuple(_report(report, base, slot) for report in plan.reports)
    today = (base + timedelta(seconds=plan.skew_s)).date()
    until = today if plan.hasty else max(today, batch_until(map(_last_date, reports), today))
    batch_id = _batch_id(name, plan.partition)
    body = encode_batch(batch_id, until, [json.dumps(report.document) for report in reports])
    return SealedBatch(batch_id, plan.partition, until, body, reports, plan)


def _last_date(report: SealedReport) -> date | None:
    found = metric(report.outcome[0])
    return last_accepted_date(found.parse_window(report.outcome[1]), found.late_days)


def _batch_id(name: str, partition: int) -> bytes:
    """The first id by this name that falls into the partition."""
    attempt = 0
    while True:
        batch_id = hashlib.sha256(f"{name} {attempt}".encode()).digest()[:BATCH_ID_BYTES]
        if partition_of(batch_id, PARTITIONS) == partition:
            return batch_id
        attempt += 1


def _report(plan: PlannedReport, base: datetime, slot: int) -> SealedReport:
    found = metric(plan.metric)
    window = found.parse_window(window_label(plan.metric, base, plan.step))
    bucket = plan.bucket + (slot * EVER_BUCKETS if plan.metric == EVER else 0)
    sound = Report(found.name, found.version, found.params_hash, window.label, dict(plan.dimensions), bucket)
    return SealedReport(
        document=_spoilt(report_document(sound), plan.spoil),
        cell=Cell(found.name, found.version, window.label, tuple(sorted(plan.dimensions))).name,
        outcome=(found.name, window.label),
        bucket=bucket,
        opens=window.start - CLOCK_SKEW,
        closes=window.end + timedelta(days=found.late_days),
        sound=plan.spoil is Spoil.NOTHING,
    )


def _spoilt(document: dict[str, Any], spoil: Spoil) -> Any:
    if spoil is Spoil.SHAPE:
        return [document]
    changes: dict[Spoil, dict[str, Any]] = {
        Spoil.NOTHING: {},
        Spoil.METRIC: {"metric": "unheard_of"},
        Spoil.PARAMS: {"params": "00000000"},
        Spoil.DIMENSION: {"dimensions": dict.fromkeys(document["dimensions"], "amiga")},
        Spoil.WINDOW: {"window": "2101-W99"},
        Spoil.PAYLOAD: {"data": metric(document["metric"]).mechanism.d},
    }
    return document | changes[spoil]
