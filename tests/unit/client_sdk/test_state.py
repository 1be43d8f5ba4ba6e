"""The durable state: transactions, what they refuse, and a state that cannot be used."""

import os
import sqlite3
from pathlib import Path

import pytest

from dither_client import ledger, outbox, state
from dither_client.errors import (
    StateBrokenError,
    StateBusyError,
    StateError,
    StateForkedError,
    StateFullError,
    StateReentrantError,
)
from dither_client.state import State, read_note, write_note
from support.clients import state_bytes

REPORT = outbox.OpenReport("me", 0.0, "day", None, '{"data":1}')


def _touch(made: State) -> None:
    with made.transaction():
        pass


def test_a_transaction_that_raises_leaves_nothing_behind(tmp_path: Path) -> None:
    """Charge and report go together or not at all (invariant P2)."""
    made = State(tmp_path)

    def fail_half_way() -> None:
        with made.transaction() as connection:
            connection.execute("INSERT INTO charges VALUES ('m', 1, 'w', '()', 1)")
            outbox.add(connection, REPORT)
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    with made.transaction() as connection:
        assert ledger.spent(connection) == 0
        assert outbox.pending_reports(connection, "me") == 0
        assert connection.execute("SELECT count(*) FROM charges").fetchone() == (0,)
    made.close()


def test_nothing_is_created_before_the_first_transaction(tmp_path: Path) -> None:
    """An app that never answers anything leaves no file."""
    made = State(tmp_path / "state")
    assert not (tmp_path / "state").exists()
    _touch(made)
    assert (tmp_path / "state" / "dither.sqlite3").is_file()
    made.close()


def test_a_state_of_another_schema_is_refused(tmp_path: Path) -> None:
    """An older SDK does not write into what it does not understand, and leaves it as it is."""
    first = State(tmp_path)
    _touch(first)
    first.close()
    connection = sqlite3.connect(tmp_path / "dither.sqlite3")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StateBrokenError, match="schema 99"):
        _touch(State(tmp_path))
    connection = sqlite3.connect(tmp_path / "dither.sqlite3")
    assert connection.execute("PRAGMA user_version").fetchone() == (99,)
    connection.close()


def test_the_state_directory_is_private(tmp_path: Path) -> None:
    """Nobody else on the machine may read the queue."""
    folder = tmp_path / "deep" / "state"
    made = State(folder)
    _touch(made)
    made.close()
    assert os.stat(folder).st_mode & 0o077 == 0


@pytest.mark.parametrize(("durable", "level"), [(False, 1), (True, 2)])
def test_the_commit_waits_for_the_disk_only_where_it_must(tmp_path: Path, durable: bool, level: int) -> None:
    """record() commits with synchronous=NORMAL (1), sealing with FULL (2), in whatever order they come."""
    made = State(tmp_path)
    for _ in range(2):
        with made.transaction(durable=not durable):
            pass
        with made.transaction(durable=durable) as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA secure_delete").fetchone() == (1,)
    made.close()


def test_another_process_that_writes_makes_it_busy(tmp_path: Path) -> None:
    """After the busy timeout the caller is told, and once the other is done it works again."""
    made = State(tmp_path)
    _touch(made)
    other = sqlite3.connect(tmp_path / "dither.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateBusyError):
        _touch(made)
    other.execute("ROLLBACK")
    other.close()
    _touch(made)
    made.close()


def test_a_transaction_inside_a_transaction_is_refused_and_harms_nothing() -> None:
    """Whoever comes back on the same thread is told, and the outer one goes on."""
    made = State(None)
    with made.transaction() as connection:
        write_note(connection, "a", "1")
        with pytest.raises(StateReentrantError):
            _touch(made)
        write_note(connection, "b", "2")
    with made.transaction() as connection:
        assert (read_note(connection, "a"), read_note(connection, "b")) == ("1", "2")
    made.close()


def test_a_full_disk_is_said_and_rolls_back(tmp_path: Path) -> None:
    """Nothing of the transaction stands, and with room again the state works."""
    made = State(tmp_path)
    with made.transaction() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        with made.transaction() as connection:
            write_note(connection, "small", "x")
            write_note(connection, "large", "x" * 100_000)

    with pytest.raises(StateFullError):
        fill()
    connection.execute("PRAGMA max_page_count = 1000000")
    with made.transaction() as connection:
        assert read_note(connection, "small") is None
    made.close()


def test_a_file_that_is_no_database_is_broken(tmp_path: Path) -> None:
    """Whatever lies there is left alone."""
    (tmp_path / "dither.sqlite3").write_bytes(b"this was a database once" * 100)
    with pytest.raises(StateBrokenError, match="cannot be used"):
        _touch(State(tmp_path))
    assert (tmp_path / "dither.sqlite3").read_bytes().startswith(b"this was")


def test_a_place_that_cannot_be_a_folder_is_broken(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StateBrokenError):
            _touch(State(place))


def test_an_error_of_sqlite_inside_the_block_becomes_the_sdks_own() -> None:
    """The app never meets an exception of SQLite."""
    made = State(None)
    with pytest.raises(StateBrokenError), made.transaction() as connection:
        connection.execute("SELECT * FROM nowhere")
    _touch(made)
    made.close()


def test_a_commit_that_fails_is_rolled_back() -> None:
    """Nothing half done stays open, and the next transaction works."""
    made = State(None)

    def no_commit(action: int, first: str | None, *_: object) -> int:
        deny = action == sqlite3.SQLITE_TRANSACTION and first == "COMMIT"
        return sqlite3.SQLITE_DENY if deny else sqlite3.SQLITE_OK

    def commit() -> None:
        with made.transaction() as connection:
            write_note(connection, "a", "1")
            connection.set_authorizer(no_commit)

    with pytest.raises(StateBrokenError):
        commit()
    made._connected().set_authorizer(None)
    with made.transaction() as connection:
        assert read_note(connection, "a") is None
    made.close()


def test_a_fork_inside_a_transaction_voids_the_childs_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child commits nothing on the connection that it inherited, keeps it unclosed, and begins with its own."""
    kept: list[sqlite3.Connection] = []
    monkeypatch.setattr(state, "_INHERITED", kept)
    made = State(tmp_path)
    connection = made._connected()

    def fork_inside() -> None:
        with made.transaction() as inside:
            write_note(inside, "a", "1")
            made.forget_parent()

    with pytest.raises(StateForkedError):
        fork_inside()
    assert kept == [connection]
    assert connection.in_transaction
    connection.execute("ROLLBACK")  # as the parent, who is somewhere else, will do
    with made.transaction() as own:
        assert own is not connection
        assert read_note(own, "a") is None
    made.close()
    kept.pop().close()


def test_every_state_error_has_a_reason_of_its_own() -> None:
    """The reasons are what `record()` and `stats()` show."""
    kinds = (StateBusyError, StateReentrantError, StateForkedError, StateFullError, StateBrokenError)
    assert [kind.reason for kind in kinds] == ["busy", "reentrant", "forked", "disk_full", "broken"]
    assert all(issubclass(kind, StateError) for kind in kinds)


def test_several_states_may_share_a_folder(tmp_path: Path) -> None:
    """What one has committed the other reads; both may be the first to come."""
    first, second = State(tmp_path), State(tmp_path)
    with first.transaction() as connection:
        write_note(connection, "a", "1")
    with second.transaction() as connection:
        assert read_note(connection, "a") == "1"
    first.close()
    second.close()


def test_a_state_in_memory_is_nobody_elses() -> None:
    """Two of them share nothing, and neither outlives its process."""
    first, second = State(None), State(None)
    with first.transaction() as connection:
        write_note(connection, "a", "1")
    with second.transaction() as connection:
        assert read_note(connection, "a") is None
    assert (first.persistent, State(Path("x")).persistent) == (False, True)
    first.close()
    second.close()


def test_dropping_traces_leaves_nothing_erased_in_any_file(tmp_path: Path) -> None:
    """Zeros in the database, nothing in the write-ahead log, while the connection stays open."""
    made = State(tmp_path)
    made.drop_traces()  # before the first use there is nothing to do
    with made.transaction() as connection:
        write_note(connection, "a", "to-be-erased")
    assert b"to-be-erased" in state_bytes(tmp_path)
    with made.transaction() as connection:
        write_note(connection, "a", None)
    assert b"to-be-erased" in state_bytes(tmp_path)  # the reason why there is drop_traces
    made.drop_traces()
    assert b"to-be-erased" not in state_bytes(tmp_path)
    with made.transaction():
        made.drop_traces()  # in the middle of something: nothing happens
    made.close()


def test_a_state_of_larger_pages_is_read_and_written_on(tmp_path: Path) -> None:
    """A new file has small pages; one that an older version made keeps its own."""
    for folder, size in ((tmp_path / "old", 4096), (tmp_path / "new", state.PAGE_BYTES)):
        folder.mkdir()
        if size != state.PAGE_BYTES:
            older = sqlite3.connect(folder / "dither.sqlite3")
            older.execute("PRAGMA journal_mode = WAL")
            older.close()
        for expected in (None, "kept"):
            made = State(folder)
            with made.transaction() as connection:
                assert connection.execute("PRAGMA page_size").fetchone() == (size,)
                assert read_note(connection, "a") == expected
                write_note(connection, "a", "kept")
            made.close()


def test_notes_are_kept() -> None:
    """A note is replaced and removed."""
    made = State(None)
    with made.transaction() as connection:
        for value in ("1", "2", None):
            write_note(connection, "a", value)
            assert read_note(connection, "a") == value
    made.close()


def test_files_are_closed_before_a_fork_and_memory_is_not(tmp_path: Path) -> None:
    """Both sides open the file anew; what is only in memory would be lost; a transaction under way is left alone."""
    on_disk, in_memory = State(tmp_path), State(None)
    for made in (on_disk, in_memory):
        with made.transaction() as connection:
            write_note(connection, "a", "1")
    before = (on_disk._connection, in_memory._connection)
    state.lock_before_fork()
    state.unlock_in_parent()
    assert on_disk._connection is None
    assert in_memory._connection is before[1]
    with on_disk.transaction() as connection:
        assert connection is not before[0]
        assert read_note(connection, "a") == "1"
        state.lock_before_fork()
        state.unlock_in_parent()
        assert on_disk._connection is connection
        write_note(connection, "a", "2")
    with on_disk.transaction() as connection:
        assert read_note(connection, "a") == "2"
    on_disk.close()
    in_memory.close()


def test_a_child_of_a_fork_inside_a_transaction_leaves_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It inherited a connection whose locks are the parent's: nothing on disk any more, memory works."""
    monkeypatch.setattr(state, "_tainted", True)
    with pytest.raises(StateForkedError, match="inside a transaction"):
        _touch(State(tmp_path / "state"))
    assert not (tmp_path / "state").exists()
    made = State(None)
    _touch(made)
    made.close()
