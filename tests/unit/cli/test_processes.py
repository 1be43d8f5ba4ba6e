import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dither_cli.processes import Recorded, end_leftovers, read_record, write_record

LIMITS_S = {"ingest": 30.0, "store": 30.0}
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
IGNORES = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


class Leftover:
    """A process that looks like a child of an earlier serve."""

    def __init__(self, name: str, code: str = SLEEP) -> None:
        command = [sys.executable, "-I", "-S", "-c", code]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert self.popen.stdout is not None
        self.popen.stdout.readline()
        recorded = Recorded.of(name, self.popen.pid)
        assert recorded is not None
        self.recorded = recorded


@pytest.fixture
def leftovers() -> Iterator[list[Leftover]]:
    """Two processes of an earlier serve; whatever is left of them is killed at the end."""
    found = [Leftover("store"), Leftover("ingest")]
    yield found
    for leftover in found:
        leftover.popen.kill()
        leftover.popen.communicate()


def test_leftovers_are_ended_in_the_order_of_stopping(tmp_path: Path, leftovers: list[Leftover]) -> None:
    """What a killed serve left is ended by SIGTERM, the store last, and the record is removed."""
    record, log = tmp_path / "processes.json", list[str]()
    write_record(record, [leftover.recorded for leftover in leftovers])
    assert record.stat().st_mode & 0o777 == 0o600
    end_leftovers(record, LIMITS_S, log.append)
    assert [leftover.popen.wait(60) for leftover in leftovers] == [-signal.SIGTERM, -signal.SIGTERM]
    assert [line.split(":")[0] for line in log] == ["ingest", "store"]
    assert not record.exists()


def test_a_leftover_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """A start must not fail because a process does not listen."""
    stubborn, log = Leftover("ingest", IGNORES), list[str]()
    write_record(tmp_path / "p.json", [stubborn.recorded])
    end_leftovers(tmp_path / "p.json", {"ingest": 0.1}, log.append)
    assert stubborn.popen.wait(60) == -signal.SIGKILL
    assert "did not end within 0.1 s" in log[-1]
    stubborn.popen.communicate()


def test_a_process_that_only_has_the_same_id_is_left_alone(tmp_path: Path, leftovers: list[Leftover]) -> None:
    """Process ids are used again: another start time is another process."""
    store = leftovers[0]
    stale = Recorded("store", store.popen.pid, store.recorded.create_time - 3_600)
    write_record(tmp_path / "p.json", [stale])
    end_leftovers(tmp_path / "p.json", LIMITS_S, pytest.fail)
    assert store.popen.poll() is None


def test_a_process_that_does_not_lead_its_session_is_left_alone() -> None:
    """Every child leads a session of its own; the shell's other programs do not."""
    same_session = subprocess.Popen([sys.executable, "-I", "-S", "-c", SLEEP], stdout=subprocess.DEVNULL)
    recorded = Recorded.of("store", same_session.pid)
    try:
        assert recorded is not None
        assert not recorded.alive()
    finally:
        same_session.kill()
        same_session.wait()


def test_a_zombie_does_not_count_as_alive(leftovers: list[Leftover]) -> None:
    """A process that has ended and is not reaped yet holds neither files nor ports."""
    store = leftovers[0]
    os.kill(store.popen.pid, signal.SIGKILL)
    os.waitid(os.P_PID, store.popen.pid, os.WEXITED | os.WNOWAIT)
    assert not store.recorded.alive()


def test_a_process_that_is_gone_has_no_record(leftovers: list[Leftover]) -> None:
    """A child that ended at once is described by nothing."""
    store = leftovers[0]
    store.popen.kill()
    store.popen.wait()
    assert Recorded.of("store", store.popen.pid) is None
    assert not store.recorded.alive()


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '[{"name": "store"}]', '[{"name":"s","pid":"x","create_time":1}]']
)
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    """A start must not fail because a file is damaged; there is no more to learn from it."""
    (tmp_path / "p.json").write_text(text)
    assert read_record(tmp_path / "p.json") == []
    end_leftovers(tmp_path / "p.json", LIMITS_S, pytest.fail)


def test_a_record_reads_back_what_was_written(tmp_path: Path) -> None:
    """The record is plain JSON, and complete."""
    written = [Recorded("ingest", 12, 1.5), Recorded("store", 10, 1.25)]
    write_record(tmp_path / "p.json", written)
    assert read_record(tmp_path / "p.json") == written
    assert json.loads((tmp_path / "p.json").read_text())[0] == {
        "name": "ingest",
        "pid": 12,
        "create_time": 1.5,
    }
    assert read_record(tmp_path / "missing.json") == []
