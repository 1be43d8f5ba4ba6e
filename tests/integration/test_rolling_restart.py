"""Server processes that come and go under load: whatever a device was told, a batch is counted once."""

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import requests

from support.buckets import bucket_batch, counted, registry_text
from support.server import Server, bearer, running_server, write_files
from support.store import Store

_HANG_LIMIT_S = 60
_THREADS = 6


@dataclass
class Load:
    """Devices that send batches one after another, each until it is acknowledged.

    Attributes:
        server: where to.
        acknowledged: the buckets of the batches that were answered 202.
        failures: tries that were not: 503, or a connection that ended.
        other: what no device should ever see.
    """

    server: Server
    acknowledged: set[int] = field(default_factory=set)
    failures: int = 0
    other: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self, first: int) -> None:
        """One device: buckets from ``first`` on, in steps of the number of devices."""
        session = requests.Session()
        place = first
        while not self.stopped.is_set() and place < 2_000:
            self._send(session, place)
            place += _THREADS

    def _send(self, session: requests.Session, place: int) -> None:
        document = bucket_batch(place)
        deadline = time.monotonic() + _HANG_LIMIT_S
        while time.monotonic() < deadline:
            try:
                answer = session.post(
                    f"{self.server.url}/v1/reports", json=document, headers=bearer(), timeout=10
                )
            except requests.RequestException:
                self.failures += 1
                time.sleep(0.01)
                continue
            if answer.status_code == 202:
                self.acknowledged.add(place)
                return
            self.failures += 1
            if answer.status_code != 503:
                self.other.append(f"{answer.status_code} {answer.text[:200]}")
        self.other.append("a batch was never acknowledged")


def _workers(server: Server) -> set[int]:
    return {child.pid for child in psutil.Process(server.process.pid).children()}


def _each_in_turn(server: Server, number: signal.Signals) -> None:
    """Signal every worker, each only when the one before is replaced."""
    for pid in _workers(server):
        others = len(_workers(server))
        with suppress(ProcessLookupError):  # it had retired by itself
            os.kill(pid, number)
        deadline = time.monotonic() + _HANG_LIMIT_S
        while pid in (now := _workers(server)) or len(now) < others:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _reload(server: Server) -> None:
    """The master starts new workers and stops the old ones in order."""
    before = _workers(server)
    os.kill(server.process.pid, signal.SIGHUP)
    deadline = time.monotonic() + _HANG_LIMIT_S
    while (now := _workers(server)) & before or len(now) < len(before):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_every_acknowledged_batch_is_counted_once(valkey: Store, tmp_path: Path) -> None:
    """Workers retire after a few requests, are reloaded, stopped and killed in turn, under load from many devices."""
    write_files(tmp_path, registry_text())
    environ = {"DITHER_WORKERS": "2", "DITHER_MAX_REQUESTS": "60", "DITHER_MAX_REQUESTS_JITTER": "30"}
    with valkey.client() as client:
        client.flushall()
    with running_server(tmp_path, valkey.url, environ) as server:
        load = Load(server)
        devices = [threading.Thread(target=load.run, args=(first,)) for first in range(_THREADS)]
        for device in devices:
            device.start()
        try:
            _each_in_turn(server, signal.SIGTERM)
            _reload(server)
            _each_in_turn(server, signal.SIGKILL)
            deadline = time.monotonic() + _HANG_LIMIT_S
            while "Autorestarting worker" not in server.log_text() and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            load.stopped.set()
            for device in devices:
                device.join()
    assert "Autorestarting worker" in server.log_text()
    assert load.other == []
    assert len(load.acknowledged) > 100
    assert counted(valkey) == dict.fromkeys(load.acknowledged, 1)
