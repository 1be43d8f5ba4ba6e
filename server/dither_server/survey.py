"""One look at everything that an operator watches: readiness, ledger, workers, what was published last, alarms.

`/metrics` and `GET /v1/status` show the same survey, the one to programs, the other to people.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dither_protocol.registry import Registry
from dither_server.alarms import Alarm, metric_alarms, readiness_alarms, service_alarms
from dither_server.conservation import Ledger, View
from dither_server.counting_state import CountingState
from dither_server.ever import Ever, read_ever
from dither_server.latest import Latest, read_latest
from dither_server.service import Service
from dither_server.store_rules import StoreRefused, StoreUnavailable


@dataclass(frozen=True)
class Readings:
    """What the store holds.

    Attributes:
        ledger: as ``GET /v1/ledger`` shows it without parameters.
        ever: what ever became of the reports.
        counting: workers and partitions.
        latest: what was published last, by metric of the registry.
    """

    ledger: Ledger
    ever: Ever
    counting: CountingState
    latest: Mapping[str, Latest]


@dataclass(frozen=True)
class Survey:
    """One look.

    Attributes:
        now: when, aware, in UTC.
        failing: names of the readiness checks that fail.
        readings: what the store holds; None where it cannot be read.
        trouble: why it cannot be read; empty where it can.
        service: alarms about the service as a whole.
        metrics: alarms by metric of the registry.
    """

    now: datetime
    failing: Sequence[str]
    readings: Readings | None
    trouble: str
    service: Sequence[Alarm]
    metrics: Mapping[str, Sequence[Alarm]] = field(default_factory=dict)


def survey(service: Service, budget_s: float) -> Survey:
    """Look, within so many seconds for the ledger. A store that cannot be read is no error here."""
    now, failing = service.clock(), service.store.failing_checks()
    try:
        readings = _read(service, now, budget_s)
    except (StoreUnavailable, StoreRefused) as error:
        return Survey(now, failing, None, str(error), readiness_alarms(failing))
    return Survey(
        now,
        failing,
        readings,
        "",
        service_alarms(readings.ledger, readings.counting, failing, service.registry.metrics),
        _metric_alarms(service.registry, readings, now),
    )


def _read(service: Service, now: datetime, budget_s: float) -> Readings:
    store = service.store
    found = store.conservation(View.from_query({}, store.catalogue(), now), budget_s)
    names = tuple(service.registry.metrics)
    calibrated = frozenset(metric.name for metric in service.registry if metric.calibration is not None)
    return Readings(
        ledger=Ledger(found, found.by_metric()),
        ever=store.read(read_ever),
        counting=store.counting_state(now),
        latest=store.read(lambda client, _: read_latest(client, names, calibrated)),
    )


def _metric_alarms(registry: Registry, readings: Readings, now: datetime) -> dict[str, Sequence[Alarm]]:
    found: dict[str, Sequence[Alarm]] = {}
    for metric in registry:
        latest = readings.latest.get(metric.name)
        terms = readings.ledger.terms(metric.name)
        estimate, recent = (None, ()) if latest is None else (latest.estimate, latest.recent)
        found[metric.name] = metric_alarms(metric, estimate, terms, now, recent)
    return found
