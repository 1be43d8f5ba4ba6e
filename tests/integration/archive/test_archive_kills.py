"""The archive while archivers are killed, held up, or many: each counted report is in it exactly once all the same."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dither_estimator import archive_file
from dither_estimator.archive_claim import Claims, State
from dither_estimator.store import Store
from dither_estimator.worker import EXIT_OK, Worker
from dither_protocol.registry import Registry
from dither_protocol.storage import PartitionKeys
from support import archive as program
from support.archive import (
    PARTITIONS,
    SHAPES,
    STEPS,
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

HANG_LIMIT_S = 60


def run_program(valkey: Valkey, folder: Path, step: str) -> int:
    """Run `support.archive` as a program; its exit code."""
    command = [sys.executable, str(program.__file__), valkey.url, str(folder), step]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=environ, timeout=HANG_LIMIT_S, check=False).returncode


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_loses_and_doubles_nothing(
    valkey: Valkey, registry: Registry, folder: Path, step: str
) -> None:
    """SIGKILL there, then another worker: at no time is there a row too many, in the end there is none too few."""
    append(valkey, entries(registry, 20))
    finish(archiving_worker(valkey, folder))
    append(valkey, entries(registry, 30, seed=1))
    assert run_program(valkey, folder, step) == -signal.SIGKILL
    counted = stored(valkey.client())
    after_kill = archived(folder, registry)
    assert all(after_kill[name][0] <= n for name, (n, _) in counted.items())
    finish(archiving_worker(valkey, folder))
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
    assert archived(folder, registry) == stored(valkey.client())


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


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
    assert archived(folder, registry) == stored(valkey.client())
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
    assert archived(folder, registry) == stored(valkey.client())
    assert list(folder.glob("*.superseded")) == []


@pytest.mark.parametrize("step", ["written", "committed"])
def test_a_file_that_was_left_unfinished_when_the_archive_ended_is_found(
    valkey: Valkey, registry: Registry, folder: Path, step: str
) -> None:
    """Killed before its rename, then a worker without an archive, then one with: its reports are there, once."""
    append(valkey, entries(registry, 20))
    finish(archiving_worker(valkey, folder))
    append(valkey, entries(registry, 20, seed=1))
    assert run_program(valkey, folder, step) == -signal.SIGKILL
    killed_in = {path.name.split("-")[0] for path in (folder / ".unfinished").glob("p*")}
    without = Worker(Store(valkey.url))
    while without.tick():
        pass
    finish(archiving_worker(valkey, folder))
    # The partition that the kill did not come to was ended unarchived; of the other nothing is missing.
    own = {path for path in folder.glob("*.parquet") if path.name.split("-")[0] in killed_in}
    assert len(own) == 2
    found = sum(content.rows for path in own for content in archive_file.describe(path))
    assert found == (20 + 20) // PARTITIONS * 2 * len(SHAPES)
