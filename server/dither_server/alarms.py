"""What an operator should look at now. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from dither_protocol.registry import Metric
from dither_protocol.storage import UNKNOWN
from dither_protocol.windows import ONCE
from dither_server.calibration import calibration_of
from dither_server.conservation import Ledger, Terms
from dither_server.counting_state import CountingState
from dither_server.documents import Estimate
from dither_server.formats import duration, percent, plural, whole

REJECTED_SHARE: Final = 0.05
"""Share of a metric's reports, refused for one reason, from which it is an alarm."""

EXPIRES_SOON: Final = timedelta(days=30)
LATE: Final = timedelta(minutes=1)
"""A batch that waits longer to be counted means that the estimator does not keep up."""


class Level(StrEnum):
    """How much it matters."""

    BAD = "bad"
    """Reports are, or will be, lost or wrong."""
    WARN = "warn"
    """Somebody should act."""
    NOTE = "note"
    """Good to know."""


class Kind(StrEnum):
    """What an alarm is about: stable words, which rules of other programs rely on."""

    IMBALANCE = "imbalance"
    REJECTED = "rejected"
    EXPIRED = "expired"
    EXPIRES_SOON = "expires-soon"
    SILENT = "silent"
    SUPPRESSED = "suppressed"
    SUPPORT_TOTAL = "support-total"
    CALIBRATION = "calibration"
    NOT_READY = "not-ready"
    NO_WORKER = "no-worker"
    ESTIMATOR_LATE = "estimator-late"
    UNREADABLE = "unreadable"


METRIC_KINDS: Final = (
    Kind.IMBALANCE, Kind.REJECTED, Kind.EXPIRED, Kind.EXPIRES_SOON, Kind.SILENT, Kind.SUPPRESSED,
    Kind.SUPPORT_TOTAL, Kind.CALIBRATION,
)  # fmt: skip
"""Of the alarms about one metric."""
SERVICE_KINDS: Final = (
    Kind.NOT_READY, Kind.NO_WORKER, Kind.ESTIMATOR_LATE, Kind.UNREADABLE, Kind.IMBALANCE, Kind.REJECTED,
)  # fmt: skip
"""Of the alarms about the service as a whole."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm.

    Attributes:
        level: how much it matters.
        kind: what it is about.
        text: a sentence for people.
    """

    level: Level
    kind: Kind
    text: str


def metric_alarms(
    metric: Metric,
    latest: Estimate | None,
    terms: Terms,
    now: datetime,
    recent: Sequence[Estimate] = (),
) -> list[Alarm]:
    """What is to be said about one metric of the registry.

    Args:
        metric: it.
        latest: its estimate over all dimensions about the last window that has one.
        terms: its accounts.
        now: aware, in UTC.
        recent: of a calibration metric, its estimates over all dimensions about the last windows.
    """
    found = [*_imbalance(terms), *rejected_alarms(terms), *_expiry(metric, now)]
    if latest is not None:
        found += _silence(metric, latest, now)
        if latest.suppressed:
            least = whole(latest.min_reports)
            text = f"{plural(latest.n, 'report')} in {latest.key}: below min_reports = {least} no shares are shown."
            found.append(Alarm(Level.NOTE, Kind.SUPPRESSED, text))
        if latest.support_total is not None and latest.support_total.flagged:
            text = f"The reports in {latest.key} support more or fewer values than honest ones: some are made up."
            found.append(Alarm(Level.WARN, Kind.SUPPORT_TOTAL, text))
    return [*found, *_calibration(metric, recent)]


def service_alarms(
    ledger: Ledger, counting: CountingState, failing: Sequence[str], metrics: Iterable[str]
) -> list[Alarm]:
    """What is to be said about the service as a whole.

    Args:
        ledger: it.
        counting: workers and partitions.
        failing: readiness checks that fail.
        metrics: names of the registry, whose alarms stand with them; of other metrics an imbalance stands here.
    """
    found = readiness_alarms(failing)
    if not counting.living:
        text = "No estimator worker is running: reports are kept, and none is counted."
        found.append(Alarm(Level.BAD, Kind.NO_WORKER, text))
    elif counting.waiting is not None and counting.waiting > LATE:
        text = (
            f"The estimator is late: the oldest batch has waited {duration(counting.waiting)} to be counted."
        )
        found.append(Alarm(Level.BAD, Kind.ESTIMATOR_LATE, text))
    nowhere = ledger.terms(UNKNOWN)
    found += _imbalance(nowhere)
    for name in sorted(ledger.by_metric.keys() - {*metrics, UNKNOWN}):
        found += _imbalance(ledger.terms(name), f"{name}, no longer in the registry: ")
    if ledger.found.unreadable:
        text = f"{plural(len(ledger.found.unreadable), 'key')} of the store cannot be read: accounts are missing."
        found.append(Alarm(Level.BAD, Kind.UNREADABLE, text))
    total = ledger.total
    for reason, reports in sorted(nowhere.rejected.items()):
        if reports >= REJECTED_SHARE * _judged(total):
            found.append(_rejected(reason, reports, _judged(total), "all reports"))
    return found


def readiness_alarms(failing: Sequence[str]) -> list[Alarm]:
    """One for each readiness check that fails; all that is known while the store cannot be read."""
    return [
        Alarm(Level.BAD, Kind.NOT_READY, f"The check '{name}' fails: batches may be refused.")
        for name in failing
    ]


def rejected_alarms(terms: Terms) -> list[Alarm]:
    """A reason for which too large a share of a metric's reports is refused."""
    judged = _judged(terms)
    return [
        _rejected(reason, reports, judged, "the reports about it")
        for reason, reports in sorted(terms.rejected.items())
        if reports and reports >= REJECTED_SHARE * judged
    ]


def _judged(terms: Terms) -> int:
    """Reports that came for the first time."""
    return max(1, terms.received - terms.duplicate)


def _rejected(reason: str, reports: int, judged: int, of_what: str) -> Alarm:
    text = f"{percent(reports / judged)} of {of_what} ({whole(reports)}) were refused as {reason}."
    return Alarm(Level.WARN, Kind.REJECTED, text)


def _imbalance(terms: Terms, where: str = "") -> list[Alarm]:
    if not terms.imbalance:
        return []
    text = f"{where}{plural(terms.imbalance, 'report')} missing or too many: the ledger does not balance."
    return [Alarm(Level.BAD, Kind.IMBALANCE, text)]


def _expiry(metric: Metric, now: datetime) -> list[Alarm]:
    if metric.expires is None:
        return []
    left = metric.expires - now.date()
    if left < timedelta():
        return [
            Alarm(Level.WARN, Kind.EXPIRED, f"It expired on {metric.expires}: newer windows are refused.")
        ]
    if left <= EXPIRES_SOON:
        when = "today" if not left else f"in {plural(left.days, 'day')}"
        return [Alarm(Level.WARN, Kind.EXPIRES_SOON, f"It expires {when}, on {metric.expires}.")]
    return []


def _calibration(metric: Metric, recent: Sequence[Estimate]) -> list[Alarm]:
    """Estimates that chance does not explain, where the truth is known."""
    found = calibration_of(metric, recent)
    if found is None or not found.missed:
        return []
    text = (
        f"The estimates of {plural(len(found.missed), 'value')} over {plural(len(found.windows), 'window')} are not "
        "what its known truth gives: devices, counting or debias are wrong, or reports are made up."
    )
    return [Alarm(Level.BAD, Kind.CALIBRATION, text)]


def _silence(metric: Metric, latest: Estimate, now: datetime) -> list[Alarm]:
    """A whole window without reports, after earlier ones had some."""
    if metric.period == ONCE or (metric.expires is not None and metric.expires < now.date()):
        return []
    before = metric.window_at(metric.window_at(now).start - timedelta(seconds=1))
    if latest.window.end > before.start:
        return []
    text = f"Silent: no report about {before.label} or since, the last ones were about {latest.key}."
    return [Alarm(Level.WARN, Kind.SILENT, text)]
