"""What each level of DITHER_ACK may lose, shown by killing real stores and promoting real replicas."""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest

from dither_server.app import create_app
from support.buckets import bucket_batch, counted, registry_text
from support.replicas import Pair, running_pair
from support.server import Clock, bearer, running_server, settings, write_files
from support.store import running_store

pytestmark = pytest.mark.usefixtures("engine")

_HANG_LIMIT_S = 60
_TODAY = Clock().now.date()


def _app(folder, store, ack, **changes):
    found = settings(folder, store.url, registry_text=registry_text(), ack=ack, **changes)
    return create_app(found, clock=Clock()).test_client()


def _batch(place):
    return bucket_batch(place, day=_TODAY)


def _post(app, document):
    return app.post("/v1/reports", json=document, headers=bearer())


def _acknowledged(app, places):
    """Those of the buckets whose batches were answered 202."""
    return {place for place in places if _post(app, _batch(place)).status_code == 202}


def _failing(app):
    answer = app.get("/readyz")
    return [] if answer.status_code == 200 else answer.get_json()["failing"]


def _counted_after_promotion(pair: Pair):
    """What is counted once the replica has taken over from a primary that was killed."""
    pair.primary.kill()
    return counted(pair.promote())


def test_replica_survives_a_promotion_under_load(tmp_path):
    """Killed under load, the primary takes nothing with it that was acknowledged: the promoted replica has it all."""
    write_files(tmp_path, registry_text())
    environ = {"DITHER_ACK": "replica", "DITHER_WORKERS": "2"}
    with running_pair() as pair, running_server(tmp_path, pair.primary.url, environ) as server:
        acknowledged, places, lock = set(), iter(range(2_000)), threading.Lock()
        killed = threading.Event()

        def send():
            while not killed.is_set():
                with lock:
                    place = next(places)
                if server.post(bucket_batch(place)).status_code == 202:
                    acknowledged.add(place)

        threads = [threading.Thread(target=send) for _ in range(6)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + _HANG_LIMIT_S
        while len(acknowledged) < 100 and time.monotonic() < deadline:
            time.sleep(0.01)
        pair.network.hold()  # so that there are batches which only the primary has
        time.sleep(0.7)  # longer than a replica is waited for
        pair.primary.kill()
        killed.set()
        for thread in threads:
            thread.join()
        promoted = counted(pair.promote())
    assert len(acknowledged) >= 100
    assert acknowledged <= promoted.keys()
    assert set(promoted.values()) == {1}


def test_fsync_alone_may_lose_to_a_promotion(tmp_path):
    """Nobody waits for the replica: what it has not got yet is acknowledged all the same, and a promotion loses it."""
    with running_pair() as pair:
        app = _app(tmp_path, pair.primary, "fsync")
        before = _acknowledged(app, range(20))
        pair.wait()
        pair.network.hold()
        after = _acknowledged(app, range(20, 40))
        assert (before, after) == (set(range(20)), set(range(20, 40)))
        assert _counted_after_promotion(pair) == dict.fromkeys(before, 1)


def test_replica_refuses_while_its_replica_is_hung(tmp_path):
    """A suspended replica is 503 and not ready; afterwards the same batches are taken, and counted once."""
    with running_pair() as pair:
        app = _app(tmp_path, pair.primary, "replica")
        assert _failing(app) == []
        documents = [_batch(place) for place in range(8)]
        os.kill(pair.replica.pid, signal.SIGSTOP)
        try:
            for document in documents:
                answer = _post(app, document)
                assert (answer.status_code, answer.get_json()["detail"]) == (
                    503, "the store is unavailable (replicas)",
                )  # fmt: skip
                assert "Retry-After" in answer.headers
            assert _failing(app) == ["replicas"]
        finally:
            os.kill(pair.replica.pid, signal.SIGCONT)
        deadline = time.monotonic() + _HANG_LIMIT_S
        while _failing(app):
            assert time.monotonic() < deadline
        # the first one is in the primary, the others were turned away at once since it had been in vain
        assert [_post(app, document).get_json()["duplicate"] for document in documents] == [True] + 7 * [
            False
        ]
        assert _counted_after_promotion(pair) == dict.fromkeys(range(8), 1)


def test_a_duplicate_waits_for_its_replica_too(tmp_path):
    """A retry is acknowledged only once the replica has what the first try wrote, not because the primary has it."""
    with running_pair() as pair:
        assert _post(_app(tmp_path, pair.primary, "replica"), _batch(0)).status_code == 202
        document = _batch(3)
        pair.network.hold()
        assert _post(_app(tmp_path, pair.primary, "replica"), document).status_code == 503
        assert _post(_app(tmp_path, pair.primary, "replica"), document).status_code == 503
        assert _post(_app(tmp_path, pair.primary, "fsync"), document).get_json()["duplicate"] is True
        assert _counted_after_promotion(pair) == {0: 1}


def test_more_replicas_than_there_are_is_not_ready(tmp_path):
    """The operator says how many; with one of two there is no 202."""
    with running_pair() as pair:
        app = _app(tmp_path, pair.primary, "replica", replicas=2)
        assert _failing(app) == ["replicas"]
        assert _post(app, _batch(0)).status_code == 503


def test_fsync_survives_the_end_of_the_store(tmp_path):
    """Killed with SIGKILL, a store that syncs always has all that was acknowledged."""
    with running_store() as store:
        acknowledged = _acknowledged(_app(tmp_path, store, "fsync"), range(100))
        store.kill()
        store.start()
        assert counted(store) == dict.fromkeys(acknowledged, 1)
    assert len(acknowledged) == 100


def test_memory_without_a_log_loses_all_with_the_store(tmp_path):
    """A store that keeps no log is empty after its end, whatever was acknowledged."""
    with running_store(appendonly="no") as store:
        assert len(_acknowledged(_app(tmp_path, store, "memory"), range(20))) == 20
        store.kill()
        store.start()
        assert store.dump() == {}


def test_memory_with_a_log_loses_little_with_the_store(tmp_path):
    """What was acknowledged two seconds before the end of a store that syncs once a second is in its log.

    Only the end of the machine would lose what the kernel has and the disk has not: no killed process shows that.
    """
    with running_store(appendfsync="everysec") as store:
        acknowledged = _acknowledged(_app(tmp_path, store, "memory"), range(50))
        assert len(acknowledged) == 50
        time.sleep(2)  # while a sync runs, the store may hold back for so long what it writes
        store.kill()
        store.start()
        assert counted(store) == dict.fromkeys(acknowledged, 1)


def test_a_server_follows_its_address_to_the_promoted_replica(tmp_path):
    """A planned change: the old primary lives on and takes no writes, and its open connections are not kept for it."""
    with running_pair() as pair:
        address = pair.replica.folder / "current.sock"  # stands for a name or an address that is moved
        address.symlink_to(pair.primary.folder / "s.sock")
        found = settings(tmp_path, f"unix://{address}", registry_text=registry_text(), ack="fsync")
        app = create_app(found, clock=Clock()).test_client()
        assert _acknowledged(app, range(10)) == set(range(10))
        pair.wait()
        promoted = pair.promote()
        with pair.primary.client() as client:
            client.replicaof("127.0.0.1", 1)
        address.unlink()
        address.symlink_to(promoted.folder / "s.sock")
        answer = _post(app, _batch(10))
        assert (answer.status_code, answer.get_json()["detail"]) == (
            503,
            "the store is unavailable (readonly)",
        )
        assert _acknowledged(app, range(10, 20)) == set(range(10, 20))
        assert counted(promoted) == dict.fromkeys(range(20), 1)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize(
    ("ack", "appendfsync", "order"),
    [
        ("fsync", "always", ["call", "log", "sync", "answer"]),
        ("memory", "everysec", ["call", "log", "answer"]),
    ],
)
def test_the_log_is_on_the_disk_before_the_answer(tmp_path, ack, appendfsync, order):
    """What no killed process can show, the store's system calls do: it answers after its sync, or without waiting."""
    with running_store(appendfsync=appendfsync) as store:
        app = _app(tmp_path, store, ack)
        assert _acknowledged(app, {0}) == {0}
        with _traced(store.pid, tmp_path / "trace") as seen:
            assert _acknowledged(app, {1}) == {1}
            deadline = time.monotonic() + _HANG_LIMIT_S
            while "answer" not in seen():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            found = seen()
    assert found[: found.index("answer") + 1] == order


_STEPS = {
    "call": re.compile(r'^read\(\d+, "\*'),
    "log": re.compile(r'^write\(\d+, "\*'),
    "sync": re.compile(r"^f(data)?sync\("),
    "answer": re.compile(r'^write\(\d+, ":1'),
}


@contextmanager
def _traced(pid, path):
    """Gives a function: what the thread of a store that answers has done since then, its steps in their order."""
    command = ["strace", "-p", str(pid), "-e", "trace=read,write,fdatasync,fsync", "-o", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as strace:
        try:
            if b"attached" not in strace.stderr.readline():
                pytest.skip("this machine does not let a process be traced")
            yield lambda: [
                step
                for line in path.read_text().splitlines()
                for step, looks in _STEPS.items()
                if looks.match(line)
            ]
        finally:
            strace.send_signal(signal.SIGINT)
