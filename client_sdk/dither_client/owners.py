"""Whose reports are whose, where several processes share a state directory.

Every sender has a random token, and holds a lock on a file of that name while its process lives. What belongs to
a live token is delivered by that process alone; what belongs to nobody any more is adopted. The lock is a POSIX
record lock: it dies with its process, whatever kills it, and is not inherited over a fork.
"""

import os
import sqlite3
import weakref
from contextlib import suppress
from pathlib import Path

from dither_client import entropy
from dither_client.errors import StateBrokenError

try:
    import fcntl
except ImportError:  # Windows: no fork there; two processes may then send one batch, which counts once
    fcntl = None  # type: ignore[assignment]

_live: set[str] = set()
"""Tokens of this process. Record locks do not exclude the process that holds them, so it must know its own."""


def forget_parents_tokens() -> None:
    """In a forked child: the parent's tokens are somebody else's now; called by the fork hook."""
    _live.clear()


class Owner:
    """The token of one sender, made when it is first needed.

    Args:
        state_dir: folder of the state; None for a state in memory, which nobody else can see.
    """

    def __init__(self, state_dir: Path | None) -> None:
        self._folder = None if state_dir is None or fcntl is None else state_dir / "owners"
        self._token = ""
        self._close: weakref.finalize[[int], Owner] | None = None  # closes the locked file

    @property
    def token(self) -> str:
        """The token; the first use takes its lock.

        Raises:
            StateBrokenError: the state directory cannot be written.
        """
        if not self._token:
            token = entropy.random_bytes(8).hex()
            if self._folder is not None:
                try:
                    self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    # A bare descriptor: a file object that is open at exit is a ResourceWarning in every app.
                    file = os.open(self._folder / token, os.O_RDWR | os.O_CREAT, 0o600)
                    self._close = weakref.finalize(self, os.close, file)
                    self._close.atexit = False
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    raise StateBrokenError(f"the state cannot be used: {error}") from None
            _live.add(token)
            self._token = token
        return self._token

    def release(self) -> None:
        """Give up the token: what it still owns may be adopted."""
        _live.discard(self._token)
        if self._close is not None and self._folder is not None:
            with suppress(OSError):
                os.unlink(self._folder / self._token)
            self._close()
            self._close = None
        self._token = ""

    def adopt(self, connection: sqlite3.Connection) -> None:
        """Take over reports and batches of processes that are gone, inside the caller's transaction."""
        rows = connection.execute("SELECT owner FROM open_reports UNION SELECT owner FROM batches").fetchall()
        for (token,) in rows:
            if self._is_gone(token):
                takeover = (self.token, token)
                connection.execute("UPDATE open_reports SET owner = ? WHERE owner = ?", takeover)
                connection.execute("UPDATE batches SET owner = ? WHERE owner = ?", takeover)
        self._sweep()

    def _sweep(self) -> None:
        """Remove the files of processes that are gone and had nothing to deliver."""
        if self._folder is not None and self._folder.is_dir():
            for name in os.listdir(self._folder):
                self._is_gone(name)

    def _is_gone(self, token: str) -> bool:
        """Whether no process holds this token; its file is removed then."""
        if token in _live:
            return False
        if self._folder is None:
            return True
        path = self._folder / token
        try:
            with open(path, "r+", encoding="ascii") as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with suppress(OSError):
                    os.unlink(path)
                return True
        except FileNotFoundError:
            return True
        except OSError:
            return False  # held: its process lives
