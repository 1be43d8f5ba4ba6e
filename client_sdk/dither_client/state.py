"""The device's durable state: one SQLite database per state directory, or one in memory.

WAL mode. `record()` commits with synchronous=NORMAL (a power loss may take unsent answers together with their
charges), a transaction that lets bytes leave commits with FULL: nothing leaves before its ledger rows are on
disk (invariant P2).

Fork: SQLite's own locks are not made for it. All use of SQLite by the SDK is under one lock of the process, which
is taken before every fork, so that no thread is inside SQLite then. Connections to files are closed before the fork,
and both sides open their own afterwards: a child that inherited one would believe that it holds locks which the
parent holds, and lose its log of changes to whoever closes the database next. A connection to memory stays the
parent's; the child never touches it, not even to close it.
"""

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dither_client.errors import (
    StateBrokenError,
    StateBusyError,
    StateError,
    StateForkedError,
    StateFullError,
    StateReentrantError,
)

SCHEMA_VERSION: Final = 2
BUSY_TIMEOUT_MS: Final = 50
PAGE_BYTES: Final = 1024

_SCHEMA: Final = """
CREATE TABLE charges (                  -- one row per report ever made: the ledger
    metric TEXT NOT NULL, version INTEGER NOT NULL, window TEXT NOT NULL, dimensions TEXT NOT NULL,
    nano_epsilon INTEGER NOT NULL,
    PRIMARY KEY (metric, version, window, dimensions)
) WITHOUT ROWID;
CREATE TABLE totals (                   -- sums: nano-epsilon for life and by UTC day, losses by kind, reports, bytes
    scope TEXT PRIMARY KEY, amount INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE open_reports (             -- randomised, not yet in a batch
    id INTEGER PRIMARY KEY, owner TEXT NOT NULL, due_at REAL NOT NULL, period TEXT NOT NULL, last_date TEXT,
    body TEXT NOT NULL
);
CREATE TABLE batches (                  -- sealed: these bytes are what every try sends
    batch_id BLOB PRIMARY KEY, owner TEXT NOT NULL, until TEXT NOT NULL, reports INTEGER NOT NULL,
    tried_at REAL NOT NULL, in_doubt INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE TABLE notes (                    -- consent, back-off, cached registry, the secret of memoised metrics
    name TEXT PRIMARY KEY, value TEXT NOT NULL
) WITHOUT ROWID
"""

_SINCE_2: Final = """
CREATE TABLE memos (                    -- memoised metrics: the last permanent answer
    metric TEXT NOT NULL, version INTEGER NOT NULL, params TEXT NOT NULL, answer BLOB NOT NULL,
    PRIMARY KEY (metric, version, params)
) WITHOUT ROWID;
CREATE TABLE memo_values (              -- a keyed tag for each distinct value that has a permanent answer
    metric TEXT NOT NULL, version INTEGER NOT NULL, params TEXT NOT NULL, tag BLOB NOT NULL,
    PRIMARY KEY (metric, version, params, tag)
) WITHOUT ROWID;
CREATE TABLE draws (                    -- which metric of a group is answered in a window
    one_of TEXT NOT NULL, window TEXT NOT NULL, metric TEXT NOT NULL, ends_at REAL NOT NULL,
    PRIMARY KEY (one_of, window)
) WITHOUT ROWID
"""

_STEPS: Final = (_SCHEMA, _SINCE_2)
"""What makes each version of the schema out of the one before; an older state is brought up when it is opened."""

_LOCK = threading.RLock()
_INHERITED: list[sqlite3.Connection] = []
"""Connections of a parent process: kept, so that they are never collected, which would close them."""
_on_disk: "weakref.WeakSet[State]" = weakref.WeakSet()
"""States that have a connection to a file."""
_tainted = False
"""Whether this process inherited a connection to a file: it was forked inside a transaction."""


def lock_before_fork() -> None:
    """Wait until no thread is inside SQLite, and close the files; called by the fork hook."""
    _LOCK.acquire()
    for state in list(_on_disk):
        state.close_before_fork()


def unlock_in_parent() -> None:
    """Let the parent's threads go on; called by the fork hook."""
    _LOCK.release()


def renew_in_child() -> None:
    """The child's threads are gone, and so is whoever held the lock; called by the fork hook."""
    global _LOCK, _tainted  # noqa: PLW0603  one lock for the process, and this is another process
    _LOCK = threading.RLock()
    _tainted = _tainted or len(_on_disk) > 0
    _on_disk.clear()


class State:
    """The database of one state directory, opened at the first transaction.

    Args:
        state_dir: its folder, created if missing; None keeps everything in memory, which means that an exit
            loses unsent answers and that each start is a new ledger.
    """

    def __init__(self, state_dir: Path | None) -> None:
        self._state_dir = state_dir
        self._connection: sqlite3.Connection | None = None
        self._inside = 0  # id of the thread that is inside a transaction
        self._durable = False  # what the connection's `synchronous` was set to last
        self._pid = os.getpid()

    @property
    def persistent(self) -> bool:
        """Whether it outlives the process."""
        return self._state_dir is not None

    def _connected(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            self.forget_parent()
        if self._connection is None:
            if _tainted and self.persistent:
                raise StateForkedError("the process was forked inside a transaction")
            if self.persistent:
                _on_disk.add(self)  # before it is opened: a signal handler may fork in the middle of that
            try:
                connection = self._open()
            except (sqlite3.Error, OSError) as error:
                raise _own_error(error) from None
            if _tainted and self.persistent:
                _INHERITED.append(connection)
                raise StateForkedError("the process was forked while it opened the state")
            self._connection = connection
        return self._connection

    def _open(self) -> sqlite3.Connection:
        where = ":memory:"
        if self._state_dir is not None:
            self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            where = str(self._state_dir / "dither.sqlite3")
        # Transactions are written out by hand (isolation_level=None), so that their borders can be seen.
        connection = sqlite3.connect(
            where, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
        )
        try:
            # Of a new file alone; an older one keeps its own. A record() writes three pages to the log.
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            # Erased answers are overwritten with zeros, not only unlinked (invariant P8).
            connection.execute("PRAGMA secure_delete = ON")
            self._durable = False
            _create(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def close_before_fork(self) -> None:
        """Close the file, unless the thread that forks is inside a transaction on it; the next use opens it again."""
        if self._inside:
            return
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()
        _on_disk.discard(self)

    def forget_parent(self) -> None:
        """In a forked child: leave the parent's connection alone and start anew at the next use."""
        if self._connection is not None:
            _INHERITED.append(self._connection)
        self._connection = None
        self._inside = 0
        self._pid = os.getpid()

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction, rolled back when its block raises.

        Args:
            durable: whether the commit waits for the disk.

        Raises:
            StateReentrantError: this thread is inside one already.
            StateBusyError: another process holds the database.
            StateFullError: the disk is full.
            StateBrokenError: the database cannot be used.
        """
        me = threading.get_ident()
        if self._inside == me and self._pid == os.getpid():
            raise StateReentrantError("this thread is inside a transaction of the state already")
        with _LOCK:
            self._inside = me
            try:
                connection = self._connected()
                self._inside = me  # which it forgets in a process that has just been forked
                if durable is not self._durable:
                    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                    self._durable = durable
                # One generator, and no second one inside of it: that would cost a short transaction 2 us.
                try:
                    connection.execute(
                        "BEGIN IMMEDIATE"
                    )  # in here: a handler may raise as soon as it has begun
                    yield connection
                    if self._connection is not connection or self._pid != os.getpid():
                        raise StateForkedError("the process forked inside a transaction")
                    connection.execute("COMMIT")
                except BaseException:
                    self._roll_back(connection)
                    raise
            except (sqlite3.Error, OSError) as error:
                raise _own_error(error) from None
            finally:
                if self._inside == me:
                    self._inside = 0

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        """Unless the transaction is that of the process that this one was forked from."""
        if self._connection is connection and self._pid == os.getpid():
            # SQLite has rolled back by itself after some errors (disk full); then there is nothing to do.
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")

    def drop_traces(self) -> bool:
        """Empty the write-ahead log, which keeps pages as they were before something was erased.

        Returns:
            False where another process is inside a transaction just now: what was erased is still in the log, and a
            later checkpoint of that process would neither empty it nor overwrite it.
        """
        with _LOCK, suppress(sqlite3.Error, StateError):
            (row,) = self._connected().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return not row[0]
        return False

    def close(self) -> None:
        """Close the connection; the state must not be used afterwards."""
        with _LOCK:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
                self._connection = None
                _on_disk.discard(self)


def _own_error(error: sqlite3.Error | OSError) -> StateError:
    """An error of SQLite or the file system as one of the SDK's own; the values in statements are not repeated."""
    if isinstance(error, sqlite3.OperationalError):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        # PROTOCOL: SQLite gave up after many tries to begin while others opened and closed the log.
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
            return StateBusyError("another process holds the state")
        if code == sqlite3.SQLITE_FULL:
            return StateFullError("the disk is full")
    return StateBrokenError(f"the state cannot be used: {error}")


def _create(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if not 0 <= found <= SCHEMA_VERSION:
            raise sqlite3.DatabaseError(f"it has schema {found}, this SDK reads {SCHEMA_VERSION}")
        for step in _STEPS[found:]:
            for statement in step.split(";\n"):
                connection.execute(statement)
        if found < SCHEMA_VERSION:
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def read_note(connection: sqlite3.Connection, name: str) -> str | None:
    """A note by its name; None where there is none."""
    row = connection.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
    return str(row[0]) if row else None


def write_note(connection: sqlite3.Connection, name: str, value: str | None) -> None:
    """Keep a note, or remove it with None."""
    if value is None:
        connection.execute("DELETE FROM notes WHERE name = ?", (name,))
    else:
        connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))
