"""Kills under load: whatever dies while devices report, every accepted report is counted exactly once."""

import json
import os
import signal
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from dither_cli.demo_population import demo_truths
from dither_cli.parts import example_registry
from dither_cli.service import Service
from dither_fleet import Fleet, FleetResult
from dither_protocol.registry import load_registry

DEVICES = 6_000
HANG_LIMIT_S = 120.0


def _counted(service: Service, metric: str) -> int:
    request = urllib.request.Request(
        f"{service.base_url}/v1/metrics/{metric}/estimates",
        headers={"Authorization": f"Bearer {service.operator_token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            versions = json.load(answer)["versions"]
    except OSError:
        return -1
    return sum(e["n"] for v in versions for e in v["estimates"] if e["dimensions"] is None)


def _kill_gunicorn_worker(service: Service) -> None:
    os.kill(psutil.Process(service.processes["ingest"]).children()[0].pid, signal.SIGKILL)


def _kill_child(name: str) -> Callable[[Service], None]:
    def kill(service: Service) -> None:
        os.kill(service.processes[name], signal.SIGKILL)

    return kill


@pytest.mark.parametrize(
    "kill",
    [_kill_gunicorn_worker, _kill_child("estimator"), _kill_child("store")],
    ids=["gunicorn worker", "estimator", "store"],
)
def test_a_kill_under_load_loses_nothing_and_doubles_nothing(kill: Callable[[Service], None]) -> None:
    """Sent = accepted = counted per metric, with two kills while the fleet is posting."""
    registry = load_registry(example_registry())
    with (
        tempfile.TemporaryDirectory(prefix="d-") as folder,
        Service.start(state_dir=Path(folder) / "s") as service,
    ):
        posted = threading.Semaphore(0)
        fleet = Fleet(
            service.base_url, service.ingest_key, registry, demo_truths(registry), datetime.now(UTC)
        )
        results: list[FleetResult] = []
        run = threading.Thread(
            target=lambda: results.append(
                fleet.run(DEVICES, seed=4, reports_per_batch=20, progress=lambda _: posted.release())
            )
        )
        run.start()
        for _ in range(2):
            for _ in range(200):  # well inside the run of 1,500 batches
                assert posted.acquire(timeout=HANG_LIMIT_S)
            kill(service)
            time.sleep(1.5)  # until the supervisor has started it again, or has tried to
        run.join(HANG_LIMIT_S)
        (result,) = results
        expected = {metric.name: DEVICES for metric in registry}
        assert result.failures == {}
        assert result.sent == result.accepted == expected
        deadline = time.monotonic() + HANG_LIMIT_S
        counted: dict[str, int] = {}
        while counted != expected and time.monotonic() < deadline:
            time.sleep(0.3)
            counted = {metric.name: _counted(service, metric.name) for metric in registry}
        assert counted == expected
