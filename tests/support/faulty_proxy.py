"""A TCP proxy on loopback that drops whole requests before the server sees them, and answers after it has counted.

It speaks just enough HTTP to see where a request and an answer end: one exchange per connection, each with a
Content-Length. A drop is, by chance, an orderly close, a reset, or silence until the sender gives up.
"""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from support.sdk_server import cut

_HANG_LIMIT_S = 30.0


@dataclass
class FaultyProxy:
    """What went through it.

    Attributes:
        url: where it listens.
        drop_requests: share of the requests that the server never sees.
        drop_answers: share of the answers that the sender never sees.
        silence_s: how long a silent drop holds the connection.
        bodies: the body of every request, in order of arrival.
        dropped: how many requests and how many answers.
    """

    url: str
    drop_requests: float
    drop_answers: float
    silence_s: float
    bodies: list[bytes] = field(default_factory=list)
    dropped: list[int] = field(default_factory=lambda: [0, 0])
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)


def _message(connection: socket.socket) -> bytes:
    """One whole HTTP message, or empty where the connection ends first."""
    text = b""
    while b"\r\n\r\n" not in text:
        part = connection.recv(65_536)
        if not part:
            return b""
        text += part
    head, _, body = text.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        part = connection.recv(65_536)
        if not part:
            return b""
        body += part
    return head + b"\r\n\r\n" + body


def _drop(proxy: FaultyProxy, connection: socket.socket, place: int) -> None:
    with proxy.lock:
        proxy.dropped[place] += 1
    way = random.randrange(3)  # noqa: S311  no secret
    if way == 0:
        cut(connection)
    elif way == 1:
        proxy.stopped.wait(proxy.silence_s)


def _exchange(proxy: FaultyProxy, connection: socket.socket, upstream: tuple[str, int]) -> None:
    with connection, suppress(OSError):
        connection.settimeout(_HANG_LIMIT_S)
        request = _message(connection)
        if not request:
            return
        head, _, body = request.partition(b"\r\n\r\n")
        with proxy.lock:
            proxy.bodies.append(body)
        if random.random() < proxy.drop_requests:  # noqa: S311  no secret
            _drop(proxy, connection, 0)
            return
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        with socket.create_connection(upstream, timeout=_HANG_LIMIT_S) as server:
            server.sendall(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
            answer = _message(server)
        if random.random() < proxy.drop_answers:  # noqa: S311  no secret
            _drop(proxy, connection, 1)
            return
        connection.sendall(answer)


def _serve(proxy: FaultyProxy, listener: socket.socket, upstream: tuple[str, int]) -> None:
    while not proxy.stopped.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        except OSError:
            return
        threading.Thread(target=_exchange, args=(proxy, connection, upstream), daemon=True).start()


@contextmanager
def faulty_proxy(
    server_url: str, *, drop_requests: float = 0.3, drop_answers: float = 0.3, silence_s: float = 0.3
) -> Iterator[FaultyProxy]:
    """Stand before the server at ``server_url``."""
    parts = urlsplit(server_url)
    upstream = (str(parts.hostname), int(parts.port or 80))
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        listener.settimeout(0.1)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        proxy = FaultyProxy(url, drop_requests, drop_answers, silence_s)
        thread = threading.Thread(target=_serve, args=(proxy, listener, upstream), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.stopped.set()
            thread.join(10)
