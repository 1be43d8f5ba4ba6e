"""Server and store across their troubles: killed, back, full, the wrong one."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dither_protocol.storage import LAYOUT, META_KEY
from dither_server.store import Store
from dither_server.store_rules import StoreUnavailable
from support.cluster import running_cluster
from support.server import (
    REGISTRY,
    batch,
    registry,
    report,
    running_server,
    settings,
    start_gunicorn,
    stop_gunicorn,
    write_files,
)
from support.store import running_store

pytestmark = pytest.mark.usefixtures("engine")

TODAY = datetime.now(UTC).date()


def _batch():
    return batch(report(window=TODAY.isoformat()), until=TODAY + timedelta(days=3))


def _received(store):
    """(received, accepted, duplicate) over all partitions, and the number of stream entries."""
    with store.client(decode=True) as client:
        found = [client.hgetall(key) for key in client.keys("*:outcome:*")]
        entries = sum(client.xlen(key) for key in client.keys("*:stream"))
    return tuple(
        sum(int(f.get(word, 0)) for f in found) for word in ("received", "accepted", "duplicate")
    ), entries


def test_a_killed_store_is_503_and_its_return_needs_no_restart(tmp_path):
    """Killed with SIGKILL, the store loses no acknowledged batch; the same batches again are duplicates."""
    with running_store() as store, running_server(tmp_path, store.url) as server:
        sent = [_batch() for _ in range(20)]
        assert all(server.post(document).json()["accepted"] == 1 for document in sent)
        store.kill()
        lost = _batch()
        answer = server.post(lost)
        assert (answer.status_code, answer.json()["type"], answer.json()["retryable"]) == (
            503, "store-unavailable", True,
        )  # fmt: skip
        assert int(answer.headers["Retry-After"]) > 0
        assert server.get("/healthz", None).status_code == 200
        ready = server.get("/readyz", None)
        assert (ready.status_code, ready.json()["type"], ready.json()["failing"]) == (
            503, "not-ready", ["store-writable"],
        )  # fmt: skip
        store.start()
        assert server.post(lost).json() == {"accepted": 1, "duplicate": False, "rejected": []}
        assert all(server.post(document).json()["duplicate"] for document in sent)
        assert server.get("/readyz", None).status_code == 200
        assert _received(store) == ((41, 21, 20), 21)


def test_a_server_starts_before_its_store(tmp_path):
    """Without a store the server runs and says that it is not ready; it works once the store is there."""
    with running_store() as store:
        store.stop()
        with running_server(tmp_path, store.url) as server:
            assert server.post(_batch()).status_code == 503
            assert "starting without the store" in server.log_text()
            store.start()
            assert server.post(_batch()).status_code == 202


def test_a_full_store_refuses_and_changes_nothing(tmp_path):
    """Over the high-water mark a batch is 503 overloaded, and the store is as before."""
    with running_store() as store:
        environ = {"DITHER_HIGH_WATER_BYTES": "1", "DITHER_PARTITIONS": "1"}
        with running_server(tmp_path, store.url, environ) as server:
            assert server.post(_batch()).status_code == 202
            before = store.dump()
            answer = server.post(_batch())
            assert (answer.status_code, answer.json()["type"]) == (503, "overloaded")
            assert "Retry-After" in answer.headers
            assert store.dump() == before
            assert server.get("/readyz", None).json()["failing"] == ["backlog"]


def _exit_of(folder, url, environ=None):
    """The exit status and the log of a gunicorn that must not start."""
    server = start_gunicorn(folder, url, environ)
    try:
        status = server.process.wait(60)
    finally:
        stop_gunicorn(server)
    return status, server.log_text()


@pytest.mark.parametrize(
    ("environ", "status", "words"),
    [
        ({"DITHER_PARTITIONS": "4"}, 4, "dither: store: was created with partitions 8, this server wants 4"),
        ({"DITHER_KEYS_FILE": "/nowhere"}, 4, "dither: keys file: cannot be read"),
        ({"DITHER_REPLICAS": "2"}, 1, "dither: DITHER_REPLICAS: needs DITHER_ACK=replica"),
        ({"DITHER_STORE_PATH": "/nowhere"}, 4, "dither: DITHER_STORE_PATH: is no folder"),
        (
            {"DITHER_HIGH_WATER_BYTES": "33554433"},
            4,
            "dither: store: has maxmemory 268435456, less than 8 times DITHER_HIGH_WATER_BYTES=33554433",
        ),
        ({"DITHER_REGISTRY": ""}, 1, "dither: DITHER_REGISTRY: is required"),
    ],
)
def test_a_wrong_configuration_ends_the_server_with_a_reason(tmp_path, environ, status, words):
    """The master exits with a status of its own and one line that says why, and does not start over."""
    with running_store() as store:
        with store.client() as client:
            client.hset(META_KEY, mapping={"partitions": 8, "layout": LAYOUT})
        found, log = _exit_of(tmp_path, store.url, environ)
    assert found == status
    assert words in log
    assert "Traceback" not in log


def test_a_store_that_may_lose_batches_is_refused(tmp_path):
    """A store that syncs once a second is no store for DITHER_ACK=fsync."""
    with running_store(appendfsync="everysec") as store:
        status, log = _exit_of(tmp_path, store.url)
    assert (status, "appendfsync everysec" in log) == (4, True)


def test_a_changed_meaning_is_refused(tmp_path):
    """The second server, whose registry changed a metric without a new version, does not start."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    write_files(second, REGISTRY.replace("epsilon = 2.0", "epsilon = 3.0"))
    with running_store() as store:
        with running_server(first, store.url):
            pass
        status, log = _exit_of(second, store.url)
    assert status == 4
    assert "metric 'toolbar' version 1" in log
    assert "meaning changed without a new version" in log


def test_a_killed_worker_is_replaced_and_nothing_is_counted_twice(tmp_path):
    """A worker killed in the middle of traffic costs retries, and every batch is accepted exactly once."""
    import psutil  # noqa: PLC0415  # needed here alone
    import requests  # noqa: PLC0415  # needed here alone

    with running_store() as store, running_server(tmp_path, store.url) as server:
        sent = [_batch() for _ in range(60)]
        for place, document in enumerate(sent):
            if place % 20 == 10:
                for worker in psutil.Process(server.process.pid).children():
                    worker.kill()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    if server.post(document).status_code == 202:
                        break
                except requests.ConnectionError:
                    time.sleep(0.02)
        (_, accepted, _), entries = _received(store)
        assert (accepted, entries) == (60, 60)


def test_each_master_of_a_cluster_tells_its_own_memory(tmp_path: Path) -> None:
    """By its name; where one of them is away the rest is not the whole, and says so."""
    with running_cluster() as cluster:
        store = Store(settings(tmp_path, cluster.url), registry())
        store.catalogue()
        found = store.memory()
        assert {name.rpartition(":")[2] for name in found} == {str(node.port) for node in cluster.nodes}
        assert all(each is not None and each.policy == "noeviction" for each in found.values())
        cluster.nodes[1].kill()
        with pytest.raises(StoreUnavailable):
            store.memory()
