"""Pruning beside counting: no cell comes back, nothing is lost or counted twice, and the books balance."""

import threading
from typing import Any

import pytest

from dither_estimator.archive_claim import Claims
from dither_estimator.pruning import Pruned
from dither_estimator.store import Store
from dither_protocol import storage
from dither_protocol.registry import Registry
from dither_protocol.storage import Cell, PartitionKeys
from support.retention import (
    LONG_AGO,
    RECENT,
    announce_retention,
    dark,
    day,
    everything,
    fill,
    index_entry,
    partition_pruner,
    prune,
)
from support.store import Store as Valkey
from support.worker_store import append_entry, new_worker, partition_keys, read_cell

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def filled(valkey: Valkey, registry: Registry) -> Valkey:
    """Reports of old and new windows, counted, published and closed; nothing expires."""
    fill(valkey)
    return valkey


def test_an_apply_that_read_a_cell_before_the_prune_writes_nothing(filled: Valkey) -> None:
    """A prune marks the checkpoint: a commit that was computed from the cell before fails, and is computed anew."""

    class Beaten(Store):
        """A store that is pruned once between reading the cells and writing them."""

        pruned = False

        def cells(self, partition: int, names: Any) -> list[bytes | None]:
            """The cells as they are before the prune."""
            found = super().cells(partition, names)
            if not self.pruned:
                self.pruned = True
                _, pruner = partition_pruner(filled)
                assert sum(pruner.partition(partition_keys(0), everything, waiting=True), Pruned()).cells == 5
            return found

    append_entry(filled, 0, index_entry(dark(RECENT), 0, 0))
    worker = new_worker(filled)
    worker._store = Beaten(filled.url)
    assert worker.count()  # beaten: there is more to do
    assert read_cell(filled, 0, dark(RECENT).name) is None
    worker.count()
    assert read_cell(filled, 0, dark(RECENT).name) == (2, [2, 0])


def test_a_prune_whose_checkpoint_moves_on_begins_again(filled: Valkey) -> None:
    """The worker commits between the prune's reading and its script: nothing of that is lost, nor counted again.

    An archive keeps what is counted in the stream, so a checkpoint that was put back would be noticed.
    """
    announce_retention(filled, dark_mode=30)
    assert Claims(Store(filled.url)).claim(partition_keys(0), None)

    class Overtaken(Store):
        """A store in which a worker commits just before the first prune."""

        overtaken = False

        def run(self, script: str, keys: Any, arguments: Any) -> Any:
            """The script, after a commit."""
            if script == "prune" and not self.overtaken:
                self.overtaken = True
                append_entry(filled, 0, index_entry(dark(RECENT), 1))
                new_worker(filled).count()
            return super().run(script, keys, arguments)

    prune(filled, Overtaken(filled.url))
    assert filled.client().xlen(partition_keys(0).stream) == 1
    new_worker(filled).count()
    assert read_cell(filled, 0, dark(LONG_AGO).name) is None
    assert read_cell(filled, 0, dark(RECENT).name) == (4, [1, 3])


def admit(valkey: Valkey, keys: PartitionKeys, cell: Cell, *indexes: int) -> None:
    """What the admit script does with an accepted batch, in one transaction."""
    entry = index_entry(cell, *indexes)
    with valkey.client().pipeline(transaction=True) as pipe:
        pipe.xadd(keys.stream, {storage.ENTRY_FIELD: entry})
        pipe.incrby(keys.backlog, len(entry))
        pipe.sadd(keys.outcomes, f"{cell.metric}:{cell.window}")
        for word in ("received", "accepted"):
            pipe.hincrby(keys.outcome(cell.metric, cell.window), word, len(indexes))
        pipe.execute()


def balance(valkey: Valkey, keys: PartitionKeys, metric: str, label: str) -> int:
    """Accepted less counted and dead: what must be in flight."""
    found = valkey.client(decode=True).hgetall(keys.outcome(metric, label))
    assert int(found.get("received", 0)) == int(found.get("accepted", 0))
    return int(found.get("accepted", 0)) - int(found.get("counted", 0)) - int(found.get("dead", 0))


def test_the_books_balance_after_an_open_window_was_pruned(filled: Valkey) -> None:
    """What is accepted and not counted stays on the account, and balances once it is counted."""
    keys = partition_keys(2)
    admit(filled, keys, dark(0), 1, 1, 0)
    new_worker(filled).count()
    admit(filled, keys, dark(0), 1)
    _, pruner = partition_pruner(filled)
    sum(pruner.partition(keys, everything, waiting=True), Pruned())
    assert read_cell(filled, 2, dark(0).name) is None
    assert balance(filled, keys, "dark_mode", day(0)) == 1
    new_worker(filled).count()
    assert read_cell(filled, 2, dark(0).name) == (1, [0, 1])
    assert balance(filled, keys, "dark_mode", day(0)) == 0


def test_pruning_and_counting_at_once_lose_and_double_nothing(filled: Valkey) -> None:
    """Two workers count while everything is pruned again and again: the books balance, and no cell comes back."""
    stop = threading.Event()

    def count() -> None:
        worker = new_worker(filled)
        while not stop.is_set():
            worker.count()

    def forget() -> None:
        _, pruner = partition_pruner(filled)
        while not stop.is_set():
            sum(pruner.partition(partition_keys(0), everything, waiting=True), Pruned())

    threads = [threading.Thread(target=target) for target in (count, count, forget)]
    for thread in threads:
        thread.start()
    for number in range(300):
        admit(filled, partition_keys(0), dark(0), number % 2)
    stop.set()
    for thread in threads:
        thread.join(60)
    while new_worker(filled).count():
        pass
    packed = filled.client().get(partition_keys(0).cell(dark(0).name))
    account = filled.client(decode=True).hgetall(partition_keys(0).outcome("dark_mode", day(0)))
    n = storage.decode_cell(packed)[0] if packed else 0
    assert balance(filled, partition_keys(0), "dark_mode", day(0)) == 0
    assert n == int(account.get("counted", 0)) <= 300


def test_a_step_touches_a_bounded_number_of_keys(filled: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of many cells goes in several steps, its account with the last."""
    monkeypatch.setattr("dither_estimator.pruning.STEP_KEYS", 2)
    keys = partition_keys(0)
    names = [
        Cell("browser", 1, day(LONG_AGO), (("channel", channel), ("os", os))).name
        for channel in ("beta", "stable")
        for os in ("linux", "macos")
    ]
    filled.client().mset({keys.cell(name): storage.encode_cell(1, [1, 0, 0, 0]) for name in names})
    _, pruner = partition_pruner(filled)
    steps = list(
        pruner.partition(
            keys, lambda metric, label: (metric, label) == ("browser", day(LONG_AGO)), waiting=False
        )
    )
    assert [(step.cells, step.accounts) for step in steps] == [(2, 0), (2, 1)]
    assert not filled.client().exists(*map(keys.cell, names))
