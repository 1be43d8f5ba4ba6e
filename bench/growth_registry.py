"""Growth with the number of metrics in the registry: what devices, server and worker do because of them."""

import gc
import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from flask.testing import FlaskClient

from dither_client import Client
from dither_protocol.mechanisms.forms import encode_base64url
from dither_protocol.registry import Registry, parse_registry, registry_from_document
from growth_cost import Point, cost, cost_each, memory_bytes
from growth_parts import (
    INGEST_KEY,
    Ground,
    bearer,
    check_settled,
    ground,
    read,
    rested_read,
    settle,
    sign_in,
    toml,
)

SIZES: Final = (1, 3, 10, 30, 100, 300, 1_000)
QUICK_SIZES: Final = (1, 10, 100)
_RECORDS: Final = 200
_PAGES: Final = {
    "status-metrics": "/v1/metrics",
    "ledger": "/v1/ledger",
    "status": "/v1/status",
    "scrape": "/metrics",
}


def document(metrics: int) -> dict[str, Any]:
    """A registry of so many questions with eight answers each."""
    return {
        "schema": 1,
        "project": "growth",
        "metrics": {
            f"metric_{i:04d}": {
                "version": 1,
                "type": "categorical",
                "description": f"Question {i}",
                "categories": [f"value {j}" for j in range(8)],
                "epsilon": 0.01,
                "mechanism": "grr",
                "period": "hour",
                "min_reports": 1,
            }
            for i in range(metrics)
        },
    }


def measure(metrics: int) -> Iterator[Point]:
    """The costs of a registry of so many metrics."""
    made = document(metrics)
    text = toml(made)
    before = memory_bytes()
    kept = [parse_registry(text) for _ in range(max(1, 100 // metrics))]
    yield Point("metrics/registry-memory", metrics, max(1.0, (memory_bytes() - before) / len(kept)))
    registry = kept.pop()
    yield Point("metrics/registry-load", metrics, cost(lambda: parse_registry(text), repeats=3).own_s)
    del kept
    yield from _device(made, metrics)
    with ground(registry, made) as store:
        yield from _service(store, metrics)


def _device(made: dict[str, Any], metrics: int) -> Iterator[Point]:
    now = [datetime(2030, 1, 1, tzinfo=UTC)]
    registry = registry_from_document(made)
    with tempfile.TemporaryDirectory() as folder:
        client: Client | None = None

        def first() -> None:
            nonlocal client
            client = Client(
                "http://127.0.0.1:9", registry, ingest_key="k", state_dir=Path(folder), delay_s=3_600,
                clock=lambda: now[0],
            )  # fmt: skip
            client.record("metric_0000", "value 3")

        yield Point("metrics/first-record", metrics, cost(first).own_s)

        def records() -> None:
            for _ in range(_RECORDS):
                now[0] += timedelta(hours=1)
                client.record("metric_0000", "value 3")  # type: ignore[union-attr]  # first() made it

        yield Point("metrics/record", metrics, cost(records, repeats=3).own_s / _RECORDS)
        client.shutdown(0.0)  # type: ignore[union-attr]  # first() made it


def _service(store: Ground, metrics: int) -> Iterator[Point]:
    client = store.application()
    gc.collect()
    yield Point("metrics/server-start", metrics, cost(store.application).own_s)
    sign_in(client)
    ingest = cost_each(lambda: _upload(client, store.registry))
    yield Point("metrics/ingest", metrics, ingest)
    busy, idle = [], []
    for _ in range(3):
        _answers(store)
        with store.worker() as worker:
            busy.append(cost(partial(settle, worker), store.redis).both_s)
            check_settled(store)
            idle.append(cost(partial(settle, worker), store.redis, repeats=3).both_s)
    yield Point("metrics/busy-round", metrics, min(busy))
    yield Point("metrics/idle-round", metrics, min(idle))
    for name, path in _PAGES.items():
        read(client, path)
        yield Point(f"metrics/{name}", metrics, cost_each(partial(read, client, path)))
    yield Point("metrics/overview", metrics, rested_read(client, "/"))


def _answers(store: Ground) -> None:
    """One report about each metric, ten in a batch."""
    hour = datetime.now(UTC).strftime("%Y-%m-%dT%H")
    cells = [f"{name}:1:{hour}:" for name in store.registry.metrics]
    store.admit(
        [(cell, [b"\3\0\0\0"]) for cell in cells[start : start + 10]] for start in range(0, len(cells), 10)
    )


def _upload(client: FlaskClient, registry: Registry) -> None:
    """A batch of ten reports about the metrics at the front, through all of the ingest route."""
    now = datetime.now(UTC)
    metrics = list(registry.metrics.values())[:10]
    reports = [
        {
            "metric": metric.name, "version": 1, "params": metric.params_hash,
            "window": metric.window_at(now).label, "dimensions": {}, "data": 3,
        }
        for metric in (metrics * 10)[:10]
    ]  # fmt: skip
    body = {
        "batch": encode_base64url(os.urandom(16)),
        "until": str(now.date() + timedelta(days=3)),
        "reports": reports,
    }
    answer = client.post(
        "/v1/reports", data=json.dumps(body), content_type="application/json", headers=bearer(INGEST_KEY)
    )
    if answer.status_code != 202:
        raise RuntimeError(answer.text)
