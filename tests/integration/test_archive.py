"""The archive against a real store: each counted report is in it exactly once, whoever dies."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from dither_estimator import archive_file
from dither_estimator.archive import Archive, NoArchive
from dither_estimator.archive_claim import Claims, State
from dither_estimator.archive_folder import Folder
from dither_estimator.definitions import Definitions
from dither_estimator.store import Store
from dither_estimator.worker import EXIT_OK, Worker
from dither_protocol import storage
from dither_protocol.errors import StorageError
from dither_protocol.registry import Registry
from dither_protocol.storage import Cell, PartitionKeys, encode_entry, partition_tags
from support import archive as program
from support.archive import STEPS, announce_shapes, archived, entries, stored
from support.store import Store as Valkey
from support.store import running_store

pytestmark = pytest.mark.usefixtures("engine")

HANG_LIMIT_S = 60
PARTITIONS = 2
KEYS = [PartitionKeys(tag) for tag in partition_tags(PARTITIONS)]


@pytest.fixture(scope="module")
def server(engine: str) -> Iterator[Valkey]:
    """One server for the module."""
    with running_store() as store:
        yield store


@pytest.fixture
def valkey(server: Valkey) -> Valkey:
    """Emptied, with a metric of each shape announced."""
    announce_shapes(server.client(), PARTITIONS)
    return server


@pytest.fixture
def registry() -> Registry:
    """The metrics of `valkey`."""
    return program.shapes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the archive goes; not there yet."""
    return tmp_path / "archive"


def append(valkey: Valkey, payloads: list[bytes]) -> None:
    """Put entries into the streams in turn, as the admit script does."""
    for number, payload in enumerate(payloads):
        with valkey.client().pipeline(transaction=True) as pipe:
            pipe.xadd(KEYS[number % PARTITIONS].stream, {storage.ENTRY_FIELD: payload})
            pipe.incrby(KEYS[number % PARTITIONS].backlog, len(payload))
            pipe.execute()


def archiving_worker(valkey: Valkey, folder: Path) -> Worker:
    """A worker of its own connection, in the place of the one before."""
    return Worker(Store(valkey.url), archive=folder)


def finish(worker: Worker) -> None:
    """Count everything and archive everything."""
    while worker.count():
        pass
    while worker.archive(at_once=True):
        pass


def left(valkey: Valkey) -> list[tuple[int, int]]:
    """(entries in the stream, bytes of the backlog) of each partition."""
    client = valkey.client()
    return [(client.xlen(keys.stream), int(client.get(keys.backlog) or 0)) for keys in KEYS]


def run_program(valkey: Valkey, folder: Path, step: str) -> int:
    """Run `support.archive` as a program; its exit code."""
    command = [sys.executable, str(program.__file__), valkey.url, str(folder), step]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=environ, timeout=HANG_LIMIT_S, check=False).returncode


def test_every_shape_of_report_gives_the_same_counters(
    valkey: Valkey, registry: Registry, folder: Path
) -> None:
    """For each mechanism and cell: n and counters of the archive are those of the store, and the streams are empty."""
    append(valkey, entries(registry, 200))
    worker = archiving_worker(valkey, folder)
    finish(worker)
    counted = stored(valkey.client(), PARTITIONS)
    assert len(counted) == len(program.SHAPES) + 1
    assert sum(n for n, _ in counted.values()) == 200 * 2 * len(program.SHAPES)
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
    assert dict(duckdb.sql(query).fetchall()) == dict.fromkeys(program.SHAPES, 100)
    query = (
        "SELECT dimensions->>'os', window_label, count(*) FROM 'archive/*.parquet' "
        "WHERE metric = 'oue' GROUP BY ALL ORDER BY ALL"
    )
    assert duckdb.sql(query).fetchall() == [("linux", "2026-11-29", 50), ("mac os, 26", "2026-11-29", 50)]
    query = "SELECT value, count(*) FROM 'archive/*.parquet' WHERE metric = 'grr' GROUP BY 1"
    _, counters = stored(valkey.client(), PARTITIONS)[Cell("grr", 1, "2026-11-29", ()).name]
    assert dict(duckdb.sql(query).fetchall()) == {v: c for v, c in enumerate(counters) if c}


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_loses_and_doubles_nothing(
    valkey: Valkey, registry: Registry, folder: Path, step: str
) -> None:
    """SIGKILL there, then another worker: at no time is there a row too many, in the end there is none too few."""
    append(valkey, entries(registry, 20))
    finish(archiving_worker(valkey, folder))
    append(valkey, entries(registry, 30, seed=1))
    assert run_program(valkey, folder, step) == -signal.SIGKILL
    counted = stored(valkey.client(), PARTITIONS)
    after_kill = archived(folder, registry)
    assert all(after_kill[name][0] <= n for name, (n, _) in counted.items())
    assert run_program(valkey, folder, "never") == 0
    assert archived(folder, registry) == counted
    assert left(valkey) == [(0, 0)] * PARTITIONS
    assert [path.name for path in (folder / ".unfinished").iterdir()] == ["lock"]


def test_kills_at_any_time_lose_and_double_nothing(valkey: Valkey, registry: Registry, folder: Path) -> None:
    """A real worker is killed again and again while entries arrive; the last one stops in order."""
    draw = random.Random(5)  # noqa: S311  a test's choice of moments
    environ = os.environ | {
        "DITHER_STORE_URL": valkey.url,
        "DITHER_ARCHIVE": str(folder),
        "DITHER_HIGH_WATER_BYTES": "2000",  # so that a file is due after half of that
        "DITHER_WORKER_NAME": "worker",
    }
    stop = threading.Event()
    supply = iter(entries(registry, 5_000))

    def arrive() -> None:
        while not stop.is_set():
            append(valkey, [next(supply) for _ in range(2)])
            time.sleep(0.005)

    arriving = threading.Thread(target=arrive)
    arriving.start()
    command = [sys.executable, "-m", "dither_estimator.worker"]
    try:
        for _ in range(3):
            worker = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
            files = len(list(folder.glob("*.parquet")))
            _until(lambda: len(list(folder.glob("*.parquet"))) > files + 1)  # noqa: B023  used in this turn only
            time.sleep(draw.uniform(0, 0.1))
            worker.kill()
            worker.wait(HANG_LIMIT_S)
    finally:
        stop.set()
        arriving.join(HANG_LIMIT_S)
    worker = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    _until(lambda: left(valkey) == [(0, 0)] * PARTITIONS or all(n < 9 for n, _ in left(valkey)))
    worker.terminate()
    assert worker.wait(HANG_LIMIT_S) == EXIT_OK
    assert left(valkey) == [(0, 0)] * PARTITIONS
    assert archived(folder, registry) == stored(valkey.client(), PARTITIONS)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def plain_archive(valkey: Valkey, folder: Path, store: Store | None = None) -> Archive:
    """An archive without a worker."""
    store = store or Store(valkey.url)
    store.open()
    return Archive(store, Definitions(store), Folder(folder), archive_file.write)


def test_several_archivers_at_once_lose_and_double_nothing(
    valkey: Valkey, registry: Registry, folder: Path
) -> None:
    """Four of them write the same partitions without any lease, while entries arrive and are counted."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        archive = plain_archive(valkey, folder)
        try:
            while not stop.is_set():
                for partition in range(PARTITIONS):
                    archive.advance(PARTITIONS, partition, at_once=True)
        except BaseException as error:  # shown below
            failures.append(error)
            raise

    def count() -> None:
        worker = archiving_worker(valkey, folder)
        while not stop.is_set():
            worker.count()

    threads = [threading.Thread(target=target) for target in (write, write, write, write, count)]
    for thread in threads:
        thread.start()
    for payload in entries(registry, 200):
        append(valkey, [payload])
    _until(lambda: len(list(folder.glob("*.parquet"))) > 6)
    stop.set()
    for thread in threads:
        thread.join(HANG_LIMIT_S)
    assert failures == []
    finish(archiving_worker(valkey, folder))
    assert archived(folder, registry) == stored(valkey.client(), PARTITIONS)
    assert left(valkey) == [(0, 0)] * PARTITIONS


class Interrupted(Claims):
    """Claims of an archiver that is held up just before or after its claim, while another one does its work."""

    def __init__(self, store: Store, when: str, other: Callable[[], object]) -> None:
        super().__init__(store)
        self._when = when
        self._others = iter([other])

    def claim(self, keys: PartitionKeys, before: State | None) -> State | None:
        """The claim, and the other's work once."""
        if self._when == "before":
            next(self._others, lambda: None)()
        found = super().claim(keys, before)
        if self._when == "after":
            next(self._others, lambda: None)()
        return found


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_archiver_that_was_held_up_does_no_harm(
    valkey: Valkey, registry: Registry, folder: Path, when: str
) -> None:
    """Another one commits beside its claim: what it finds in the folder afterwards is not its to judge."""
    append(valkey, entries(registry, 4))
    finish(archiving_worker(valkey, folder))
    append(valkey, entries(registry, 4))
    worker = archiving_worker(valkey, folder)
    while worker.count():
        pass
    with closing(Store(valkey.url)) as one, closing(Store(valkey.url)) as other:
        slow, quick = plain_archive(valkey, folder, one), plain_archive(valkey, folder, other)
        slow._claims = Interrupted(one, when, lambda: quick.advance(PARTITIONS, 0, at_once=True))
        slow.advance(PARTITIONS, 0, at_once=True)
    finish(worker)
    assert archived(folder, registry) == stored(valkey.client(), PARTITIONS)
    assert list(folder.glob("*.superseded")) == []


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
    assert archived(folder, registry) == stored(valkey.client(), PARTITIONS)


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


@pytest.mark.parametrize("step", ["written", "committed"])
def test_a_file_that_was_left_unfinished_when_the_archive_ended_is_found(
    valkey: Valkey, registry: Registry, folder: Path, step: str
) -> None:
    """Killed before its rename, then a worker without an archive, then one with: its reports are there, once."""
    append(valkey, entries(registry, 20))
    assert run_program(valkey, folder, "never") == 0
    append(valkey, entries(registry, 20, seed=1))
    assert run_program(valkey, folder, step) == -signal.SIGKILL
    killed_in = {path.name.split("-")[0] for path in (folder / ".unfinished").glob("p*")}
    without = Worker(Store(valkey.url))
    while without.tick():
        pass
    assert run_program(valkey, folder, "never") == 0
    # The partition that the kill did not come to was ended unarchived; of the other nothing is missing.
    own = {path for path in folder.glob("*.parquet") if path.name.split("-")[0] in killed_in}
    assert len(own) == 2
    found = sum(content.rows for path in own for content in archive_file.describe(path))
    assert found == (20 + 20) // PARTITIONS * 2 * len(program.SHAPES)


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
    assert sum(n for n, _ in stored(valkey.client(), PARTITIONS).values()) == 40 * 2 * len(program.SHAPES)
    assert sum(n for _, n in left(valkey)) == size
    assert caplog.text.count("cannot be written") == 1
    assert "ingest answers 503" in caplog.text
    (folder / ".unfinished").unlink()
    (folder / ".unfinished").mkdir()
    finish(worker)
    assert "takes files again" in caplog.text
    assert left(valkey) == [(0, 0)] * PARTITIONS
    assert archived(folder, registry) == stored(valkey.client(), PARTITIONS)


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
    assert archived(folder, registry) == stored(client, PARTITIONS)
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
    announce_shapes(valkey.client(), PARTITIONS)
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
