"""The archive against a real store: what was counted is in it, and nothing else."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from dither_estimator.archive import NoArchive
from dither_estimator.archive_claim import Claims, State
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol.errors import StorageError
from dither_protocol.registry import Registry
from dither_protocol.storage import Cell, encode_entry
from support.archive import (
    KEYS,
    PARTITIONS,
    SHAPES,
    announce_shapes,
    append,
    archived,
    archiving_worker,
    entries,
    finish,
    left,
    plain_archive,
    stored,
)
from support.store import Store as Valkey

pytestmark = pytest.mark.usefixtures("engine")


def test_every_shape_of_report_gives_the_same_counters(
    valkey: Valkey, registry: Registry, folder: Path
) -> None:
    """For each mechanism and cell: n and counters of the archive are those of the store, and the streams are empty."""
    append(valkey, entries(registry, 200))
    worker = archiving_worker(valkey, folder)
    finish(worker)
    counted = stored(valkey.client())
    assert len(counted) == len(SHAPES) + 1
    assert sum(n for n, _ in counted.values()) == 200 * 2 * len(SHAPES)
    assert archived(folder, registry) == counted
    assert left(valkey) == [(0, 0)] * PARTITIONS


def test_duckdb_reads_it_as_it_is(
    valkey: Valkey, registry: Registry, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows by metric, by dimension and window, and the histogram of an index mechanism, in plain SQL."""
    append(valkey, entries(registry, 50))
    finish(archiving_worker(valkey, folder))
    monkeypatch.chdir(folder.parent)
    query = "SELECT metric, count(*) FROM read_parquet('archive/*.parquet') GROUP BY 1"
    assert dict(duckdb.sql(query).fetchall()) == dict.fromkeys(SHAPES, 100)
    query = (
        "SELECT dimensions->>'os', window_label, count(*) FROM 'archive/*.parquet' "
        "WHERE metric = 'oue' GROUP BY ALL ORDER BY ALL"
    )
    assert duckdb.sql(query).fetchall() == [("linux", "2026-11-29", 50), ("mac os, 26", "2026-11-29", 50)]
    query = "SELECT value, count(*) FROM 'archive/*.parquet' WHERE metric = 'grr' GROUP BY 1"
    _, counters = stored(valkey.client())[Cell("grr", 1, "2026-11-29", ()).name]
    assert dict(duckdb.sql(query).fetchall()) == {v: c for v, c in enumerate(counters) if c}


def test_an_entry_that_could_not_be_counted_is_not_archived(
    valkey: Valkey, registry: Registry, folder: Path
) -> None:
    """It leaves the stream and the backlog when it is set aside; its neighbours are in the archive."""
    good = entries(registry, 4)
    bad = encode_entry([(Cell("grr", 1, "2026-11-29", ()).name, [(99).to_bytes(4, "little")])])
    worker = archiving_worker(valkey, folder)
    finish(worker)
    append(valkey, [*good[:2], bad, bad, *good[2:]])
    before = left(valkey)
    while worker.count():
        pass
    assert [n for n, _ in left(valkey)] == [n - 1 for n, _ in before]
    assert [size for _, size in left(valkey)] == [size - len(bad) for _, size in before]
    finish(worker)
    assert left(valkey) == [(0, 0)] * PARTITIONS
    assert sum(valkey.client().xlen(keys.dead) for keys in KEYS) == 2
    assert archived(folder, registry) == stored(valkey.client())


def test_a_worker_without_an_archive_ends_it(
    valkey: Valkey, registry: Registry, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was counted leaves the streams, what was not stays; later the archive begins again where it stands."""
    worker = archiving_worker(valkey, folder)
    finish(worker)
    append(valkey, entries(registry, 20))
    finish(worker)
    first = archived(folder, registry)
    append(valkey, entries(registry, 30, seed=1))
    while worker.count():
        pass
    append(valkey, entries(registry, 2, seed=2))
    assert [n for n, _ in left(valkey)] == [16, 16]
    without = Worker(Store(valkey.url))
    while without.tick():
        pass
    assert left(valkey) == [(0, 0)] * PARTITIONS
    assert not valkey.client().exists(*(keys.archived for keys in KEYS))
    assert caplog.text.count("its archive ends here") == PARTITIONS
    assert archived(folder, registry) == first
    finish(archiving_worker(valkey, folder))
    append(valkey, entries(registry, 20))
    finish(archiving_worker(valkey, folder))
    assert {name: n for name, (n, _) in archived(folder, registry).items()} == {
        name: 2 * n for name, (n, _) in first.items()
    }
    names = sorted(path.name for path in folder.glob("*.parquet"))
    assert names == sorted(f"{keys.tag}-{number:08d}.parquet" for keys in KEYS for number in (1, 2))


def test_counting_goes_on_while_the_disk_fails(
    valkey: Valkey,
    registry: Registry,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing leaves the streams, the backlog grows, it is said once; afterwards the archive is complete."""
    caplog.set_level("INFO")
    worker = archiving_worker(valkey, folder)
    finish(worker)
    (folder / ".unfinished" / "lock").unlink()
    (folder / ".unfinished").rmdir()
    (folder / ".unfinished").write_text("no folder")
    monkeypatch.setattr("dither_estimator.archive.LOOK_S", 0.0)
    size = sum(map(len, entries(registry, 40)))
    for seed in (0, 1):
        append(valkey, entries(registry, 20, seed=seed))
        finish(worker)
    assert sum(n for n, _ in stored(valkey.client()).values()) == 40 * 2 * len(SHAPES)
    assert sum(n for _, n in left(valkey)) == size
    assert caplog.text.count("cannot be written") == 1
    assert "ingest answers 503" in caplog.text
    (folder / ".unfinished").unlink()
    (folder / ".unfinished").mkdir()
    finish(worker)
    assert "takes files again" in caplog.text
    assert left(valkey) == [(0, 0)] * PARTITIONS
    assert archived(folder, registry) == stored(valkey.client())


class ClockedStore(Store):
    """A real store whose clock a test sets."""

    ahead = timedelta()

    def now(self) -> datetime:
        """The real time and what it was set ahead by."""
        return datetime.now(UTC) + self.ahead


def test_a_file_is_written_after_an_hour_or_so_many_bytes(
    valkey: Valkey, registry: Registry, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not sooner, so that every file has the reports of many batches."""
    monkeypatch.setattr("dither_estimator.archive.LOOK_S", 0.0)
    store = ClockedStore(valkey.url)
    archive = plain_archive(valkey, folder, store)
    archive.advance(PARTITIONS, 0)
    append(valkey, entries(registry, 2))
    worker = archiving_worker(valkey, folder)
    while worker.count():
        pass
    for ahead, files in ((timedelta(), 0), (timedelta(minutes=59), 0), (timedelta(hours=1), 1)):
        store.ahead = ahead
        archive.advance(PARTITIONS, 0)
        assert len(list(folder.glob("*.parquet"))) == files
    store.ahead = timedelta()
    big = [encode_entry([(Cell("oue", 1, "2026-11-29", (("os", "linux"),)).name, [bytes(3)] * 200_000)])] * 40
    append(valkey, big)  # 12 MB in each partition, and an eighth of 256 MiB is for both
    while worker.count():
        pass
    archive.advance(PARTITIONS, 0)
    assert len(list(folder.glob("*.parquet"))) == 1
    append(valkey, big[:20])
    while worker.count():
        pass
    assert archive.advance(PARTITIONS, 0)
    assert len(list(folder.glob("*.parquet"))) == 2


@pytest.mark.parametrize("restarted", [True, False])
def test_the_archive_agrees_with_a_store_that_came_back_from_an_earlier_state(
    valkey: Valkey, registry: Registry, folder: Path, caplog: pytest.LogCaptureFixture, *, restarted: bool
) -> None:
    """A file that is ahead of the store is put aside, where no reader finds it; what is counted again is written."""
    append(valkey, entries(registry, 10))
    worker = archiving_worker(valkey, folder)
    finish(worker)
    append(valkey, entries(registry, 10, seed=1))
    earlier = valkey.dump()
    finish(worker)
    client = valkey.client()
    client.flushall()
    for key, dumped in earlier.items():
        if dumped is not None:
            client.restore(key, 0, dumped)
    finish(archiving_worker(valkey, folder) if restarted else worker)
    assert archived(folder, registry) == stored(client)
    assert len(list(folder.glob("*.superseded"))) == PARTITIONS
    assert "is ahead of the store" in caplog.text


def test_a_folder_belongs_to_one_store_and_a_store_to_one_folder(
    valkey: Valkey, registry: Registry, folder: Path, tmp_path: Path
) -> None:
    """Neither a second store in one folder nor a second folder of one store: each would double or lose rows."""
    append(valkey, entries(registry, 4))
    finish(archiving_worker(valkey, folder))
    with pytest.raises(StorageError, match=r"copy archive\.json"):
        archiving_worker(valkey, tmp_path / "other").tick()
    announce_shapes(valkey.client())
    with pytest.raises(StorageError, match="of another store"):
        archiving_worker(valkey, folder).tick()
    (folder / "archive.json").write_text("{damaged")
    with pytest.raises(StorageError, match="damaged"):
        archiving_worker(valkey, folder).tick()


def claimed(valkey: Valkey) -> tuple[Claims, State]:
    """Claims of a store, and the state after one of partition 0."""
    store = Store(valkey.url)
    store.open()
    claims = Claims(store)
    state = claims.claim(KEYS[0], claims.state(KEYS[0]))
    assert state is not None
    return claims, state


def test_a_commit_after_another_claim_does_nothing(valkey: Valkey, registry: Registry) -> None:
    """However late a command arrives, nobody commits who is not the last to have claimed; a retry is no second time."""
    append(valkey, entries(registry, 2))
    claims, old = claimed(valkey)
    Worker(Store(valkey.url)).count()
    new = State(old.entry, 1, "t", old.claim)
    _, latest = claimed(valkey)
    before = valkey.dump()
    assert not claims.trim(KEYS[0], old, new, [])
    assert claims.claim(KEYS[0], old) is None
    assert valkey.dump() == before
    found = claims.counted(0, KEYS[0], latest, 1 << 20)
    committed = State(found[-1][0], 1, "t", latest.claim)
    assert claims.trim(KEYS[0], latest, committed, found)
    after = valkey.dump()
    assert claims.trim(KEYS[0], latest, committed, found)  # the same command a second time
    assert valkey.dump() == after
    assert left(valkey)[0] == (0, 0)


def test_an_entry_that_is_not_counted_is_never_trimmed(valkey: Valkey, registry: Registry) -> None:
    """Not even where an archiver believes that it is: the store may have lost its last second."""
    append(valkey, entries(registry, 2))
    claims, state = claimed(valkey)
    store = Store(valkey.url)
    store.open()
    found = store.entries(0, b"", 10)
    assert not claims.trim(KEYS[0], state, State(found[-1][0], 1, "t", state.claim), found)
    assert not claims.trim(KEYS[0], state, None, found)
    assert valkey.client().xlen(KEYS[0].stream) == 1


def test_the_state_of_a_damaged_archive_is_an_error(valkey: Valkey) -> None:
    """It is said, and nothing is trimmed."""
    valkey.client().set(KEYS[0].archived, "nonsense")
    store = Store(valkey.url)
    store.open()
    with pytest.raises(StorageError, match="damaged"):
        NoArchive(store).advance(PARTITIONS, 0)
