"""The durable state."""

import os
import sqlite3
from pathlib import Path

import pytest

from dither_client import ledger, outbox
from dither_client.state import State


def test_a_transaction_that_raises_leaves_nothing_behind(tmp_path: Path) -> None:
    """Charge and report go together or not at all (invariant P2)."""
    state = State(tmp_path)

    def fail_half_way() -> None:
        with state.transaction() as connection:
            connection.execute("INSERT INTO charges VALUES ('m', 1, 'w', '()', 1)")
            outbox.add(connection, "day", None, "{}")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    with state.transaction() as connection:
        assert ledger.spent(connection) == 0
        assert outbox.pending_reports(connection) == 0
        assert connection.execute("SELECT count(*) FROM charges").fetchone() == (0,)
    state.close()


def test_a_state_of_a_later_schema_is_refused(tmp_path: Path) -> None:
    """An older SDK does not write into what it does not understand."""
    State(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "dither.sqlite3")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(sqlite3.DatabaseError, match="schema 99"):
        State(tmp_path)


def test_the_state_directory_is_private(tmp_path: Path) -> None:
    """Nobody else on the machine may read the queue."""
    folder = tmp_path / "deep" / "state"
    State(folder).close()
    assert os.stat(folder).st_mode & 0o077 == 0


@pytest.mark.parametrize(("durable", "level"), [(False, 1), (True, 2)])
def test_the_commit_waits_for_the_disk_only_where_it_must(tmp_path: Path, durable: bool, level: int) -> None:
    """record() commits with synchronous=NORMAL (1), sealing with FULL (2)."""
    state = State(tmp_path)
    with state.transaction(durable=durable) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    state.close()
