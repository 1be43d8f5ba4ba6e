"""Retention against a real store: what its time has come for goes, everywhere, and nothing else."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dither_estimator.archive_claim import Claims
from dither_estimator.definitions import Definitions
from dither_estimator.expiry import Calendar
from dither_estimator.pruning import Pruned, Pruner
from dither_estimator.retention import Retention
from dither_estimator.store import Store
from dither_protocol import storage
from dither_protocol.registry import Registry
from dither_protocol.storage import Cell, PartitionKeys
from support.retention import announce_retention, day, index_entry, keys_about
from support.store import Store as Valkey
from support.worker_store import (
    PARTITIONS,
    append_entry,
    new_worker,
    partition_keys,
    published_estimates,
    read_cell,
)

pytestmark = pytest.mark.usefixtures("engine")

LONG_AGO, RECENT = 40, 2
DIMENSIONS = (("channel", "beta"), ("os", "linux"))


def dark(days_ago: int) -> Cell:
    """The cell of `dark_mode` so many days ago."""
    return Cell("dark_mode", 1, day(days_ago), ())


def browser(days_ago: int, version: int = 1) -> Cell:
    """A cell of `browser` so many days ago."""
    return Cell("browser", version, day(days_ago), DIMENSIONS)


@pytest.fixture
def filled(valkey: Valkey, registry: Registry) -> Valkey:
    """Reports of old and new windows, counted, published and closed; nothing expires."""
    announce_retention(valkey)
    for cell in (
        dark(LONG_AGO),
        dark(RECENT),
        browser(LONG_AGO),
        browser(RECENT),
        Cell("first_use", 1, "once", ()),
    ):
        append_entry(valkey, 0, index_entry(cell, 0, 1, 1))
        append_entry(valkey, 3, index_entry(cell, 0))
    worker = new_worker(valkey)
    while worker.tick():
        pass
    assert published_estimates(valkey, "dark_mode", 1)[f"{day(LONG_AGO)}|*"]["n"] == 4
    return valkey


def prune(valkey: Valkey, store: Store | None = None, clock: Any = None, **arguments: Any) -> None:
    """One whole round of a worker that has all partitions."""
    store = store or Store(valkey.url)
    store.open()
    clock = clock or (lambda: datetime.now(UTC))
    retention = Retention(store, Definitions(store), clock=clock)
    arguments = {"publishing": True, "budget_s": 60.0} | arguments
    retention.prune(PARTITIONS, range(PARTITIONS), **arguments)


def partition_pruner(valkey: Valkey) -> tuple[Store, Pruner]:
    """A store, and a pruner on it."""
    store = Store(valkey.url)
    store.open()
    return store, Pruner(store, Calendar(store, Definitions(store)))


def everything(_: str, __: str) -> bool:
    """Choose every window."""
    return True


def test_an_expired_window_leaves_no_trace(filled: Valkey) -> None:
    """Counters, accounts, marks, estimates, totals, rollups and index entries go; other windows and metrics stay."""
    filled.client().hset(partition_keys(0).dirty, dark(LONG_AGO).name, "5-0")
    before = filled.dump()
    traces = {metric: keys_about(filled, metric, day(LONG_AGO)) for metric in ("dark_mode", "browser")}
    # cells, accounts and their index entries in two partitions, a mark; estimate, rollups, total
    assert len(traces["dark_mode"]) >= 13
    announce_retention(filled, dark_mode=30, browser=30)
    prune(filled)
    for metric in ("dark_mode", "browser"):
        assert keys_about(filled, metric, day(LONG_AGO)) == set()
        assert published_estimates(filled, metric, 1)[f"{day(RECENT)}|*"]["n"] == 4
    assert read_cell(filled, 0, dark(LONG_AGO).name) is None
    assert read_cell(filled, 0, dark(RECENT).name) == (3, [1, 2])
    after = filled.dump()
    gone = {key.decode() for key in before.keys() - after.keys()}
    lapsed = {key for key in gone if key.endswith((":lease", ":publisher", ":dirty"))}
    # Of `browser` the new window is open: the only total and the only rollups were those of the old one.
    emptied = {key for key in gone if key.startswith(("dither:totals:{browser}", "dither:rollup:{browser}"))}
    assert gone - lapsed - emptied
    assert all(day(LONG_AGO) in key for key in gone - lapsed - emptied)
    assert after.keys() - before.keys() == {b"dither:pruned"} - before.keys()


def test_a_metric_without_retention_is_kept_for_ever(filled: Valkey) -> None:
    """No key of the registry, no forgetting: a prune changes nothing."""
    before = filled.dump()
    prune(filled)
    before.pop(b"dither:pruned"), (after := filled.dump()).pop(b"dither:pruned")
    assert after == before


def test_the_worker_prunes_at_its_start_and_every_hour(
    filled: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new worker's first tick forgets; the next round comes after the interval, and with the new definitions."""
    announce_retention(filled, dark_mode=30)
    worker = new_worker(filled)
    worker.tick()
    assert read_cell(filled, 0, dark(LONG_AGO).name) is None
    assert read_cell(filled, 0, browser(LONG_AGO).name) == (3, [1, 2, 0, 0])
    announce_retention(filled, dark_mode=30, browser=30)
    monkeypatch.setattr("dither_estimator.definitions.DEFINITIONS_AGE_S", 0.0)
    worker.tick()
    assert read_cell(filled, 0, browser(LONG_AGO).name) is not None  # not yet
    monkeypatch.setattr(worker._retention, "_due", float("-inf"))
    worker._definitions._until = 0.0
    worker.tick()
    assert read_cell(filled, 0, browser(LONG_AGO).name) is None


class ClockedStore(Store):
    """A real store whose clock a test sets."""

    time = datetime.now(UTC)

    def now(self) -> datetime:
        """What it was set to."""
        return self.time


@pytest.mark.parametrize(("metric", "late_days"), [("dark_mode", 0), ("browser", 3)])
def test_a_window_goes_when_its_days_are_over_and_not_a_moment_before(
    filled: Valkey, metric: str, late_days: int
) -> None:
    """`retention_days` after its end and its late days: until then everything is there."""
    announce_retention(filled, **{metric: 30})
    cell = dark(RECENT) if metric == "dark_mode" else browser(RECENT)
    end = datetime.fromisoformat(f"{day(RECENT)}T00:00:00+00:00") + timedelta(days=1)
    store = ClockedStore(filled.url)
    expires = end + timedelta(days=late_days + 30)
    for moment in (expires - timedelta(microseconds=1), expires):
        assert read_cell(filled, 0, cell.name) is not None
        filled.client().delete(storage.PRUNED_KEY)
        store.time = moment
        prune(filled, store, clock=lambda: store.time)
    assert read_cell(filled, 0, cell.name) is None


def test_a_once_window_goes_after_its_metric_has_expired(filled: Valkey) -> None:
    """Its end is the end of the day `expires`."""
    cell = Cell("first_use", 1, "once", ())
    announce_retention(filled, first_use=1)
    assert read_cell(filled, 0, cell.name) is not None
    prune(filled)
    assert read_cell(filled, 0, cell.name) is None
    assert published_estimates(filled, "first_use", 1) == {}


def test_the_newest_version_decides_for_all(filled: Valkey) -> None:
    """One rule for a metric: version 2 sets a retention, and the windows of version 1 go as well."""
    announce_retention(filled, version=2, browser=30)
    prune(filled)
    assert keys_about(filled, "browser", day(LONG_AGO)) == set()
    assert read_cell(filled, 0, browser(RECENT).name) is not None


def test_a_version_that_cannot_be_read_stops_the_pruning_of_its_metric(
    filled: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """Its cells cannot be listed, so nothing of the metric goes; the others are pruned, and it is said."""
    announce_retention(filled, dark_mode=30, browser=30)
    filled.client().sadd(storage.versions_key("browser"), 7)
    prune(filled)
    assert read_cell(filled, 0, browser(LONG_AGO).name) is not None
    assert read_cell(filled, 0, dark(LONG_AGO).name) is None
    assert "nothing of metric 'browser' can be pruned" in caplog.text


def test_a_window_waits_for_entries_that_may_be_about_it(filled: Valkey) -> None:
    """A worker was away for long: what it has still to count is counted first, and forgotten by the next prune."""
    announce_retention(filled, dark_mode=30)
    client = filled.client()
    old = int((datetime.now(UTC) - timedelta(days=LONG_AGO - 1)).timestamp() * 1_000)
    keys = partition_keys(1)  # nothing was counted there so far, so an old id is possible
    client.xadd(keys.stream, {storage.ENTRY_FIELD: index_entry(dark(LONG_AGO), 1)}, id=f"{old}-0")
    client.sadd(keys.outcomes, f"dark_mode:{day(LONG_AGO)}")
    client.hset(keys.outcome("dark_mode", day(LONG_AGO)), mapping={"received": 1, "accepted": 1})
    prune(filled)
    assert client.hget(keys.outcome("dark_mode", day(LONG_AGO)), "accepted") == b"1"
    assert read_cell(filled, 0, dark(LONG_AGO).name) is None  # another partition need not wait
    while new_worker(filled).tick():
        pass
    filled.client().delete(storage.PRUNED_KEY)
    prune(filled)
    assert keys_about(filled, "dark_mode", day(LONG_AGO)) == set()


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


def test_nothing_goes_while_two_clocks_disagree(filled: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    """The store's clock is a year ahead of the worker's: it is said, and nothing is forgotten."""
    announce_retention(filled, dark_mode=30, browser=30)
    store = ClockedStore(filled.url)
    store.time = datetime.now(UTC) + timedelta(days=365)
    before = filled.dump()
    prune(filled, store)
    assert filled.dump() == before
    assert "nothing is forgotten" in caplog.text
    assert "365.0 days apart" in caplog.text


def test_nothing_goes_for_a_day_after_the_only_clock_has_jumped(
    filled: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """Where both clocks are one: the time since the last prune tells, over restarts too; after a day it is believed."""
    announce_retention(filled, dark_mode=300)
    store = ClockedStore(filled.url)
    jump = datetime.now(UTC) + timedelta(days=365)
    for hours, there in ((0, True), (23, True), (24, False)):
        store.time = jump + timedelta(hours=hours)
        prune(filled, store, clock=lambda: store.time)
        assert (read_cell(filled, 0, dark(LONG_AGO).name) is not None) is there
    assert caplog.text.count("may have jumped") == 2


def test_entries_that_were_set_aside_are_forgotten_after_thirty_days(filled: Valkey) -> None:
    """They hold reports as well."""
    client, keys = filled.client(), partition_keys(0)
    for days_ago in (31, 29):
        stamp = int((datetime.now(UTC) - timedelta(days=days_ago)).timestamp() * 1_000)
        client.xadd(keys.dead, {"id": "1-1", "reason": "test", "b": "x"}, id=f"{stamp}-0")
    prune(filled)
    assert client.xlen(keys.dead) == 1


def test_only_the_own_partitions_and_only_the_publisher_prune(filled: Valkey) -> None:
    """A worker looks after what it holds leases of."""
    announce_retention(filled, dark_mode=30)
    store = Store(filled.url)
    store.open()
    Retention(store, Definitions(store)).prune(PARTITIONS, [3], publishing=False, budget_s=60.0)
    assert read_cell(filled, 3, dark(LONG_AGO).name) is None
    assert read_cell(filled, 0, dark(LONG_AGO).name) is not None
    assert f"{day(LONG_AGO)}|*" in published_estimates(filled, "dark_mode", 1)


def test_a_round_goes_on_where_it_stopped(filled: Valkey) -> None:
    """Without time each call takes one step; many calls come to the same as one."""
    announce_retention(filled, dark_mode=30, browser=30)
    store = Store(filled.url)
    store.open()
    retention = Retention(store, Definitions(store))
    calls = 0
    while read_cell(filled, 3, browser(LONG_AGO).name) or f"{day(LONG_AGO)}|*" in published_estimates(
        filled, "browser", 1
    ):
        retention.prune(PARTITIONS, range(PARTITIONS), publishing=True, budget_s=0.0)
        calls += 1
        assert calls < 100
    assert calls > 3
    for _ in range(20):
        retention.prune(PARTITIONS, range(PARTITIONS), publishing=True, budget_s=0.0)
    assert keys_about(filled, "dark_mode", day(LONG_AGO)) == set()


@pytest.fixture
def limited(filled: Valkey) -> Iterator[Valkey]:
    """The same store without any free memory."""
    filled.client().config_set("maxmemory", "1")
    yield filled
    filled.client().config_set("maxmemory", "256mb")


def test_a_full_store_can_forget(limited: Valkey) -> None:
    """Pruning frees memory, so it needs none."""
    client = limited.client()
    client.config_set("maxmemory", "256mb")
    announce_retention(limited, dark_mode=30)
    client.config_set("maxmemory", "1")
    prune(limited)
    assert keys_about(limited, "dark_mode", day(LONG_AGO)) == set()


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
