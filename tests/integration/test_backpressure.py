"""Whatever is wrong with the store, a batch is refused soon, said to be worth a retry, and taken without a restart."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from support.buckets import bucket_batch, counted, registry_text
from support.server import Server, bearer, running_server, write_files
from support.store import Store, running_store

LIMIT_S = 3.0
"""A refusal comes within this time: that is promised. Where the store is silent, it takes its read timeout of 1 s."""

_HANG_LIMIT_S = 60
_AT_ONCE = 32


@dataclass
class Site:
    """A server over a store, the folder that says how full its disk is, and every batch that was sent to it."""

    store: Store
    server: Server
    disk: Path
    sent: list[dict[str, Any]] = field(default_factory=list)

    def batch(self) -> dict[str, Any]:
        """One that was not sent before."""
        self.sent.append(bucket_batch(len(self.sent)))
        return self.sent[-1]

    def post(self, document: dict[str, Any]) -> tuple[requests.Response, float]:
        """The answer, and how long it took in seconds."""
        begun = time.monotonic()
        answer = requests.post(
            f"{self.server.url}/v1/reports", json=document, headers=bearer(), timeout=_HANG_LIMIT_S
        )
        return answer, time.monotonic() - begun

    def failing(self) -> list[str]:
        """The checks that fail, empty where it is ready."""
        answer = self.server.get("/readyz", None)
        return [] if answer.status_code == 200 else answer.json()["failing"]

    def processes(self) -> set[int]:
        """Its master and its workers."""
        return {self.server.process.pid, *(c.pid for c in psutil.Process(self.server.process.pid).children())}


@pytest.fixture(scope="module")
def site(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One store and one server for all faults: none of them may need a restart."""
    folder = tmp_path_factory.mktemp("backpressure")
    write_files(folder, registry_text())
    disk = folder / "disk"
    disk.symlink_to(folder)
    environ = {"DITHER_WORKERS": "2", "DITHER_THREADS": "8"}
    environ |= {"DITHER_STORE_PATH": str(disk), "DITHER_MIN_FREE_BYTES": "1"}
    with running_store() as store, running_server(folder, store.url, environ) as server:
        yield Site(store, server, disk)


def _refused_at_once(site: Site, kind: str) -> list[dict[str, Any]]:
    """Batches sent by many threads together, all refused soon, with the word that says why."""
    batches = [site.batch() for _ in range(_AT_ONCE)]
    found: list[tuple[requests.Response, float]] = []
    threads = [threading.Thread(target=lambda b=b: found.append(site.post(b))) for b in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == _AT_ONCE
    for answer, took_s in found:
        _is_refused(answer, kind)
        assert took_s < LIMIT_S
    return batches


def _is_refused(answer: requests.Response, kind: str) -> None:
    assert answer.status_code == 503, answer.text
    problem = answer.json()
    assert (problem["type"], problem["retryable"]) == ("store-unavailable", True)
    assert problem["detail"] in (
        f"the store is unavailable ({kind})",
        "the store is unavailable (preparing)",
    )
    assert int(answer.headers["Retry-After"]) > 0


def _taken_in_the_end(site: Site, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers to batches that are sent until they are taken."""
    deadline = time.monotonic() + _HANG_LIMIT_S
    taken = []
    for document in batches:
        while (answer := site.post(document)[0]).status_code != 202:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        taken.append(answer.json())
    return taken


def _ready_in_the_end(site: Site) -> None:
    """Each process finds out for itself that it is over, within its pause."""
    deadline = time.monotonic() + _HANG_LIMIT_S
    while site.failing():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _replicaof(store: Store, *where: str) -> None:
    with store.client() as client:
        client.execute_command("REPLICAOF", *where)


def _set(store: Store, **options: str) -> None:
    with store.client() as client:
        for name, value in options.items():
            client.config_set(name.replace("_", "-"), value)


def _may_write(store: Store, most_bytes: int) -> None:
    """Let files of the store grow so far and no further: what a full disk is to it, in this one process."""
    _, hard = resource.prlimit(store.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(store.pid, resource.RLIMIT_FSIZE, (most_bytes, hard))


def _fill_disk_of_a_store_that_syncs_later(store: Store) -> None:
    _set(store, appendfsync="everysec")
    _may_write(store, 1)
    with store.client() as client:
        client.set("filler", "x")  # the first write still succeeds, the flush after it does not


def _empty_disk_of_a_store_that_syncs_later(store: Store) -> None:
    _may_write(store, resource.RLIM_INFINITY)
    deadline = time.monotonic() + _HANG_LIMIT_S
    with store.client() as client:
        while client.info("persistence")["aof_last_write_status"] != "ok":  # it tries again once a second
            assert time.monotonic() < deadline
            time.sleep(0.05)
    _set(store, appendfsync="always")


@dataclass(frozen=True)
class Trouble:
    """One thing that may be wrong with a store.

    Attributes:
        begins, ends: make it so, and put it right.
        kind: the word in the refusal.
    """

    begins: Callable[[Store], None]
    ends: Callable[[Store], None]
    kind: str


TROUBLES = {
    "down": Trouble(Store.kill, Store.start, "connection"),
    "hung": Trouble(
        lambda store: os.kill(store.pid, signal.SIGSTOP),
        lambda store: os.kill(store.pid, signal.SIGCONT),
        "timeout",
    ),
    "read-only": Trouble(
        lambda store: _replicaof(store, "127.0.0.1", "1"),
        lambda store: _replicaof(store, "NO", "ONE"),
        "readonly",
    ),
    "out of memory": Trouble(
        lambda store: _set(store, maxmemory="1"), lambda store: _set(store, maxmemory="256mb"), "refusing"
    ),
    "full disk": Trouble(
        _fill_disk_of_a_store_that_syncs_later, _empty_disk_of_a_store_that_syncs_later, "refusing"
    ),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_store_in_trouble_refuses_soon_and_comes_back(site: Site, name: str) -> None:
    """503 with Retry-After within the limit for all of many threads, not ready, and in the end nothing is lost."""
    trouble = TROUBLES[name]
    before, processes = [site.batch() for _ in range(8)], site.processes()
    _taken_in_the_end(site, before)
    trouble.begins(site.store)
    try:
        refused = _refused_at_once(site, trouble.kind)
        begun = time.monotonic()
        assert site.failing() == ["store-writable"]
        assert time.monotonic() - begun < LIMIT_S
        assert site.server.get("/healthz", None).status_code == 200
    finally:
        trouble.ends(site.store)
    _taken_in_the_end(site, refused)
    _ready_in_the_end(site)
    assert site.processes() == processes
    assert all(answer["duplicate"] for answer in _taken_in_the_end(site, before))
    assert counted(site.store) == dict.fromkeys(range(len(site.sent)), 1)


def test_a_loading_store_refuses_until_it_has_read_its_log(site: Site) -> None:
    """A store that reads a large log at its start is not ready, and is used as soon as it is."""
    with site.store.client() as client:
        client.mset({f"filler:{place}": "x" * 100 for place in range(1_000)})
        client.bgrewriteaof()  # a snapshot is read key by key, with a look at its clients in between
        while client.info("persistence")["aof_rewrite_in_progress"] or _rewrites(client) == 0:
            time.sleep(0.02)
    site.store.kill()
    slowly = {"key-load-delay": "700", "loading-process-events-interval-bytes": "1024"}
    site.store.settings |= slowly  # microseconds for each key
    starting = threading.Thread(target=site.store.start)
    starting.start()
    try:
        loading = False
        while not loading and starting.is_alive():
            answer, took_s = site.post(site.batch())
            assert took_s < LIMIT_S
            loading = answer.status_code == 503 and "(loading)" in answer.json()["detail"]
        assert loading
        assert site.failing() == ["store-writable"]
    finally:
        starting.join()
        site.store.settings = {name: v for name, v in site.store.settings.items() if name not in slowly}
    _taken_in_the_end(site, site.sent)
    _ready_in_the_end(site)
    assert counted(site.store) == dict.fromkeys(range(len(site.sent)), 1)


def _rewrites(client: Any) -> int:
    return int(client.info("persistence")["aof_rewrites"])


def test_a_store_that_syncs_always_ends_on_a_full_disk_and_loses_nothing(site: Site) -> None:
    """It cannot keep its promise and ends; started again with room, it has all that it acknowledged and no more."""
    before = [site.batch() for _ in range(8)]
    _taken_in_the_end(site, before)
    _may_write(site.store, 1)
    refused = _refused_at_once(site, "connection")
    assert site.failing() == ["store-writable"]
    site.store.kill()
    site.store.start()
    assert all(answer["duplicate"] for answer in _taken_in_the_end(site, before))
    _taken_in_the_end(site, refused)
    assert counted(site.store) == dict.fromkeys(range(len(site.sent)), 1)


def test_a_disk_without_room_is_left_alone(site: Site) -> None:
    """Below the floor batches are refused and no byte is written; with room again they are taken."""
    _taken_in_the_end(site, [site.batch()])
    folder = site.disk.readlink()
    _lead(site.disk, Path("/proc"))  # a file system without one free block
    before = site.store.dump()
    refused = [site.batch() for _ in range(8)]
    for (
        document
    ) in refused:  # one by one: while a process looks, its other threads go by what was found before
        _is_refused(site.post(document)[0], "disk")
    assert site.failing() == ["disk"]
    assert site.store.dump() == before
    _lead(site.disk, folder)
    _taken_in_the_end(site, refused)
    _ready_in_the_end(site)
    assert counted(site.store) == dict.fromkeys(range(len(site.sent)), 1)


def _lead(link: Path, folder: Path) -> None:
    link.unlink()
    link.symlink_to(folder)
    time.sleep(1)  # it is looked at once a second


def test_a_backlog_is_refused_before_memory_runs_out(engine: str, tmp_path: Path) -> None:
    """Without counting, a small store says overloaded and never out of memory; counting alone makes room again."""
    write_files(tmp_path, registry_text())
    with (
        running_store(maxmemory="4mb") as store,
        running_server(tmp_path, store.url, {"DITHER_PARTITIONS": "2"}) as server,
    ):
        site = Site(store, server, tmp_path)
        answers = [_post_much(site) for _ in range(20)]
        while {answer.status_code for answer in answers[-20:]} != {503}:
            answers.append(_post_much(site))
        assert {answer.json()["type"] for answer in answers if answer.status_code == 503} == {"overloaded"}
        assert site.failing() == ["backlog"]
        waiting = list(site.sent)
        while waiting:
            counted(store, partitions=2)
            waiting = [document for document in waiting if site.post(document)[0].status_code != 202]
        assert counted(store, partitions=2) == dict.fromkeys(range(len(site.sent)), 1)
        _ready_in_the_end(site)


def _post_much(site: Site) -> requests.Response:
    """The answer to a batch of 50 kB."""
    site.sent.append(bucket_batch(len(site.sent), padding=200))
    return site.post(site.sent[-1])[0]
