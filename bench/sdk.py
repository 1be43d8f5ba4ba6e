"""The SDK: import, first record, record, encode."""

import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dither_client import Client, randomize
from dither_protocol import mechanism, registry_from_document
from harness import Row, median_s, per_second
from peers import process_s
from silent_server import silent_server

_RUNS = 15
_EXIT = """
import tempfile, time
from dither_client import Client
client = Client("http://127.0.0.1:PORT", DOCUMENT, ingest_key="k", state_dir=STATE, delay_s=0)
client.record("m", "value 7")
time.sleep(0.5)  # until the sender is inside its request
"""
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
import os
from dither_client import Client
folder = os.path.join("STATE", str(os.getpid()))
client = Client("http://127.0.0.1:9", {_DOCUMENT!r}, ingest_key="k", state_dir=folder)
client.record("m", "value 7")
os._exit(0)
"""


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
            delay_s=3600,
            clock=lambda: clock[0],
        )
        for _ in range(3_000):
            clock[0] += timedelta(hours=1)
            began = time.perf_counter()
            client.record("m", "value 7")
            samples.append(time.perf_counter() - began)
        client.shutdown(0.0)
    return median_s(samples)


def _exit_rows() -> Iterator[Row]:
    """Exit with a server that never answers: how long it takes, and how many reports are lost by it."""
    with silent_server() as port, tempfile.TemporaryDirectory() as folder:
        code = (
            _EXIT.replace("PORT", str(port))
            .replace("DOCUMENT", repr(_DOCUMENT))
            .replace("STATE", repr(folder))
        )
        took = process_s(code, 1) - 0.5
        yield Row("sdk exit, silent server", took, "s", 2.5, higher_is_better=False)
        client = Client(f"http://127.0.0.1:{port}", _DOCUMENT, ingest_key="k", state_dir=folder)
        lost = 1 - client.pending_reports()
        client.shutdown(0.0)
        yield Row("sdk reports lost by that exit", lost, "reports", higher_is_better=False)


def rows() -> Iterator[Row]:
    """Every row of the SDK."""
    bare = process_s("pass", _RUNS)
    imported = process_s("import dither_client", _RUNS)
    yield Row("sdk import over bare Python", (imported - bare) * 1e3, "ms", 20, higher_is_better=False)
    with tempfile.TemporaryDirectory() as folder:
        first = process_s(_FIRST_RECORD.replace("STATE", folder), _RUNS)
    yield Row("sdk import, Client, first record", (first - bare) * 1e3, "ms", 80, higher_is_better=False)
    yield Row("sdk record, durable, d=128", _record_s() * 1e6, "us", 80, higher_is_better=False)
    yield from _exit_rows()
    oracle = mechanism("oue", 1.0, 1024)
    rate = per_second(lambda: [randomize(oracle, 7) for _ in range(2_000)], 2_000)
    yield Row("sdk encode oue d=1024", rate, "1/s", 40_000)
