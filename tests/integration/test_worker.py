"""The worker against a real store: counted exactly once, published, and never stuck."""

import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from dither_estimator.published import Draft, Place, Published
from dither_estimator.store import Commit, Store, StoreUnavailableError, after
from dither_estimator.tally import tally
from dither_estimator.worker import EXIT_CONFIG, Worker, main, run
from dither_protocol import storage
from dither_protocol.errors import StorageError
from dither_protocol.registry import Registry, encode_definition
from dither_protocol.storage import Cell, encode_entry
from support.registries import small_registry
from support.store import Store as Valkey
from support.store import running_store
from support.worker_store import (
    DARK,
    DAY,
    PARTITIONS,
    append_entry,
    dark_entry,
    new_worker,
    partition_keys,
    published_estimates,
    read_cell,
)

WATERMARK = datetime(2026, 11, 29, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("engine")


def test_entries_are_counted_trimmed_and_published(valkey: Valkey, registry: Registry) -> None:
    """Counters, outcome, backlog, stream and estimate all tell the same story."""
    append_entry(valkey, 0, dark_entry(1, 1, 0))
    append_entry(valkey, 0, dark_entry(1))
    append_entry(valkey, 2, dark_entry(0, 0))
    new_worker(valkey).tick()
    assert read_cell(valkey, 0) == (4, [1, 3])
    assert read_cell(valkey, 2) == (2, [2, 0])
    client = valkey.client(decode=True)
    for partition, counted in ((0, "4"), (2, "2")):
        assert client.hgetall(partition_keys(partition).outcome("dark_mode", DAY)) == {"counted": counted}
        assert client.xlen(partition_keys(partition).stream) == 0
        assert client.get(partition_keys(partition).backlog) == "0"
        assert client.hgetall(partition_keys(partition).dirty) == {}
    (document,) = published_estimates(valkey, "dark_mode", 1).values()
    assert (document["n"], document["dimensions"], document["window"]["label"]) == (6, None, DAY)


def test_a_second_tick_changes_nothing(valkey: Valkey, registry: Registry) -> None:
    """What was counted is not counted again."""
    append_entry(valkey, 1, dark_entry(1, 0))
    worker = new_worker(valkey)
    worker.tick()
    before = valkey.dump()
    assert worker.tick() is False
    assert valkey.dump() == before


def test_batches_larger_than_a_commit_are_counted_without_a_pause(
    valkey: Valkey, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a commit of its own, and as long as one waits there is more to do at once: who stops counts them all."""
    monkeypatch.setattr("dither_estimator.worker.MAX_COMMIT_REPORT_BYTES", 10)
    for _ in range(3):
        append_entry(valkey, 0, dark_entry(1, 1, 0))
    worker = new_worker(valkey)
    assert worker.count()
    assert worker.count()
    worker.count()
    assert not worker.count()
    assert read_cell(valkey, 0) == (9, [3, 6])


def test_counts_add_up_over_runs_and_dimensions(valkey: Valkey, registry: Registry) -> None:
    """The estimate over all dimensions has the sum of the cells; each cell has its own estimate beside it."""
    linux = Cell("color", 2, "2026-W48", (("os", "linux"),)).name
    macos = Cell("color", 2, "2026-W48", (("os", "macos"),)).name
    worker = new_worker(valkey)
    append_entry(valkey, 0, encode_entry([(linux, [b"\x01", b"\x02"]), (macos, [b"\x1f"])]))
    worker.tick()
    append_entry(valkey, 3, encode_entry([(linux, [b"\x03"])]))
    worker.tick()
    published = published_estimates(valkey, "color", 2)
    assert {field: document["n"] for field, document in published.items()} == {
        "2026-W48|os=linux": 3,
        "2026-W48|os=macos": 1,
        "2026-W48|*": 4,
    }


def test_a_worker_that_started_from_an_old_checkpoint_writes_nothing(
    valkey: Valkey, registry: Registry
) -> None:
    """Compare-and-set: two workers on one partition cannot count twice (design section 8)."""
    append_entry(valkey, 0, dark_entry(1, 1))
    store = Store(valkey.url)
    store.open()
    slow_checkpoint = store.checkpoint(0)
    entries = store.entries(0, slow_checkpoint, 10)
    new_worker(valkey).tick()
    before = valkey.dump()
    stale = Commit(
        started_from=slow_checkpoint,
        checkpoint=entries[-1][0],
        payload_bytes=len(entries[0][1]),
        cells={DARK: storage.encode_cell(2, [0, 2])},
        counted={("dark_mode", DAY): 2},
    )
    assert store.apply(0, stale) is False
    assert valkey.dump() == before


def test_two_workers_at_once_count_everything_exactly_once(valkey: Valkey, registry: Registry) -> None:
    """Four workers race over the same partitions while entries arrive."""
    stop = threading.Event()
    workers = [threading.Thread(target=run, args=(new_worker(valkey), stop)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for number in range(400):
        append_entry(valkey, number % PARTITIONS, dark_entry(number % 2))
    stop.set()
    for worker in workers:
        worker.join(60)
    new_worker(valkey).tick()
    cells = [read_cell(valkey, partition) for partition in range(PARTITIONS)]
    assert sum(cell[0] for cell in cells if cell) == 400
    assert published_estimates(valkey, "dark_mode", 1)[f"{DAY}|*"]["n"] == 400


def test_an_unreadable_entry_is_kept_aside_and_the_stream_moves_on(
    valkey: Valkey, registry: Registry
) -> None:
    """The worker is never stuck, and nothing is thrown away."""
    append_entry(valkey, 0, b"\xffpoison")
    append_entry(valkey, 0, dark_entry(1))
    new_worker(valkey).tick()
    client = valkey.client()
    ((_, dead),) = client.xrange(partition_keys(0).dead)
    assert dead[b"b"] == b"\xffpoison"
    assert b"version" in dead[b"reason"]
    assert read_cell(valkey, 0) == (1, [0, 1])
    assert client.xlen(partition_keys(0).stream) == 0
    assert client.hgetall(partition_keys(0).outcome("_unknown", "_unknown")) == {b"dead": b"1"}


def test_a_kill_between_apply_and_publish_is_made_up_for(valkey: Valkey, registry: Registry) -> None:
    """A cell stays marked as unpublished until it is; the next worker publishes it without a new report."""
    append_entry(valkey, 1, dark_entry(1, 0, 1))

    class DyingStore(Store):
        def dirty(self, partition: int) -> dict[str, bytes]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Worker(DyingStore(valkey.url)).tick()
    assert read_cell(valkey, 1) == (3, [1, 2])
    assert published_estimates(valkey, "dark_mode", 1) == {}
    new_worker(valkey).tick()
    assert published_estimates(valkey, "dark_mode", 1)[f"{DAY}|*"]["n"] == 3


def test_an_older_estimate_never_replaces_a_newer_one(valkey: Valkey, registry: Registry) -> None:
    """Of two publishers the one with more reports stands, whoever writes last."""
    metric = registry.metric("dark_mode")
    window = metric.parse_window(DAY)
    place = Place("dark_mode", 1, window, metric.closes_at(window))
    published = Published(Store(valkey.url))
    for n, text, result in ((20, "new", 1), (19, "old", -1), (20, "same n", 1)):
        draft = Draft("*", n, final=False, document={"text": text})
        assert published.publish(place, [draft], WATERMARK) == [result]
    assert published_estimates(valkey, "dark_mode", 1)[f"{DAY}|*"]["text"] == "same n"


def test_a_cell_that_changed_again_stays_unpublished(valkey: Valkey, registry: Registry) -> None:
    """Cleaning compares the mark that was published."""
    store = Store(valkey.url)
    store.open()
    valkey.client().hset(partition_keys(0).dirty, mapping={"a": "5-0", "b": "6-0"})
    store.clean(0, [("a", b"5-0"), ("b", b"5-9")])
    assert store.dirty(0) == {"b": b"6-0"}


def test_a_store_that_no_server_has_created_is_waited_for(valkey: Valkey) -> None:
    """Nothing to do, no error."""
    valkey.client().flushall()
    assert new_worker(valkey).tick() is False


def test_another_layout_is_refused(valkey: Valkey) -> None:
    """A worker does not guess what a later version wrote."""
    client = valkey.client()
    client.flushall()
    client.hset(storage.META_KEY, mapping={"partitions": 2, "layout": 99})
    with pytest.raises(StorageError, match="layout"):
        new_worker(valkey).tick()


def test_a_cell_of_another_size_stops_the_worker(valkey: Valkey, registry: Registry) -> None:
    """Corruption is an error, not a sum."""
    valkey.client().set(partition_keys(0).cell(DARK), storage.encode_cell(1, [1, 0, 0]))
    append_entry(valkey, 0, dark_entry(1))
    with pytest.raises(StorageError, match="counters"):
        new_worker(valkey).tick()


def test_counts_stay_exact_beyond_two_to_the_53(valkey: Valkey, registry: Registry) -> None:
    """Counters are 64-bit integers all the way; the next one over int64 is an error, never a wrap."""
    large = 2**53 + 1
    valkey.client().set(partition_keys(0).cell(DARK), storage.encode_cell(large, [0, large]))
    append_entry(valkey, 0, dark_entry(1, 1))
    new_worker(valkey).tick()
    assert read_cell(valkey, 0) == (large + 2, [0, large + 2])
    valkey.client().set(partition_keys(0).cell(DARK), storage.encode_cell(2**63 - 1, [0, 2**63 - 1]))
    append_entry(valkey, 0, dark_entry(1))
    with pytest.raises(StorageError, match="int64"):
        new_worker(valkey).tick()


def test_a_metric_that_was_never_announced_has_no_definition(valkey: Valkey, registry: Registry) -> None:
    """The store says so, by name."""
    store = Store(valkey.url)
    with pytest.raises(StorageError, match="version 7 of metric 'dark_mode'"):
        store.definition("dark_mode", 7)


def test_a_store_that_dies_is_waited_for_and_nothing_is_lost() -> None:
    """Killed and restarted under a running worker: it waits, comes back and counts."""
    with running_store() as valkey:
        registry = small_registry()
        client = valkey.client()
        client.hset(storage.META_KEY, mapping={"partitions": PARTITIONS, "layout": storage.LAYOUT})
        for metric in registry:
            client.set(
                storage.metric_key(metric.name, metric.version), encode_definition(registry, metric.name)
            )
        append_entry(valkey, 0, dark_entry(1))
        valkey.kill()
        worker = new_worker(valkey)
        with pytest.raises(StoreUnavailableError):
            worker.tick()
        valkey.start()
        worker.tick()
        assert read_cell(valkey, 0) == (1, [0, 1])


@pytest.mark.parametrize(
    "url", ["", "nonsense://x", "nonsense://:hunter2@x", "redis://u:hunter2/@h:1", "redis://h/?db=hunter2"]
)
def test_a_bad_store_url_is_a_configuration_error(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The exit code tells the supervisor that a restart will not help; the log names the variable, not its value."""
    monkeypatch.setenv("DITHER_STORE_URL", url)
    assert main() == EXIT_CONFIG
    assert "DITHER_STORE_URL" in caplog.text
    assert "hunter2" not in caplog.text


def test_the_id_after_an_entry_is_the_next_one() -> None:
    """The stream is trimmed exactly to it."""
    assert after(b"17-4") == b"17-5"


def test_an_entry_that_kills_workers_is_found_and_set_aside(
    valkey: Valkey, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every worker that decodes it ends at once; in the end it is dead, and its neighbours are counted once each."""
    for number in range(9):
        append_entry(valkey, 0, dark_entry(1) if number != 5 else dark_entry(0, 0, 0))
    poison = valkey.client().xrange(partition_keys(0).stream)[5][0]

    def deadly(decoded: Any) -> Any:
        if any(each.entry[0] == poison for each in decoded):
            raise SystemExit
        return tally(decoded)

    monkeypatch.setattr("dither_estimator.worker.tally", deadly)
    starts = 0
    while valkey.client().xlen(partition_keys(0).stream):
        starts += 1
        assert starts < 60
        with suppress(SystemExit):
            new_worker(valkey).tick()
    assert read_cell(valkey, 0) == (8, [0, 8])
    ((_, dead),) = valkey.client().xrange(partition_keys(0).dead)
    assert (dead[b"id"], dead[b"b"]) == (poison, dark_entry(0, 0, 0))
    assert valkey.client().get(partition_keys(0).backlog) == b"0"
    outcome = valkey.client().hgetall(partition_keys(0).outcome("dark_mode", DAY))
    assert outcome == {b"counted": b"8", b"dead": b"3"}
    new_worker(valkey).tick()
    assert published_estimates(valkey, "dark_mode", 1)[f"{DAY}|*"]["n"] == 8


def test_a_store_that_goes_away_at_every_commit_poisons_nothing(valkey: Valkey, registry: Registry) -> None:
    """A worker that lives through its failures does not take its own entry for poison."""

    class FlakyStore(Store):
        failures = 0

        def apply(self, partition: int, commit: Commit) -> bool:
            if self.failures < 12:
                self.failures += 1
                raise StoreUnavailableError("away")
            return super().apply(partition, commit)

    append_entry(valkey, 0, dark_entry(1))
    worker = Worker(FlakyStore(valkey.url))
    for _ in range(12):
        with pytest.raises(StoreUnavailableError):
            worker.tick()
    worker.tick()
    assert read_cell(valkey, 0) == (1, [0, 1])
    assert valkey.client().xlen(partition_keys(0).dead) == 0
