"""Retention against a real store: what its time has come for goes, everywhere, and nothing else."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from dither_estimator.definitions import Definitions
from dither_estimator.retention import Retention
from dither_estimator.store import Store
from dither_protocol import storage
from dither_protocol.registry import Registry
from dither_protocol.storage import Cell
from support.retention import (
    LONG_AGO,
    RECENT,
    announce_retention,
    browser,
    dark,
    day,
    fill,
    index_entry,
    keys_about,
    prune,
)
from support.store import Store as Valkey
from support.worker_store import (
    PARTITIONS,
    new_worker,
    partition_keys,
    published_estimates,
    read_cell,
)

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def filled(valkey: Valkey, registry: Registry) -> Valkey:
    """Reports of old and new windows, counted, published and closed; nothing expires."""
    fill(valkey)
    return valkey


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
