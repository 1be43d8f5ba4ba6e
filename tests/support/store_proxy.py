"""Stands between a store and who uses it, and loses what a bad network loses. It knows bytes, and script calls.

::

    with store_proxy(store.folder / "s.sock") as proxy:
        proxy.spoil(Fault.SILENCE)     # of the next script call
        use(proxy.url)
"""

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

_SCRIPT_CALL = b"EVALSHA"
_POLL_S = 0.02

Address = str | tuple[str, int]
"""Path of a Unix socket, or host and port."""


class Fault(Enum):
    """What happens to one round trip that has a script call in it."""

    SILENCE = "the store runs it; its reply is lost, and the connection stays open"
    CUT = "the store runs it; the connection ends instead of the reply"
    HALF_REPLY = "the store runs it; the connection ends within the reply"
    HALF_CALL = "the connection ends within the call"


@dataclass
class StoreProxy:
    """A listening socket, and what it spoils.

    Attributes:
        address: where it listens: a Unix socket, or a port of 127.0.0.1.
        spoilt: the faults that have happened so far.
    """

    address: Address
    spoilt: list[Fault] = field(default_factory=list)
    _next: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """What ``DITHER_STORE_URL`` takes."""
        if isinstance(self.address, str):
            return f"unix://{self.address}"
        return "redis://{}:{}".format(*self.address)

    def spoil(self, *faults: Fault) -> None:
        """Let the next round trips with script calls suffer these, one each."""
        with self._lock:
            self._next.extend(faults)

    def hold(self) -> None:
        """Let nothing through from now on, in either direction: the network is parted."""
        self._open.clear()

    def take(self) -> Fault | None:
        """The fault of the round trip that begins now."""
        with self._lock:
            if not self._next:
                return None
            self.spoilt.append(self._next[0])
            return self._next.pop(0)

    def wait_open(self) -> bool:
        """Wait while it holds; False once it has ended."""
        while not self._stopped.is_set():
            if self._open.wait(_POLL_S):
                return True
        return False


class _Connection:
    """One client's connection, and its own to the store."""

    def __init__(self, proxy: StoreProxy, client: socket.socket, store: socket.socket) -> None:
        self._proxy, self._client, self._store = proxy, client, store
        self._fault: Fault | None = None

    def run(self) -> None:
        """Carry bytes both ways until one side ends."""
        back = threading.Thread(target=self._carry_back, daemon=True)
        back.start()
        with suppress(OSError):
            while (part := self._client.recv(1 << 20)) and self._proxy.wait_open():
                if _SCRIPT_CALL in part:
                    self._fault = self._proxy.take()
                if self._fault is Fault.HALF_CALL:
                    self._store.sendall(part[: part.index(_SCRIPT_CALL) + 20])
                    break
                self._store.sendall(part)
        self._end()
        back.join()

    def _carry_back(self) -> None:
        with suppress(OSError):
            while (part := self._store.recv(1 << 20)) and self._proxy.wait_open():
                if self._fault in (Fault.CUT, Fault.HALF_REPLY):
                    if self._fault is Fault.HALF_REPLY:
                        self._client.sendall(part[: (len(part) + 1) // 2])
                    break
                if self._fault is not Fault.SILENCE:
                    self._client.sendall(part)
        self._end()

    def _end(self) -> None:
        for side in (self._client, self._store):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)


def _serve(proxy: StoreProxy, listener: socket.socket, store: Address) -> None:
    with suppress(OSError):  # the listener is closed at the end
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_handle, args=(proxy, client, store), daemon=True).start()


def _handle(proxy: StoreProxy, client: socket.socket, store: Address) -> None:
    family = socket.AF_UNIX if isinstance(store, str) else socket.AF_INET
    with client, socket.socket(family) as upstream, suppress(OSError):
        upstream.connect(store)
        _Connection(proxy, client, upstream).run()


@contextmanager
def store_proxy(store: Path | int) -> Iterator[StoreProxy]:
    """Stand before the store at a Unix socket, listening at another one; or at a port of 127.0.0.1, at another port."""
    folder = Path(tempfile.mkdtemp(prefix="dp-", dir="/tmp"))  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX if isinstance(store, Path) else socket.AF_INET) as listener:
            listener.bind(str(folder / "p.sock") if isinstance(store, Path) else ("127.0.0.1", 0))
            listener.listen(128)
            proxy = StoreProxy(listener.getsockname())
            proxy._open.set()
            target: Address = str(store) if isinstance(store, Path) else ("127.0.0.1", store)
            thread = threading.Thread(target=_serve, args=(proxy, listener, target), daemon=True)
            thread.start()
            try:
                yield proxy
            finally:
                proxy._stopped.set()
                with suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)
                thread.join(10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
