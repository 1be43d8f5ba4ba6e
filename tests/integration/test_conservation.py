"""Conservation (C2): the books balance at every moment of a living service, and show it when they do not."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from dither_protocol import storage
from dither_protocol.storage import UNKNOWN
from support.server import Server, batch, bearer, report, running_server
from support.store import Store, running_store

pytestmark = pytest.mark.usefixtures("engine")

HANG_LIMIT_S = 120
PARTITIONS = 3
TODAY = datetime.now(UTC).date()
YESTERDAY = TODAY - timedelta(days=1)
TERMS = ("received", "accepted", "counted", "duplicate", "dead", "in_flight")


def _reports(draw: random.Random) -> list[dict[str, Any]]:
    """Some that are accepted, in several metrics and windows, and some that are not."""
    hour = datetime.now(UTC).strftime("%Y-%m-%dT%H")
    makers = (
        lambda: report(window=TODAY.isoformat()),
        lambda: report(window=YESTERDAY.isoformat(), data=0),
        lambda: report("browser", 3, window=TODAY.isoformat()),
        lambda: report("toolbar", "AAA", window=hour) | {"data": "AAA"},
        lambda: report(window=TODAY.isoformat(), data=9),
        lambda: report(window=TODAY.isoformat(), params="0" * 32),
        lambda: report(window="2001-01-01"),
        lambda: report() | {"metric": "made_up"},
    )
    return [draw.choice(makers)() for _ in range(draw.randint(1, 8))]


@dataclass
class Device(threading.Thread):
    """Sends batches until it is told to stop: each until it is answered 202, many of them again after that."""

    server: Server
    seed: int
    stop: threading.Event
    received: int = 0
    accepted: int = 0
    duplicate: int = 0
    refused: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Send."""
        draw = random.Random(self.seed)  # noqa: S311  # a story, no privacy
        with requests.Session() as session:
            while not self.stop.is_set():
                document = batch(*_reports(draw), until=TODAY + timedelta(days=3))
                for _ in range(draw.choice((1, 1, 2))):
                    self._send(session, document)

    def _send(self, session: requests.Session, document: dict[str, Any]) -> None:
        deadline = time.monotonic() + HANG_LIMIT_S
        while time.monotonic() < deadline:
            try:
                answer = session.post(
                    f"{self.server.url}/v1/reports", json=document, headers=bearer(), timeout=HANG_LIMIT_S
                )
            except requests.ConnectionError:
                continue
            if answer.status_code == 202:
                self.received += len(document["reports"])
                self.accepted += answer.json()["accepted"]
                self.duplicate += answer.json()["duplicate"]
                return
            self.refused.add(answer.status_code)
            time.sleep(0.05)


@contextmanager
def _devices(server: Server, number: int) -> Iterator[list[Device]]:
    stop = threading.Event()
    devices = [Device(server, seed, stop) for seed in range(number)]
    for device in devices:
        device.start()
    try:
        yield devices
    finally:
        stop.set()
        for device in devices:
            device.join(HANG_LIMIT_S)
        assert not any(device.is_alive() for device in devices)


@contextmanager
def _worker(store: Store, ended_by: signal.Signals) -> Iterator[None]:
    command = [sys.executable, "-m", "dither_estimator.worker"]
    environ = {**os.environ, "DITHER_STORE_URL": store.url, "DITHER_WORKER_NAME": "one"}
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        assert process.poll() is None
        process.send_signal(ended_by)
        process.wait(HANG_LIMIT_S)


def _ledger(server: Server, query: str = "") -> dict[str, Any]:
    """The ledger; asked again where the store was slower than its second, which a busy machine makes it."""
    deadline = time.monotonic() + HANG_LIMIT_S
    while time.monotonic() < deadline:
        answer = server.get("/v1/ledger" + query)
        found: dict[str, Any] = answer.json()
        if answer.status_code == 200:
            assert (found["balanced"], found["imbalance"], found["unreadable"]) == (True, 0, []), found
            if not found["unsettled"]:
                return found
        else:
            assert answer.status_code == 503, answer.text
        time.sleep(0.1)
    raise AssertionError("the ledger never was whole")


def _total(ledger: dict[str, Any], term: str) -> int:
    return sum(row[term] for row in ledger["metrics"])


def _gauges(server: Server) -> dict[tuple[str, ...], float]:
    """The scrape: (name, values of the labels) -> value."""
    answer = server.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def _gauges_of_a_store(server: Server) -> dict[tuple[str, ...], float]:
    """The same, in the end with a store that is up."""
    deadline = time.monotonic() + HANG_LIMIT_S
    while not (gauges := _gauges(server))["dither_store_up",] and time.monotonic() < deadline:
        time.sleep(0.1)
    return gauges


def _assert_the_scrape_says_down(server: Server) -> None:
    """And nothing about reports: a counter without a part would fall."""
    gauges = _gauges(server)
    assert gauges["dither_store_up",] == 0
    assert not [name for name, *_ in gauges if name.endswith(("reports", "reports_total", "_bytes"))]


def _assert_balanced(ledger: dict[str, Any]) -> None:
    for row in ledger["metrics"]:
        for terms in (row, *row["windows"]):
            rejected = sum(terms["rejected"].values())
            assert terms["accepted"] == terms["counted"] + terms["dead"] + terms["in_flight"], terms
            assert terms["received"] == terms["accepted"] + terms["duplicate"] + rejected, terms


def _watch(server: Server, times: int) -> list[dict[str, Any]]:
    """Look so many times; the books balance each time, in the ledger as in the gauge."""
    seen = []
    for _ in range(times):
        seen.append(_ledger(server))
        _assert_balanced(seen[-1])
        gauges = _gauges_of_a_store(server)
        imbalances = [
            value for (name, *_), value in gauges.items() if name.startswith("dither_conservation_imb")
        ]
        assert len(imbalances) > 5
        assert not any(imbalances)
    return seen


def _until(server: Server, term: str, *, above: int) -> None:
    deadline = time.monotonic() + HANG_LIMIT_S
    while _total(_watch(server, 1)[0], term) <= above:
        assert time.monotonic() < deadline, f"{term} stays at {above}"


def _until_counted(server: Server) -> dict[str, Any]:
    deadline = time.monotonic() + HANG_LIMIT_S
    while _total(ledger := _watch(server, 1)[0], "in_flight"):
        assert time.monotonic() < deadline, "reports stay in flight"
        time.sleep(0.1)
    return ledger


def test_the_books_balance_whatever_happens(tmp_path: Path) -> None:
    """Under load, with the worker stopped, running, killed, and with the store killed and started again."""
    environ = {"DITHER_PARTITIONS": str(PARTITIONS), "DITHER_THREADS": "8"}
    with running_store() as store, running_server(tmp_path, store.url, environ) as server:
        with _devices(server, 3) as devices:
            _until(server, "in_flight", above=100)
            with store.client() as client:  # what has no definition cannot be counted
                client.delete(storage.metric_key("toolbar", 1))
            with _worker(store, signal.SIGKILL):
                _until(server, "dead", above=0)
                _watch(server, 5)
            store.kill()
            assert server.get("/v1/ledger").status_code == 503
            _assert_the_scrape_says_down(server)
            store.start()
            _watch(server, 3)
            with _worker(store, signal.SIGTERM):
                before = _total(_ledger(server), "counted")
                _until(server, "counted", above=before + 50)
                _watch(server, 5)
        with _worker(store, signal.SIGTERM):
            ledger = _until_counted(server)
        _assert_the_windows_agree(server, ledger)
        _assert_the_devices_agree(ledger, devices)
        _assert_the_gauges_agree(server, ledger)


def _assert_the_windows_agree(server: Server, ledger: dict[str, Any]) -> None:
    """The accounts of all windows add up to the sums of their metrics, term by term."""
    sums = {row["metric"]: row for row in ledger["metrics"]}
    for row in _ledger(server, "?from=2000-01")["metrics"]:
        assert len(row["windows"]) >= 2 * (row["metric"] == "dark_mode")
        for term in (*TERMS, "rejected"):
            assert row[term] == sums[row["metric"]][term], (row["metric"], term)
        for term in TERMS:
            assert row[term] == sum(window[term] for window in row["windows"])


def _assert_the_devices_agree(ledger: dict[str, Any], devices: list[Device]) -> None:
    """Every 202 is in the books, once; more is received only by tries that were cut off."""
    assert {status for device in devices for status in device.refused} <= {503}
    assert _total(ledger, "counted") + _total(ledger, "dead") == _total(ledger, "accepted")
    assert _total(ledger, "received") >= sum(device.received for device in devices)
    # A batch whose first answer was lost is accepted without the device's knowledge, then a duplicate.
    assert _total(ledger, "accepted") >= sum(device.accepted for device in devices)
    assert all(device.duplicate for device in devices)
    rows = {row["metric"]: row for row in ledger["metrics"]}
    assert rows["dark_mode"]["rejected"].keys() == {"payload-invalid", "params-mismatch"}
    assert rows[UNKNOWN]["rejected"].keys() == {"unknown-metric", "report-too-old"}
    assert rows["toolbar"]["dead"]
    assert all(rows[metric]["duplicate"] for metric in ("dark_mode", "browser", UNKNOWN))


def _assert_the_gauges_agree(server: Server, ledger: dict[str, Any]) -> None:
    gauges = _gauges_of_a_store(server)
    assert gauges["dither_store_up",] == 1
    for row in ledger["metrics"]:
        for term in ("received", "accepted", "counted", "duplicate", "dead"):
            assert gauges["dither_reports_total", row["metric"], term] == row[term]
        assert gauges["dither_reports_total", row["metric"], "rejected"] == sum(row["rejected"].values())
        assert gauges["dither_in_flight_reports", row["metric"]] == 0
        for reason, reports in row["rejected"].items():
            assert gauges["dither_rejected_reports_total", row["metric"], reason] == reports
    backlogs = [value for (name, *_), value in gauges.items() if name == "dither_stream_backlog_bytes"]
    assert backlogs == [0] * PARTITIONS


def test_a_hung_store_is_said_in_time(tmp_path: Path) -> None:
    """Asked while the store is stopped (SIGSTOP), the ledger is 503 and the scrape says that it is down."""
    with running_store() as store, running_server(tmp_path, store.url) as server:
        _watch(server, 1)
        os.kill(store.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert server.get("/v1/ledger").status_code == 503
            _assert_the_scrape_says_down(server)
            assert time.monotonic() - began < 10 * 3
        finally:
            os.kill(store.pid, signal.SIGCONT)
        _watch(server, 1)
