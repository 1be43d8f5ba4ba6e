"""What `/metrics` shows, as plain series. Pure; `dither_server.monitoring` turns them into the form of Prometheus.

Labels are from closed sets: metrics of the registry and those that were ever announced, words of an account, reasons
of a rejection, kinds of an alarm, partitions. A metric is a value of a label and never a part of a name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final

from dither_protocol.errors import Rejection
from dither_protocol.registry import Registry
from dither_protocol.storage import UNKNOWN
from dither_server.alarms import METRIC_KINDS, SERVICE_KINDS, Alarm, Kind
from dither_server.calibration import calibration_of
from dither_server.conservation import Terms
from dither_server.counting_state import CountingState
from dither_server.ever import Ever
from dither_server.latest import Latest
from dither_server.privacy import privacy_view
from dither_server.survey import Readings, Survey

OTHER: Final = "_other"
"""Label of what is in none of the closed sets: accounts of no known metric, reasons of a later version."""

_OUTCOMES: Final = ("received", "accepted", "counted", "duplicate", "dead")
_REASONS: Final = frozenset(Rejection)

Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True)
class Series:
    """All samples of one name.

    Attributes:
        name: of a counter without the ``_total`` at its end.
        text: what it says, for people.
        labels: names of the labels.
        samples: (values of the labels, number).
        counter: whether it only grows.
    """

    name: str
    text: str
    labels: tuple[str, ...]
    samples: Sequence[Sample]
    counter: bool = False


def _one(name: str, text: str, number: float) -> Series:
    return Series(name, text, (), [((), float(number))])


def survey_series(survey: Survey, registry: Registry, high_water_bytes: int) -> Iterator[Series]:
    """What the store says. Where it cannot be read: that, and what the readiness checks say."""
    yield _one(
        "dither_store_up", "Whether the store could be read for this scrape.", survey.readings is not None
    )
    yield _alarms(survey)
    if survey.readings is None:
        return
    readings = survey.readings
    yield from _reports(readings.ever)
    yield from _conservation(readings, survey.metrics)
    yield from _counting(readings.counting, high_water_bytes)
    yield from _estimates(readings.latest)
    yield from calibration_series(registry, readings.latest)


def _alarms(survey: Survey) -> Series:
    """Every alarm that this survey could have found, 1 or 0: what is not known is left out."""
    kinds = SERVICE_KINDS if survey.readings is not None else (Kind.NOT_READY,)
    about: list[tuple[str, Sequence[Kind], Sequence[Alarm]]] = [("", kinds, survey.service)]
    about += [(metric, METRIC_KINDS, alarms) for metric, alarms in survey.metrics.items()]
    samples: list[Sample] = []
    for metric, known, alarms in about:
        ringing = {alarm.kind for alarm in alarms}
        samples += [((kind, metric), float(kind in ringing)) for kind in known]
    text = "Alarms as the dashboard shows them: 1 where it rings. No metric: about the service."
    return Series("dither_alarm", text, ("alarm", "metric"), samples)


def _reports(ever: Ever) -> Iterator[Series]:
    outcomes: list[Sample] = []
    rejected: list[Sample] = []
    for metric, terms in ever.terms.items():
        outcomes += [((metric, outcome), getattr(terms, outcome)) for outcome in _OUTCOMES]
        outcomes.append(((metric, "rejected"), sum(terms.rejected.values())))
        reasons = _by_known_reason(terms)
        rejected += [((metric, reason), reports) for reason, reports in reasons.items()]
    text = "Reports since the store was created; received is the sum of counted, duplicate, rejected, dead, in flight."
    yield Series("dither_reports", text, ("metric", "outcome"), outcomes, counter=True)
    text = "Rejected reports by reason, since the store was created."
    yield Series("dither_rejected_reports", text, ("metric", "reason"), rejected, counter=True)


def _by_known_reason(terms: Terms) -> dict[str, int]:
    """Every reason has its series from the start: an increase from nothing would be no increase."""
    reports = {reason.value: 0 for reason in Rejection}
    for reason, number in terms.rejected.items():
        label = reason if reason in _REASONS else OTHER
        reports[label] = reports.get(label, 0) + number
    return reports


def _conservation(readings: Readings, metrics: Iterable[str]) -> Iterator[Series]:
    totals = {name: Terms() for name in (*metrics, *readings.ever.terms, UNKNOWN)}
    for metric, terms in readings.ledger.by_metric.items():
        totals.setdefault(metric if metric in totals else OTHER, Terms()).add(terms)
    text = "Accepted reports that are not counted yet."
    samples = [((name,), float(terms.in_flight)) for name, terms in totals.items()]
    yield Series("dither_in_flight_reports", text, ("metric",), samples)
    text = "Reports that are missing or too many; anything but 0 is a fault."
    samples = [((name,), float(terms.imbalance)) for name, terms in totals.items()]
    yield Series("dither_conservation_imbalance_reports", text, ("metric",), samples)
    found = readings.ledger.found
    text = "Partitions whose stream could not be read to its end in time; nothing in flight there is in this scrape."
    yield _one("dither_conservation_unsettled_partitions", text, len(found.unsettled))
    text = "Keys of the store that are damaged; what they held is in no number."
    yield _one("dither_unreadable_keys", text, len({*found.unreadable, *readings.ever.damaged}))


def _counting(counting: CountingState, high_water_bytes: int) -> Iterator[Series]:
    yield _one("dither_workers", "Estimator workers that live.", counting.living)
    publishing = any(worker.publishing for worker in counting.workers)
    yield _one("dither_publisher_up", "Whether a worker publishes estimates.", publishing)
    text = "How long the oldest batch that is not counted has waited; 0 where none waits."
    samples = [
        ((str(each.number),), each.waiting.total_seconds() if each.waiting else 0.0)
        for each in counting.partitions
    ]
    yield Series("dither_oldest_uncounted_seconds", text, ("partition",), samples)
    text = "Bytes of the entries in the stream."
    samples = [((str(each.number),), float(each.backlog_bytes)) for each in counting.partitions]
    yield Series("dither_stream_backlog_bytes", text, ("partition",), samples)
    text = "Backlog of a partition from which it takes no more."
    yield _one("dither_stream_high_water_bytes", text, high_water_bytes)
    text = "Batches that were set aside because they could not be counted, and are kept."
    samples = [((str(each.number),), float(each.dead_entries)) for each in counting.partitions]
    yield Series("dither_dead_entries", text, ("partition",), samples)


def _estimates(latest: Mapping[str, Latest]) -> Iterator[Series]:
    text = "Reports of the last window that has an estimate, of all versions."
    samples = [((name,), float(each.n)) for name, each in latest.items()]
    yield Series("dither_estimate_reports", text, ("metric",), samples)
    text = "When that window began."
    samples = [((name,), each.estimate.window.start.timestamp()) for name, each in latest.items()]
    yield Series("dither_estimate_window_start_timestamp_seconds", text, ("metric",), samples)
    text = "Every report before this time was counted when that estimate changed last."
    samples = [((name,), each.watermark.timestamp()) for name, each in latest.items() if each.watermark]
    yield Series("dither_estimate_watermark_timestamp_seconds", text, ("metric",), samples)


def calibration_series(registry: Registry, latest: Mapping[str, Latest]) -> Iterator[Series]:
    """How often the intervals of calibration metrics hold their known truth."""
    found = {
        metric.name: judged
        for metric in registry
        if metric.name in latest and (judged := calibration_of(metric, latest[metric.name].recent))
    }
    text = "Estimates of calibration metrics, one for each value and recent window."
    samples = [((name,), float(each.values)) for name, each in found.items()]
    yield Series("dither_calibration_values", text, ("metric",), samples)
    text = "Those of them whose interval holds the known truth."
    samples = [((name,), float(each.covered)) for name, each in found.items()]
    yield Series("dither_calibration_covered_values", text, ("metric",), samples)


def registry_series(registry: Registry, now: datetime) -> Iterator[Series]:
    """What the registry alone says."""
    view = privacy_view(registry, now.date())
    epsilons: list[Sample] = []
    for each in view.metrics:
        scopes = {"report": each.metric.epsilon, "day": each.per_day, "lifetime": each.lifetime}
        epsilons += [
            ((each.metric.name, scope), spent) for scope, spent in scopes.items() if spent is not None
        ]
    text = "Epsilon of one report, and the most that a device can spend: on one day, and until the metric expires."
    yield Series("dither_privacy_epsilon", text, ("metric", "scope"), epsilons)
    worst = {"day": view.day, "lifetime": view.life}
    text = "The most epsilon that a device can spend on all metrics together."
    spent = [((scope,), each.spent) for scope, each in worst.items() if each.spent is not None]
    yield Series("dither_privacy_worst_case_epsilon", text, ("scope",), spent)
    text = "What the registry allows a device to spend."
    limits = [((scope,), each.limit) for scope, each in worst.items() if each.limit is not None]
    yield Series("dither_privacy_limit_epsilon", text, ("scope",), limits)
    text = "End of the last day about which reports are accepted."
    ends = [
        (
            (metric.name,),
            (datetime.combine(metric.expires, time.min, UTC) + timedelta(days=1)).timestamp(),
        )
        for metric in registry
        if metric.expires is not None
    ]
    yield Series("dither_metric_expires_timestamp_seconds", text, ("metric",), ends)
