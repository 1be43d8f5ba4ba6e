"""Queries for published estimates: how long they take at 200 requests/s, one gunicorn worker, d = 128.

Requests leave on a schedule, whatever became of those before, and the time of each counts from when it was due: a
server that stalls cannot hide it by slowing its callers down.
"""

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import psutil
import redis

from dither_estimator.publication import encode_document, estimate_document, window_scope
from dither_protocol.registry import Metric, parse_registry
from dither_protocol.storage import (
    companion_field,
    estimate_field,
    estimates_key,
    published_key,
    published_member,
)
from dither_server.auth import key_hash
from harness import Case, Row, beside
from own_server import LOAD_CPU, PORT, own_server
from own_store import own_store
from yardsticks import PYTHON, python_loop

_RATE = 200
_SECONDS = 20
_WARM_SECONDS = 2
_CONNECTIONS = 16
_DAYS = 30
_N = 100_000
_KEY = "bench"
_TARGET_MS = 10.0

_REGISTRY = """
schema = 1
project = "bench"
[metrics.feature]
version = 1
type = "categorical"
description = "Feature used last"
categories = [LABELS]
epsilon = 1.0
mechanism = "oue"
"""


def cases() -> Iterator[Case]:
    """All of it together. The processor time is guarded; latencies are mostly waking up, and the tail has a target."""
    yield Case("query", _rows, guarded=True)


def _rows() -> Iterator[Row]:
    """One window, and thirty in one answer; p50 and p99."""
    with tempfile.TemporaryDirectory() as name, own_store() as url:
        folder = Path(name)
        metric = _files(folder)
        environ = {
            "DITHER_STORE_URL": url,
            "DITHER_REGISTRY": str(folder / "registry.toml"),
            "DITHER_KEYS_FILE": str(folder / "keys.json"),
            "DITHER_WORKERS": "1",
            "DITHER_BIND": f"127.0.0.1:{PORT}",
        }
        with own_server(folder, ["-c", "python:dither_server.gunicorn_config"], environ) as worker:
            path = "/v1/metrics/feature/estimates"
            _measure(path, rate=_RATE, seconds=1)  # prepares the store
            newest = _publish(url, metric)
            before_s = _processor_s(worker)
            one = _measure(f"{path}?dimensions=*&from={newest}", rate=_RATE, seconds=_SECONDS)
            query_s = (_processor_s(worker) - before_s) / (_RATE * (_SECONDS + _WARM_SECONDS))
            many = _measure(f"{path}?dimensions=*", rate=_RATE // 10, seconds=_SECONDS // 2)
    loop = 1e3 * beside(python_loop, python_loop)[0]
    name = "processor time of an estimate query, d = 128"
    yield Row(name, 1e3 * query_s, "ms", higher_is_better=False, over=loop, yardstick=PYTHON)
    p50 = 1e3 * statistics.median(one)
    yield Row(f"estimate query at {_RATE}/s, d = 128, p50", p50, "ms", higher_is_better=False)
    p99 = 1e3 * _percentile(one, 99)
    yield Row(f"estimate query at {_RATE}/s, d = 128, p99", p99, "ms", _TARGET_MS, higher_is_better=False)
    name = f"query for {_DAYS} windows at {_RATE // 10}/s, d = 128, p99"
    yield Row(name, 1e3 * _percentile(many, 99), "ms", higher_is_better=False)


def _files(folder: Path) -> Metric:
    text = _REGISTRY.replace("LABELS", ", ".join(f'"feature {number}"' for number in range(128)))
    (folder / "registry.toml").write_text(text)
    key = {"name": "bench", "role": "viewer", "sha256": key_hash(_KEY)}
    (folder / "keys.json").write_text(json.dumps({"keys": [key]}))
    return parse_registry(text).metrics["feature"]


def _publish(url: str, metric: Metric) -> str:
    """Estimates of thirty days; the label of the last one."""
    noise = np.random.default_rng(1)
    chances = np.full(metric.mechanism.d, metric.mechanism.q)
    now = datetime.now(UTC)
    with redis.Redis.from_url(url) as client:
        for days in range(_DAYS):
            window = metric.window_at(now - timedelta(days=days))
            scope = window_scope(window, metric.closes_at(window), final=False)
            document = {"revision": 1, "watermark": "2026-11-29T00:00:00Z"} | estimate_document(
                metric, scope, None, noise.binomial(_N, chances), _N
            )
            field = estimate_field(None)
            values = {field: encode_document(document), companion_field(field): f"{_N} 0 1"}
            client.hset(estimates_key(metric.name, 1, window.label), mapping=values)
            member = published_member(1, window.label)
            client.zadd(published_key(metric.name), {member: window.start.timestamp()})
    return metric.window_at(now).label


def _measure(path: str, *, rate: int, seconds: int) -> Sequence[float]:
    """Seconds from when each request was due until its answer was read; the first ones do not count."""
    os.sched_setaffinity(0, {LOAD_CPU})
    began = time.perf_counter() + 0.1
    taken: list[float] = []
    faults: list[BaseException] = []

    def caller(first: int) -> None:
        connection = HTTPConnection("127.0.0.1", PORT, timeout=30)
        try:
            for number in range(first, rate * (seconds + _WARM_SECONDS), _CONNECTIONS):
                due = began + number / rate
                time.sleep(max(0.0, due - time.perf_counter()))
                connection.request("GET", path, headers={"Authorization": f"Bearer {_KEY}"})
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"answered {answer.status}")
                if number >= rate * _WARM_SECONDS:
                    taken.append(time.perf_counter() - due)
        except BaseException as error:
            faults.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=caller, args=(first,)) for first in range(_CONNECTIONS)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    if faults:
        raise faults[0]
    return taken


def _processor_s(worker: psutil.Process) -> float:
    used = worker.cpu_times()
    return float(used.user + used.system)


def _percentile(samples: Sequence[float], percent: int) -> float:
    return statistics.quantiles(samples, n=100)[percent - 1]


if __name__ == "__main__":
    for row in _rows():
        sys.stdout.write(f"{row.name}: {row.value:.2f} {row.unit}\n")
