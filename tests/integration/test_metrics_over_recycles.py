"""What Prometheus scrapes from processes that come and go: counters that never fall, and are the store's."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from dither_estimator.definitions import Definitions
from dither_estimator.expiry import Calendar
from dither_estimator.pruning import Pruner
from dither_estimator.store import Store as EstimatorStore
from dither_estimator.worker import Worker
from dither_protocol.errors import Rejection
from dither_protocol.storage import PartitionKeys, partition_tags
from support.server import OPERATOR_KEY, Server, batch, bearer, registry, report, running_server
from support.store import Store

pytestmark = pytest.mark.usefixtures("engine")

_HANG_LIMIT_S = 120
_PROCESSES = 2
_RECYCLES = 2
KEYS = tuple(PartitionKeys(tag) for tag in partition_tags(8))

Samples = Mapping[tuple[str, ...], float]


def _scrape(server: Server) -> Samples:
    """The counters; a connection that a retiring process closed is tried again, on a new one."""
    deadline = time.monotonic() + _HANG_LIMIT_S
    while True:
        try:
            answer = requests.get(f"{server.url}/metrics", headers=bearer(OPERATOR_KEY), timeout=10)
            break
        except requests.ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert answer.status_code == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if family.type == "counter"
    }


def _of_the_store(valkey: Store) -> dict[tuple[str, ...], float]:
    """The same, added up from the accounts of all windows."""
    sums: Counter[tuple[str, str]] = Counter()
    with valkey.client() as redis:
        for keys in KEYS:
            for name in redis.smembers(keys.outcomes):
                metric, _, window = name.decode().partition(":")
                for word, reports in redis.hgetall(keys.outcome(metric, window)).items():
                    sums[metric, word.decode()] += int(reports)
    found: dict[tuple[str, ...], float] = {}
    for metric in (*registry().metrics, "_unknown"):
        for outcome in ("received", "accepted", "counted", "duplicate", "dead"):
            found["dither_reports_total", metric, outcome] = sums[metric, outcome]
        reasons = {reason: sums[metric, f"rejected:{reason}"] for reason in Rejection}
        found["dither_reports_total", metric, "rejected"] = sum(reasons.values())
        found |= {("dither_rejected_reports_total", metric, why): n for why, n in reasons.items()}
    return found


def _send_for_ever(server: Server, seed: int, stopped: threading.Event) -> None:
    """Batches of good and bad reports, some sent twice; a lost connection is tried again."""
    draw, session = random.Random(seed), requests.Session()  # noqa: S311  # a story, no privacy
    today = datetime.now(UTC)
    until = (today + timedelta(days=2)).date()
    windows = [f"{today - timedelta(days=days):%Y-%m-%d}" for days in (0, 1, 40)]
    document: Any = None
    while not stopped.is_set():
        if document is None or draw.random() < 0.8:
            reports = [report(window=draw.choice(windows), data=draw.randint(0, 2)) for _ in range(3)]
            document = batch(*reports, {}, until=until)
        try:
            session.post(f"{server.url}/v1/reports", json=document, headers=bearer(), timeout=10)
        except requests.RequestException:
            time.sleep(0.01)


@contextmanager
def _under_way(server: Server, worker: Worker) -> Iterator[None]:
    """While devices send and a worker counts."""
    stopped = threading.Event()

    def count() -> None:
        while not stopped.wait(0.05):
            worker.count()

    threads = [threading.Thread(target=_send_for_ever, args=(server, seed, stopped)) for seed in range(2)]
    threads.append(threading.Thread(target=count))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join(_HANG_LIMIT_S)
            assert not thread.is_alive()


def test_counters_never_fall_and_are_the_stores(valkey: Store, tmp_path: Path) -> None:
    """Scraped while every process retires twice, and again after everything was forgotten."""
    with valkey.client() as redis:
        redis.flushall()
    environ = {
        "DITHER_WORKERS": str(_PROCESSES),
        "DITHER_MAX_REQUESTS": "60",
        "DITHER_MAX_REQUESTS_JITTER": "20",
    }
    with running_server(tmp_path, valkey.url, environ) as server:
        worker = Worker(EstimatorStore(valkey.url))
        master, seen = psutil.Process(server.process.pid), set[int]()
        before: Samples = {}
        deadline = time.monotonic() + _HANG_LIMIT_S
        with _under_way(server, worker):
            while len(seen) < _PROCESSES * (1 + _RECYCLES):
                assert time.monotonic() < deadline, f"only {len(seen)} processes:\n{server.log_text()}"
                seen |= {child.pid for child in master.children()}
                now = _scrape(server)
                assert now.keys() >= before.keys()
                fallen = {name: (n, now[name]) for name, n in before.items() if now[name] < n}
                assert not fallen
                before = now
        while worker.count():
            pass
        last = _scrape(server)
        assert last == _of_the_store(valkey)
        words = ("received", "accepted", "counted", "duplicate", "rejected")
        assert all(last["dither_reports_total", "dark_mode", word] for word in words)

        store = EstimatorStore(valkey.url)
        pruner = Pruner(store, Calendar(store, Definitions(store)))
        store.open()
        forgotten = sum(
            each.accounts for keys in KEYS for each in pruner.partition(keys, lambda *_: True, waiting=True)
        )
        assert forgotten
        assert _scrape(server) == last
        store.close()
