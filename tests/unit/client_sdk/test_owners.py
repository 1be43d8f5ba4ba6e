"""Owners: what belongs to a live process is left alone, what belongs to a dead one is adopted."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dither_client import outbox, owners
from dither_client.errors import StateBrokenError
from dither_client.owners import Owner
from dither_client.state import State
from dither_client.testing import MemoryTransport
from support.bookings import queued
from support.clients import make_client, wait_until

_HOLDER = """
import sys
from pathlib import Path
from dither_client.owners import Owner
owner = Owner(Path(sys.argv[1]))
print(owner.token, flush=True)
sys.stdin.read()
"""


@contextmanager
def _other_process(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process that holds a token, until it is killed or the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate(timeout=60)


def _queue(state: State, owner: str) -> None:
    """One open report and one sealed batch of this owner."""
    with state.transaction(durable=True) as connection:
        for due_at in (0.0, 1.0):
            queued(connection, outbox.OpenReport(owner, due_at, "day", None, '{"data":1}'))
        connection.execute("UPDATE open_reports SET due_at = 9e9 WHERE due_at = 1.0")
        connection.execute(
            "INSERT INTO batches SELECT randomblob(16), owner, '2099-01-01', 1, 0, 0, '{}' FROM open_reports"
            " WHERE due_at = 0.0"
        )
        connection.execute("DELETE FROM open_reports WHERE due_at = 0.0")


def _owners_in(state: State) -> list[str]:
    with state.transaction() as connection:
        return [
            row[0]
            for row in connection.execute(
                "SELECT owner FROM open_reports UNION ALL SELECT owner FROM batches"
            )
        ]


def _adopt(state: State, owner: Owner) -> None:
    with state.transaction() as connection:
        owner.adopt(connection)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    """A state on disk."""
    made = State(tmp_path)
    yield made
    made.close()


def test_what_belongs_to_a_live_process_is_left_alone_until_it_dies(tmp_path: Path, state: State) -> None:
    """Its reports and its file stay; kill -9 gives them up."""
    owner = Owner(tmp_path)
    with _other_process(tmp_path) as (token, process):
        _queue(state, token)
        _adopt(state, owner)
        assert _owners_in(state) == [token, token]
        assert (tmp_path / "owners" / token).exists()
        process.kill()
        process.wait(60)
        _adopt(state, owner)
    assert _owners_in(state) == [owner.token] * 2
    assert [path.name for path in (tmp_path / "owners").iterdir()] == [owner.token]
    owner.release()


def test_two_owners_of_one_process_leave_each_other_alone(tmp_path: Path, state: State) -> None:
    """Record locks do not tell them apart, so the process knows its own; a released one is adopted."""
    first, second = Owner(tmp_path), Owner(tmp_path)
    assert first.token != second.token
    _queue(state, first.token)
    _adopt(state, second)
    assert _owners_in(state) == [first.token] * 2
    first.release()
    _adopt(state, second)
    assert _owners_in(state) == [second.token] * 2
    second.release()
    assert list((tmp_path / "owners").iterdir()) == []


def test_a_forked_childs_own_tokens_are_none(tmp_path: Path, state: State) -> None:
    """After `forget_parents_tokens` a token counts by its lock alone; here nobody holds one."""
    owner = Owner(tmp_path)
    gone = Owner(tmp_path)
    _queue(state, gone.token)
    kept = set(owners._live)
    try:
        owners.forget_parents_tokens()
        assert owners._live == set()
        _adopt(state, owner)  # the lock is this very process's, which does not exclude it
        assert _owners_in(state) == [owner.token] * 2
    finally:
        owners._live |= kept
        gone.release()
        owner.release()


def test_files_of_dead_processes_without_reports_are_swept(tmp_path: Path, state: State) -> None:
    """A process that died with an empty queue leaves no file for ever, a live one keeps its own."""
    owner = Owner(tmp_path)
    assert owner.token
    for name in ("0123456789abcdef", "fedcba9876543210"):
        (tmp_path / "owners" / name).write_text("")
    with _other_process(tmp_path) as (token, _):
        _adopt(state, owner)
        assert {path.name for path in (tmp_path / "owners").iterdir()} == {token, owner.token}
    owner.release()


def test_a_token_is_stable_until_released_and_new_afterwards(tmp_path: Path) -> None:
    """16 hex digits from the operating system, the same for as long as the owner holds it."""
    owner = Owner(tmp_path)
    first = owner.token
    assert owner.token == first
    assert int(first, 16) >= 0
    assert len(first) == 16
    owner.release()
    assert owner.token != first
    owner.release()
    owner.release()


@pytest.mark.parametrize("instant", ["before the lock", "under the lock of the sweep"])
def test_a_token_that_is_swept_before_it_is_locked_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instant: str
) -> None:
    """Another process that sweeps just then breaks nothing: the token that counts has a locked file in its place."""
    swept: list[Path] = []
    really = owners.fcntl.lockf

    def sweep(file: int, command: int) -> None:
        (path,) = (tmp_path / "owners").iterdir()
        if not swept:
            swept.append(path)
            path.unlink()
            if instant != "before the lock":
                raise BlockingIOError
        really(file, command)

    monkeypatch.setattr(owners.fcntl, "lockf", sweep)
    owner = Owner(tmp_path)
    token = owner.token
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "owners").iterdir()] == [token]
    assert swept[0].name != token
    assert swept[0].name not in owners._live
    owner.release()


def test_processes_that_come_and_go_at_once_keep_the_tokens_that_they_hold(tmp_path: Path) -> None:
    """Four of them take a token, sweep and release it again and again: none fails, and none loses its file."""
    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                for _ in range(1_500):
                    owner = Owner(tmp_path)
                    if not (tmp_path / "owners" / owner.token).exists():
                        os._exit(2)
                    owner._sweep()
                    owner.release()
                os._exit(0)
            finally:
                os._exit(1)
        pids.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * 4


def test_threads_that_come_at_once_share_one_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second token would hold its reports back for as long as the process lives."""
    owner = Owner(tmp_path)
    barrier = threading.Barrier(4)
    really = owners.entropy.random_bytes

    def slowly(count: int) -> bytes:
        threading.Event().wait(0.05)
        return really(count)

    monkeypatch.setattr(owners.entropy, "random_bytes", slowly)
    tokens: list[str] = []

    def take() -> None:
        barrier.wait(60)
        tokens.append(owner.token)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 4
    assert set(tokens) == {path.name for path in (tmp_path / "owners").iterdir()} == {owner.token}
    owner.release()


def test_a_signal_handler_that_takes_a_token_in_the_middle_of_it_shares_it(tmp_path: Path) -> None:
    """The outer call keeps the handler's, and gives its own up."""
    owner = Owner(tmp_path)
    really, inner = owner._locked, []

    def interrupted(path: Path) -> object:
        owner._locked = really  # type: ignore[method-assign]
        inner.append(owner.token)
        return really(path)

    owner._locked = interrupted  # type: ignore[method-assign,assignment]
    assert [owner.token] == inner
    assert [path.name for path in (tmp_path / "owners").iterdir()] == inner
    assert inner[0] in owners._live
    owner.release()


def test_a_state_in_memory_has_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else can see it, so what is not of this process belongs to nobody."""
    monkeypatch.chdir(tmp_path)
    owner = Owner(None)
    made = State(None)
    _queue(made, "gone")
    _adopt(made, owner)
    assert _owners_in(made) == [owner.token] * 2
    assert list(tmp_path.iterdir()) == []
    owner.release()
    made.close()


def test_without_record_locks_a_token_of_another_process_counts_as_gone(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows two processes may send one batch, which the server counts once."""
    monkeypatch.setattr(owners, "fcntl", None)
    owner = Owner(tmp_path)
    _queue(state, "somebody")
    _adopt(state, owner)
    assert _owners_in(state) == [owner.token] * 2
    assert not (tmp_path / "owners").exists()
    owner.release()


def test_a_folder_that_cannot_be_written_is_a_broken_state(tmp_path: Path) -> None:
    """A file stands where the folder of locks should be."""
    (tmp_path / "owners").write_text("")
    with pytest.raises(StateBrokenError):
        _ = Owner(tmp_path).token


def test_a_client_shows_but_does_not_send_what_a_live_process_has_queued(tmp_path: Path) -> None:
    """The person at the device sees everything; each process sends its own, and inherits from the dead."""
    transport = MemoryTransport()
    with _other_process(tmp_path) as (token, process):
        first = make_client(MemoryTransport(), state_dir=tmp_path, delay_s=3600)
        first.record("dark_mode", True)
        with first._state.transaction() as connection:
            connection.execute("UPDATE open_reports SET owner = ?", (token,))
        first.shutdown()
        client = make_client(transport, state_dir=tmp_path, delay_s=3600)
        assert client.flush(0.2).pending == 0
        assert len(client.pending().reports) == 1
        process.kill()
        process.wait(60)
    client.record("first_color", "red")
    wait_until(lambda: client.flush(5).pending == 0 and len(transport.reports) == 2)
    client.shutdown()
