"""The SDK: import, first record, record, encode."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dither_client import Client, randomize
from dither_protocol import mechanism, registry_from_document
from harness import Row, median_s, per_second

_RUNS = 15
_LABELS = [f"value {i}" for i in range(128)]
_DOCUMENT = {
    "schema": 1,
    "project": "bench",
    "metrics": {
        "m": {
            "version": 1,
            "type": "categorical",
            "description": "d",
            "categories": _LABELS,
            "epsilon": 1.0,
            "mechanism": "oue",
            "period": "hour",
        }
    },
}
_FIRST_RECORD = f"""
from dither_client import Client
import tempfile
client = Client("http://127.0.0.1:9", {_DOCUMENT!r}, ingest_key="k", state_dir=tempfile.mkdtemp())
client.record("m", "value 7")
import os
os._exit(0)
"""


def _process_s(code: str) -> float:
    samples = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        samples.append(time.perf_counter() - began)
    return min(samples)


def _record_s() -> float:
    """Median time of a durable record() at d = 128, each in a window of its own."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    clock = [now]
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        client = Client(
            "http://127.0.0.1:9",
            registry_from_document(_DOCUMENT),
            ingest_key="k",
            state_dir=Path(folder),
            flush_interval_s=3600,
            clock=lambda: clock[0],
        )
        for _ in range(3_000):
            clock[0] += timedelta(hours=1)
            began = time.perf_counter()
            client.record("m", "value 7")
            samples.append(time.perf_counter() - began)
        client.shutdown(0.0)
    return median_s(samples)


def rows() -> Iterator[Row]:
    """Every row of the SDK."""
    bare = _process_s("pass")
    imported = _process_s("import dither_client")
    yield Row("sdk import over bare Python", (imported - bare) * 1e3, "ms", 20, higher_is_better=False)
    first = _process_s(_FIRST_RECORD)
    yield Row("sdk import, Client, first record", (first - bare) * 1e3, "ms", 80, higher_is_better=False)
    yield Row("sdk record, durable, d=128", _record_s() * 1e6, "us", 80, higher_is_better=False)
    oracle = mechanism("oue", 1.0, 1024)
    rate = per_second(lambda: [randomize(oracle, 7) for _ in range(2_000)], 2_000)
    yield Row("sdk encode oue d=1024", rate, "1/s", 40_000)
