"""The state directory of `dither serve`: where it is, who may use it, what lies in it."""

import fcntl
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

from dither_cli.errors import StateDirError


def default_state_dir(environ: Mapping[str, str], home: Path, platform: str = sys.platform) -> Path:
    """Where state lies unless ``--state-dir`` says otherwise.

    Args:
        environ: DITHER_HOME goes first, then XDG_STATE_HOME (an absolute path, as that standard demands).
        home: the user's home directory.
        platform: as `sys.platform`.
    """
    if environ.get("DITHER_HOME"):
        return Path(environ["DITHER_HOME"])
    if platform == "darwin":
        return home / "Library" / "Application Support" / "dither-serve"
    xdg = environ.get("XDG_STATE_HOME", "")
    return (Path(xdg) if xdg.startswith("/") else home / ".local" / "state") / "dither-serve"


class StateDir:
    """A directory with mode 0700 that one serve at a time uses. A context manager: leaving it unlocks.

    Attributes:
        path: the directory, absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._lock: IO[str] | None = None

    @property
    def logs(self) -> Path:
        """The folder of the children's output."""
        return self.path / "logs"

    @property
    def store(self) -> Path:
        """The folder of the embedded store's append-only file."""
        return self.path / "store"

    @property
    def processes(self) -> Path:
        """The record of running children."""
        return self.path / "processes.json"

    @property
    def registry(self) -> Path:
        """The registry as it was when the service started, in the form that was given: TOML or signed."""
        return self.path / "registry.toml"

    @property
    def keys(self) -> Path:
        """SHA-256 of every key and token that the server accepts."""
        return self.path / "keys.json"

    @property
    def env(self) -> Path:
        """Shell lines with the address and the plain keys."""
        return self.path / "env"

    @property
    def locked(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock is not None

    def open(self) -> Self:
        """Create what is missing, and lock the directory until `close` or the end of this process.

        Raises:
            StateDirError: another serve uses it, it holds something else, or it cannot be created.
        """
        try:
            self._create()
            self._take_lock()
            for folder in (self.logs, self.store):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StateDirError(f"cannot use the state directory {self.path}: {error.strerror}") from error
        return self

    def close(self) -> None:
        """Unlock. The directory and its contents stay."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.path / "lock").exists() and any(self.path.iterdir()):
            raise StateDirError(
                f"{self.path} is not empty and is not a state directory of dither serve; choose another"
            )
        if stat.S_IMODE(self.path.stat().st_mode) != 0o700:
            self.path.chmod(0o700)

    def _take_lock(self) -> None:
        lock = open(os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="ascii")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise StateDirError(
                f"another dither serve (pid {holder}) uses this directory: {self.path}"
            ) from None
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._lock = lock
