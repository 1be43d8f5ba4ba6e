"""``GET /v1/status``: how the service is, in one answer, for people and for `dither status`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Final

from flask import Blueprint, Response, request

from dither_protocol.storage import UNKNOWN
from dither_server.alarms import Alarm
from dither_server.answers import json_answer
from dither_server.auth import Role
from dither_server.conservation import Ledger
from dither_server.counting_state import CountingState
from dither_server.latest import Latest
from dither_server.monitoring import server_version
from dither_server.selection import refuse_unknown
from dither_server.service import Service
from dither_server.survey import Readings, Survey, survey

_LEDGER_BUDGET_S: Final = 5.0


def blueprint(service: Service) -> Blueprint:
    """The route over one service."""
    routes = Blueprint("status_api", __name__)

    @routes.get("/v1/status")
    def get_status() -> Response:
        """200 whatever the store does: that it cannot be read is an answer too."""
        service.keyring.authorize(request.headers.get("Authorization"), Role.VIEWER)
        refuse_unknown(request.args, ())
        found = survey(service, _LEDGER_BUDGET_S)
        return json_answer(status_document(found, service))

    return routes


def status_document(found: Survey, service: Service) -> dict[str, object]:
    """The answer. ``ledger`` and ``counting`` are null where the store cannot be read; then ``trouble`` says why."""
    readings = found.readings
    return {
        "as_of": found.now,
        "project": service.registry.project,
        "version": server_version(),
        "failing": found.failing,
        "trouble": found.trouble or None,
        "alarms": [
            *_alarms(None, found.service),
            *(each for metric, alarms in found.metrics.items() for each in _alarms(metric, alarms)),
        ],
        "ledger": None if readings is None else _ledger(readings, tuple(service.registry.metrics)),
        "counting": None
        if readings is None
        else _counting(readings.counting, service.store.high_water_bytes),
    }


def _alarms(metric: str | None, alarms: Sequence[Alarm]) -> list[dict[str, object]]:
    return [{"metric": metric} | asdict(alarm) for alarm in alarms]


def _ledger(readings: Readings, names: Sequence[str]) -> dict[str, object]:
    ledger = readings.ledger
    others = sorted(ledger.by_metric.keys() - {*names, UNKNOWN})
    return {
        "balanced": ledger.found.imbalance == 0,
        "unsettled": ledger.found.unsettled,
        "unreadable": ledger.found.unreadable,
        "total": asdict(ledger.total),
        "metrics": [_row(name, ledger, readings.latest) for name in (*names, *others, UNKNOWN)],
    }


def _row(name: str, ledger: Ledger, latest: Mapping[str, Latest]) -> dict[str, object]:
    last = latest.get(name)
    shown = None
    if last is not None:
        window = last.estimate.window.label
        shown = {"window": window, "n": last.n, "status": last.estimate.status, "watermark": last.watermark}
    return {"metric": name} | asdict(ledger.terms(name)) | {"latest": shown}


def _counting(counting: CountingState, high_water_bytes: int) -> dict[str, object]:
    return {
        "waiting_s": _seconds(counting.waiting),
        "workers": [
            {
                "name": worker.name,
                "lives": worker.lives,
                "silent_s": _seconds(worker.silent),
                "partitions": worker.partitions,
                "publishing": worker.publishing,
            }
            for worker in counting.workers
        ],
        "partitions": [
            {
                "partition": each.number,
                "waiting_s": _seconds(each.waiting),
                "backlog_bytes": each.backlog_bytes,
                "dead_entries": each.dead_entries,
            }
            for each in counting.partitions
        ],
        "high_water_bytes": high_water_bytes,
    }


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else round(length.total_seconds(), 3)
