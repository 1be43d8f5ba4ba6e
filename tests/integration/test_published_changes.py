"""What a round of publishing touches: what has changed, and as often as that is of use."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from dither_estimator import publisher
from dither_estimator.store import Store, StoreUnavailableError
from dither_estimator.worker import Worker, run
from dither_protocol.registry import Registry
from dither_protocol.storage import Cell, encode_entry
from support.store import Store as Valkey
from support.worker_store import (
    DARK,
    DAY,
    PARTITIONS,
    append_entry,
    dark_entry,
    day,
    new_worker,
    partition_keys,
    published_estimates,
)

pytestmark = pytest.mark.usefixtures("engine")

THIS_WEEK, LAST_WEEK = "2126-W48", "2126-W47"


class WatchedStore(Store):
    """Notes which cells are read for publishing, and which estimates are written."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.read: list[str] = []
        self.written: list[tuple[str, str]] = []

    def cells_by_partition(self, names: Sequence[str]) -> list[list[bytes | None]]:
        """The cells."""
        self.read += names
        return super().cells_by_partition(names)

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        """Every script but the worker's own."""
        if script == "publish":
            self.written += [(keys[0], str(field)) for field in arguments[6::4]]
        return super().run(script, keys, arguments)


def _colour(window: str, os: str) -> bytes:
    return encode_entry([(Cell("color", 2, window, (("os", os),)).name, [b"\x01"])])


def _filled(valkey: Valkey) -> None:
    """Cells of two metrics and several windows, in several partitions, counted and published."""
    for partition in range(PARTITIONS):
        for window in (THIS_WEEK, LAST_WEEK):
            append_entry(valkey, partition, _colour(window, "linux"))
            append_entry(valkey, partition, _colour(window, "macos"))
        append_entry(valkey, partition, dark_entry(1, 0, window=day(1)))
        append_entry(valkey, partition, dark_entry(1, 0, window=day(2)))
    new_worker(valkey).tick()


def test_only_what_changed_is_read_and_published(valkey: Valkey, registry: Registry) -> None:
    """One report: its window's cells are read, for their sum; its cell and that sum are published, and nothing else."""
    _filled(valkey)
    before = published_estimates(valkey, "color", 2)
    others = published_estimates(valkey, "dark_mode", 1)
    store = WatchedStore(valkey.url)
    worker = Worker(store)
    append_entry(valkey, 1, _colour(THIS_WEEK, "linux"))
    worker.count()
    with valkey.client() as client:
        client.config_resetstat()
        worker.publish(60)
        calls = {name: found["calls"] for name, found in client.info("commandstats").items()}
    linux, macos = (Cell("color", 2, THIS_WEEK, (("os", os),)).name for os in ("linux", "macos"))
    key = f"dither:estimate:{{color}}:2:{THIS_WEEK}"
    assert store.written == [(key, "*"), (key, "os=linux")]
    assert store.read == [linux, macos, linux]
    after = published_estimates(valkey, "color", 2)
    changed = {field for field, document in after.items() if document != before[field]}
    assert changed == {f"{THIS_WEEK}|*", f"{THIS_WEEK}|os=linux"}
    assert published_estimates(valkey, "dark_mode", 1) == others
    assert calls["cmdstat_mget"] == 2 * PARTITIONS  # the sum, the cell
    assert calls["cmdstat_hset"] == 4  # two estimates, each with what the script keeps beside it
    assert calls["cmdstat_hdel"] == 1  # the mark


def test_where_nothing_changed_nothing_is_published(valkey: Valkey, registry: Registry) -> None:
    """A round without marks reads and writes no cell and no estimate."""
    _filled(valkey)
    store = WatchedStore(valkey.url)
    worker = Worker(store)
    for _ in range(3):
        worker.tick()
    assert (store.read, store.written) == ([], [])


def test_marks_go_when_a_round_ends_however_few_they_are(valkey: Valkey, registry: Registry) -> None:
    """They are taken off many at a time; what is left at the end of a round is not forgotten."""
    _filled(valkey)
    assert [valkey.client().hlen(partition_keys(partition).dirty) for partition in range(PARTITIONS)] == [
        0
    ] * PARTITIONS


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round is taken for one that took long."""
    monkeypatch.setattr(publisher, "REST", 1e9)


def _n(valkey: Valkey) -> int:
    n: int = published_estimates(valkey, "dark_mode", 1)[f"{DAY}|*"]["n"]
    return n


def test_after_a_long_round_publishing_rests(valkey: Valkey, registry: Registry, slow: None) -> None:
    """Counting goes on, the mark stays, and whoever does not want to wait is not kept waiting."""
    worker = new_worker(valkey)
    append_entry(valkey, 0, dark_entry(1))
    worker.tick()
    append_entry(valkey, 0, dark_entry(1))
    assert not worker.tick()
    assert _n(valkey) == 1
    assert valkey.client().hkeys(partition_keys(0).dirty) == [DARK.encode()]
    worker.publish(60, resting=False)
    assert _n(valkey) == 2
    assert not valkey.client().exists(partition_keys(0).dirty)


def test_a_worker_that_stops_does_not_rest(valkey: Valkey, registry: Registry, slow: None) -> None:
    """What it has counted last is published before it leaves."""
    worker = new_worker(valkey)
    append_entry(valkey, 0, dark_entry(1))
    worker.tick()
    append_entry(valkey, 0, dark_entry(1))
    stop = threading.Event()
    stop.set()
    run(worker, stop)
    assert _n(valkey) == 2


class _Clock:
    """Stands for the module ``time``; every look at it takes a microsecond."""

    now = 1_000.0

    def monotonic(self) -> float:
        """Seconds."""
        self.now += 1e-6
        return self.now


def test_a_rest_ends(valkey: Valkey, registry: Registry, slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lasts for a minute at most, however long the round took."""
    clock = _Clock()
    monkeypatch.setattr(publisher, "time", clock)
    worker = new_worker(valkey)
    for later, expected in ((0, 1), (59, 1), (2, 3)):
        append_entry(valkey, 0, dark_entry(1))
        clock.now += later
        worker.tick()
        assert _n(valkey) == expected


def test_nobody_rests_from_a_round_that_the_store_ended(
    valkey: Valkey, registry: Registry, slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took long because the store was silent; as soon as that answers, what is marked is published."""
    worker = new_worker(valkey)
    append_entry(valkey, 0, dark_entry(1))
    worker.count()

    def silent(*_: object) -> None:
        raise StoreUnavailableError("no answer")

    with monkeypatch.context() as outage:
        outage.setattr(Store, "cells_by_partition", silent)
        with pytest.raises(StoreUnavailableError):
            worker.tick()
    worker.tick()
    assert _n(valkey) == 1


def test_a_round_that_is_begun_is_ended(valkey: Valkey, registry: Registry, slow: None) -> None:
    """Between its steps there is no rest, though it was begun while one lasted."""
    worker = new_worker(valkey)
    append_entry(valkey, 0, dark_entry(1))
    worker.tick()
    for os in ("linux", "macos"):
        append_entry(valkey, 0, _colour(THIS_WEEK, os))
    worker.count()
    assert worker.publish(0.0, resting=False)
    steps = 1
    while worker.publish(0.0):
        steps += 1
    assert steps > 2
    assert len(published_estimates(valkey, "color", 2)) == 3
