"""Whose reports are whose, where several processes share a state directory.

Every sender has a random token, and holds a lock on a file of that name while its process lives. What belongs to
a live token is delivered by that process alone; what belongs to nobody any more is adopted. The lock is a POSIX
record lock: it dies with its process, whatever kills it, and is not inherited over a fork.

A file is there a moment before its lock is. Whoever sweeps just then takes it for one of the dead and removes it, so a
token counts only once its file is locked and still in its place; else another one is drawn.
"""

import os
import sqlite3
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from dither_client import entropy
from dither_client.errors import StateBrokenError, StateBusyError

try:
    import fcntl
except ImportError:  # Windows: no fork there; two processes may then send one batch, which counts once
    fcntl = None  # type: ignore[assignment]

_live: set[str] = set()
"""Tokens of this process. Record locks do not exclude the process that holds them, so it must know its own."""

_TRIES: Final = 100


def forget_parents_tokens() -> None:
    """In a forked child: the parent's tokens are somebody else's now; called by the fork hook."""
    _live.clear()


class _Held(NamedTuple):
    """A token, and what closes its locked file; None where it has no file."""

    token: str
    close: "weakref.finalize[[int], Owner] | None"


class Owner:
    """The token of one sender, made when it is first needed.

    Args:
        state_dir: folder of the state; None for a state in memory, which nobody else can see.
    """

    def __init__(self, state_dir: Path | None) -> None:
        self._folder = None if state_dir is None or fcntl is None else state_dir / "owners"
        self._held: dict[str, _Held] = {}

    @property
    def token(self) -> str:
        """The token; the first use takes its lock.

        Raises:
            StateBrokenError: the state directory cannot be written.
            StateBusyError: every token that was tried was swept at once.
        """
        held = self._held.get("token")
        for _ in range(0 if held else _TRIES):
            held = self._take(entropy.random_bytes(8).hex())
            if held:
                break
        if held is None:
            raise StateBusyError("other processes sweep the state all the time")
        return held.token

    def _take(self, token: str) -> _Held | None:
        """Hold this token, or the one that another thread or a signal handler took first; None where it was swept.

        No lock decides which: a handler that records would wait for it on the very thread that holds it.
        """
        # Known before it has a file: a sweep by another thread would end the lock by closing the file again.
        _live.add(token)
        taken = None
        try:
            close = None if self._folder is None else self._locked(self._folder / token)
            if self._folder is None or close is not None:
                taken = self._held.setdefault("token", _Held(token, close))  # one step: all get the first one
        except OSError as error:
            raise StateBrokenError(f"the state cannot be used: {error}") from None
        finally:
            if taken is None or taken.token != token:
                _live.discard(token)
        if taken is not None and taken.token != token:
            self._give_up(_Held(token, close))
        return taken

    def _give_up(self, held: _Held) -> None:
        _live.discard(held.token)
        if held.close is not None and self._folder is not None:
            with suppress(OSError):
                os.unlink(self._folder / held.token)
            held.close()

    def _locked(self, path: Path) -> "weakref.finalize[[int], Owner] | None":
        """A new file with its lock, as what closes it; None where it was swept."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A bare descriptor: a file object that is open at exit is a ResourceWarning in every app.
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        close = weakref.finalize(self, os.close, file)
        close.atexit = False
        with suppress(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink:
                return close
        close()
        return None

    def release(self) -> None:
        """Give up the token: what it still owns may be adopted."""
        held = self._held.pop("token", None)
        if held is not None:
            self._give_up(held)

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
