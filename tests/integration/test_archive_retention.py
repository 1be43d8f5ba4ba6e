"""Retention of an archive: windows are taken out of its files, whole or not at all."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dither_estimator.archive_file import Content, describe
from dither_estimator.archive_folder import Folder
from dither_estimator.archive_pruning import ArchivePruner
from dither_estimator.definitions import Definitions
from dither_estimator.expiry import Calendar
from dither_estimator.pruning import Pruned
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol.registry import Registry
from dither_protocol.storage import Cell
from support.retention import announce_retention, day, index_entry
from support.store import Store as Valkey
from support.worker_store import append_entry

pytestmark = pytest.mark.usefixtures("engine")

OLD, NEW = 40, 2
BROWSER = (("channel", "beta"), ("os", "linux"))


@pytest.fixture
def folder(valkey: Valkey, registry: Registry, tmp_path: Path) -> Path:
    """An archive of one file with both windows, one with the old window alone, one with the new one alone."""
    announce_retention(valkey)
    worker = Worker(Store(valkey.url), archive=tmp_path / "archive")
    for windows in ((OLD, NEW), (OLD,), (NEW,)):
        for window in windows:
            append_entry(valkey, 0, index_entry(Cell("dark_mode", 1, day(window), ()), 0, 1, 1))
            append_entry(valkey, 0, index_entry(Cell("browser", 1, day(window), BROWSER), 3))
        while worker.count():
            pass
        while worker.archive(at_once=True):
            pass
    return tmp_path / "archive"


def contents(folder: Path) -> list[list[Content]]:
    """What each file says it holds, in order."""
    return [describe(path) for path in sorted(folder.glob("*.parquet"))]


def restart(valkey: Valkey, folder: Path) -> Worker:
    """A worker that prunes at its start."""
    worker = Worker(Store(valkey.url), archive=folder)
    for _ in range(3):
        worker.tick()
    return worker


def test_a_file_loses_what_has_expired_and_goes_when_nothing_is_left(valkey: Valkey, folder: Path) -> None:
    """Of one metric first, then of all; files without anything that expires keep their very bytes."""
    before = sorted(folder.glob("*.parquet"))
    untouched = before[2].read_bytes()
    announce_retention(valkey, dark_mode=30)
    restart(valkey, folder)
    old, new = day(OLD), day(NEW)
    both = [Content("browser", new, 1), Content("dark_mode", new, 3)]
    assert contents(folder) == [
        [Content("browser", old, 1), *both],
        [Content("browser", old, 1)],
        both,
    ]
    announce_retention(valkey, dark_mode=30, browser=30)
    restart(valkey, folder)
    assert contents(folder) == [both, both]
    assert not before[1].exists()
    assert before[2].read_bytes() == untouched


def test_a_file_in_which_nothing_is_due_is_not_opened_again(
    valkey: Valkey, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its next date comes, or a rule changes."""
    opened: list[str] = []

    def noting(path: Path) -> list[Content]:
        opened.append(path.name)
        return describe(path)

    monkeypatch.setattr("dither_estimator.archive_pruning.describe", noting)
    announce_retention(valkey, dark_mode=60)
    store = Store(valkey.url)
    store.open()
    pruner = ArchivePruner(Folder(folder))

    def expire() -> int:
        opened.clear()
        calendar = Calendar(store, Definitions(store))
        sum(pruner.expire(calendar, datetime.now(UTC)), Pruned())
        return len(set(opened))

    assert [expire(), expire()] == [3, 0]
    announce_retention(valkey, dark_mode=50)
    assert [expire(), expire()] == [3, 0]
    assert len(contents(folder)) == 3


PROGRAM = """
import os, signal, sys
from pathlib import Path
from dither_estimator import archive_pruning
from dither_estimator.archive_folder import Folder
def die(path, gone, file):
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
archive_pruning.rewrite = die
list(archive_pruning.ArchivePruner(Folder(Path(sys.argv[1]))).prune(lambda metric, label: metric == "browser"))
"""


def test_a_kill_while_a_file_is_written_anew_leaves_the_old_one(valkey: Valkey, folder: Path) -> None:
    """And no half of a new one, once somebody prunes again."""
    before = contents(folder)
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    assert subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGKILL
    assert contents(folder) == before
    pruned = sum(ArchivePruner(Folder(folder)).prune(lambda metric, _: metric == "browser"), Pruned())
    assert pruned == Pruned(archived=4)
    assert {content.metric for file in contents(folder) for content in file} == {"dark_mode"}
    assert os.listdir(folder / ".unfinished") == ["lock"]


def test_a_dry_run_only_counts(valkey: Valkey, folder: Path) -> None:
    """The same number, and no file is touched."""
    before = {path: path.read_bytes() for path in folder.glob("*.parquet")}
    pruner = ArchivePruner(Folder(folder), dry=True)
    assert sum(pruner.prune(lambda metric, _: metric == "browser"), Pruned()) == Pruned(archived=4)
    assert {path: path.read_bytes() for path in folder.glob("*.parquet")} == before


def test_a_file_that_is_none_of_an_archive_is_said_and_left(
    valkey: Valkey, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Counting is not held up by it, and the other files are pruned."""
    stranger = folder / "p0-00000000.parquet"
    stranger.write_bytes(b"somebody else's")
    announce_retention(valkey, dark_mode=30, browser=30)
    restart(valkey, folder)
    assert stranger.read_bytes() == b"somebody else's"
    assert "p0-00000000.parquet is forgotten: p0-00000000.parquet is no file of an archive" in caplog.text
    stranger.unlink()
    assert {content.window for file in contents(folder) for content in file} == {day(NEW)}
