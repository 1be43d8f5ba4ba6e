"""The device's durable state: one SQLite database per state directory, or one in memory.

WAL mode. `record()` commits with synchronous=NORMAL (a power loss may take unsent answers together with their
charges), the transaction that seals a batch with FULL: nothing leaves before its ledger rows are on disk
(invariant P2).
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SCHEMA_VERSION: Final = 1
BUSY_TIMEOUT_MS: Final = 50

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS charges (    -- one row per report ever made: the ledger
    metric TEXT NOT NULL, version INTEGER NOT NULL, window TEXT NOT NULL, dimensions TEXT NOT NULL,
    nano_epsilon INTEGER NOT NULL,
    PRIMARY KEY (metric, version, window, dimensions)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (      -- sums of the charges: 'lifetime', and one row per UTC day
    scope TEXT PRIMARY KEY, nano_epsilon INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS open_reports (  -- randomised, not yet in a batch
    id INTEGER PRIMARY KEY, period TEXT NOT NULL, last_date TEXT, body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS batches (    -- sealed: these bytes are what every try sends
    batch_id BLOB PRIMARY KEY, until TEXT NOT NULL, reports INTEGER NOT NULL, body BLOB NOT NULL
);
"""


class State:
    """A connection to the state, shared by the app's threads and the sender under one lock.

    Args:
        state_dir: folder of the database, created if missing; None keeps everything in memory, which means
            that a crash or exit loses unsent answers and that each start is a new ledger.
    """

    def __init__(self, state_dir: Path | None) -> None:
        self._lock = threading.RLock()
        if state_dir is None:
            where = ":memory:"
        else:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            where = str(state_dir / "dither.sqlite3")
        # Transactions are written out by hand (isolation_level=None), so that their borders can be seen.
        self._connection = sqlite3.connect(
            where, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._create()

    def _create(self) -> None:
        with self.transaction() as connection:
            found = connection.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, SCHEMA_VERSION):
                raise sqlite3.DatabaseError(f"the state has schema {found}, this SDK reads {SCHEMA_VERSION}")
            if found == 0:
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction, rolled back when its block raises.

        Args:
            durable: whether the commit waits for the disk.
        """
        with self._lock:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection; the state must not be used afterwards."""
        with self._lock:
            self._connection.close()
