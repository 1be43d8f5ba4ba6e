"""Several real workers on one store, and reports by which a double count shows.

Each report has a value that no other has, so every counter ends at exactly one: above one is a double count, zero is
a loss.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from dither_estimator.presence import WorkerState, workers
from dither_estimator.store import Store
from dither_protocol import storage
from dither_protocol.registry import encode_definition, registry_from_document
from dither_protocol.storage import Cell, PartitionKeys, decode_cell, encode_entry, partition_tags
from support.store import Store as Valkey

PARTITIONS = 8
VALUES = 4_096
KEYS = tuple(PartitionKeys(tag) for tag in partition_tags(PARTITIONS))
CELL = Cell("unique", 1, "2026-11-29", ()).name
HANG_LIMIT_S = 60.0

SHORT_TTL = """
from dither_estimator import leases, presence, worker
leases.TTL_MS = presence.TTL_MS = 1_500
leases.RENEW_S = 0.2
"""
"""The beginning of a program: workers are gone after a second and a half, so that a test sees many take-overs."""

RUN = "\nraise SystemExit(worker.main())\n"
"""Its end: the worker."""


def open_store(valkey: Valkey) -> None:
    """Empty the store, and leave it as a server does that knows a metric of 4,096 values, by direct encoding."""
    table = {
        "version": 1,
        "type": "categorical",
        "description": "One report for each value",
        "categories": [f"v{number}" for number in range(VALUES)],
        "epsilon": 1.0,
        "mechanism": "grr",
        "min_reports": 1_000_000,  # suppressed: these tests count, they estimate nothing
    }
    registry = registry_from_document({"schema": 1, "project": "test-app", "metrics": {"unique": table}})
    client = valkey.client()
    client.flushall()
    client.hset(storage.META_KEY, mapping={"partitions": PARTITIONS, "layout": storage.LAYOUT})
    client.set(storage.metric_key("unique", 1), encode_definition(registry, "unique"))
    client.sadd(storage.versions_key("unique"), 1)
    client.sadd(storage.METRICS_KEY, "unique")


def append(valkey: Valkey, partition: int, values: range) -> None:
    """One batch, with one report for each of ``values``, as the admit script leaves it."""
    payload = encode_entry([(CELL, [value.to_bytes(4, "little") for value in values])])
    client = valkey.client()
    client.xadd(KEYS[partition].stream, {storage.ENTRY_FIELD: payload})
    client.incrby(KEYS[partition].backlog, len(payload))


def counted(valkey: Valkey) -> tuple[int, list[int]]:
    """(n, counters) over all partitions."""
    total, counters = 0, [0] * VALUES
    for packed in valkey.client().mget([keys.cell(CELL) for keys in KEYS]):
        if packed is not None:
            n, more = decode_cell(packed)
            total += n
            counters = [a + b for a, b in zip(counters, more, strict=True)]
    return total, counters


def waiting(valkey: Valkey) -> int:
    """Entries that are not counted yet."""
    client = valkey.client()
    return sum(client.xlen(keys.stream) for keys in KEYS)


def assert_each_once(valkey: Valkey, reports: int) -> None:
    """Every report was counted exactly once, none was set aside, and the accounts agree."""
    n, counters = counted(valkey)
    assert n == reports
    assert counters == [1] * reports + [0] * (VALUES - reports)
    client = valkey.client()
    assert sum(client.xlen(keys.dead) for keys in KEYS) == 0
    outcomes = [client.hgetall(keys.outcome("unique", "2026-11-29")) for keys in KEYS]
    assert sum(int(outcome.get(b"counted", 0)) for outcome in outcomes) == reports
    assert {int(client.get(keys.backlog) or 0) for keys in KEYS} == {0}


def shares(valkey: Valkey) -> list[int]:
    """How many partitions each worker holds, the living and those who were not dropped yet."""
    return sorted(len(state.partitions) for state in states(valkey))


def states(valkey: Valkey) -> list[WorkerState]:
    """What an operator sees of the workers."""
    store = Store(valkey.url)
    try:
        return workers(store)
    finally:
        store.close()


def eventually(condition: Callable[[], bool], what: str) -> float:
    """Wait until it holds; the seconds it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < HANG_LIMIT_S, f"never happened: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


class Workers:
    """The processes of a test, by name.

    Attributes:
        folder: what each wrote to stderr, over all its starts, lies in ``<name>.log``.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self._url = url
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, program: str | None = None) -> subprocess.Popen[bytes]:
        """Start a worker; with ``program`` in the place of the worker's own module."""
        command = [
            sys.executable,
            *(["-m", "dither_estimator.worker"] if program is None else ["-c", program]),
        ]
        environ = {**os.environ, "DITHER_STORE_URL": self._url, "DITHER_WORKER_NAME": name}
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, env=environ, stderr=log)
        return self._processes[name]

    def log(self, name: str) -> str:
        """What a worker wrote."""
        return (self.folder / f"{name}.log").read_text()

    def kill(self, name: str) -> None:
        """End it as a crash would."""
        self._processes[name].kill()
        self._processes[name].wait(HANG_LIMIT_S)

    def pause(self, name: str) -> None:
        """SIGSTOP: it stands still and does not know."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._processes[name].send_signal(signal.SIGCONT)

    def is_paused(self, name: str) -> bool:
        """Whether it stands still."""
        return psutil.Process(self._processes[name].pid).status() == psutil.STATUS_STOPPED

    def stop(self, name: str) -> int:
        """SIGTERM; the exit code."""
        self._processes[name].terminate()
        return self._processes[name].wait(HANG_LIMIT_S)

    def end_all(self) -> None:
        """Kill whatever still runs."""
        for process in self._processes.values():
            process.kill()  # a stopped process dies of it too
            process.wait(HANG_LIMIT_S)


@contextmanager
def worker_fleet(valkey: Valkey) -> Iterator[Workers]:
    """Workers of a test; none of them outlives it."""
    with tempfile.TemporaryDirectory(prefix="dw-") as folder:
        fleet = Workers(valkey.url, Path(folder))
        try:
            yield fleet
        finally:
            fleet.end_all()
