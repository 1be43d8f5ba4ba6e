"""A server on loopback that counts as the real one does, batch by batch, and can be told to misbehave.

It runs in threads of the test. ``counted`` says how often each question was counted: the admit rule of design
section 8 (a batch id that was seen is a duplicate and changes nothing) over reports that are unique by their question.
"""

import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.sdk_app import number_of

_DRIP_S = 1.0


@dataclass
class CountingServer:
    """What it saw, and how it behaves.

    Attributes:
        url: where it listens.
        mode: ``good``; ``silent`` accepts, reads and never answers; ``drip`` sends one byte a second; ``refuse``
            answers 503.
        delay_s: longest time between counting a batch and answering; a random part of it is waited.
        lose: share of the answers that are lost: the batch is counted, the connection is cut.
        counted: how often each question was counted.
        bodies: the body of each batch id, as it came first.
        changed: batches that came again with other bytes.
        arrivals: how many requests there were.
        data: the randomised data of each counted report.
        times: `time.monotonic()` of each arrival.
    """

    url: str = ""
    mode: str = "good"
    delay_s: float = 0.0
    lose: float = 0.0
    counted: Counter[int] = field(default_factory=Counter)
    bodies: dict[str, bytes] = field(default_factory=dict)
    changed: list[tuple[bytes, bytes]] = field(default_factory=list)
    arrivals: int = 0
    data: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)

    def admit(self, body: bytes) -> bytes:
        """Count a batch once, and give the receipt."""
        batch = json.loads(body)
        with self.lock:
            first = self.bodies.setdefault(batch["batch"], body)
            if first != body:
                self.changed.append((first, body))
            if first is not body:
                return b'{"accepted":0,"duplicate":true,"rejected":[]}'
            for report in batch["reports"]:
                self.counted[number_of(report)] += 1
                self.data.append(report["data"])
        return b'{"accepted":%d,"duplicate":false,"rejected":[]}' % len(batch["reports"])

    def snapshot(self) -> Counter[int]:
        """What is counted now."""
        with self.lock:
            return Counter(self.counted)

    def wait_for(self, condition: Any, what: str, limit_s: float = 60.0) -> None:
        """Wait until ``condition(counted)`` holds; fails after the hang limit."""
        deadline = time.monotonic() + limit_s
        while not condition(self.snapshot()):
            assert time.monotonic() < deadline, f"{what}: not within {limit_s:g} s"
            time.sleep(0.02)


def _hold(server: CountingServer, connection: socket.socket) -> None:
    """Keep a connection open and say nothing until the other end is gone."""
    connection.settimeout(0.2)
    while not server.stopped.is_set():
        try:
            if not connection.recv(4_096):
                return
        except TimeoutError:
            continue
        except OSError:
            return


def _drip(server: CountingServer, connection: socket.socket) -> None:
    """An answer that never ends, a byte a second."""
    answer = b"HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nX-Long: " + b"x" * 10_000
    for place in range(len(answer)):
        try:
            connection.sendall(answer[place : place + 1])
        except OSError:
            return
        if server.stopped.wait(_DRIP_S):
            return


def cut(connection: socket.socket) -> None:
    """End a connection as a crash of the other side would: with a reset."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _handler(server: CountingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with server.lock:
                server.arrivals += 1
                server.times.append(time.monotonic())
            if server.mode in ("silent", "drip"):
                (_hold if server.mode == "silent" else _drip)(server, self.connection)
                self.close_connection = True
                return
            if server.mode == "refuse":
                self._answer(503, b"{}")
                return
            if len(body) < int(self.headers["Content-Length"]):
                self.close_connection = True  # the sender died in the middle of it
                return
            receipt = server.admit(body)
            time.sleep(server.delay_s * random.random())  # noqa: S311  no secret
            if random.random() < server.lose:  # noqa: S311  no secret
                cut(self.connection)
                self.close_connection = True
                return
            self._answer(202, receipt)

        def _answer(self, status: int, body: bytes) -> None:
            head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            self.wfile.write(head.encode() + body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is http.server's
            """Say nothing."""

    return Handler


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Peers that are killed in the middle of a request are what these tests are about."""


@contextmanager
def counting_server(**behaviour: Any) -> Iterator[CountingServer]:
    """Serve on a free port."""
    server = CountingServer(**behaviour)
    listener = _Listener(("127.0.0.1", 0), _handler(server))
    server.url = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        listener.shutdown()
        listener.server_close()
        thread.join(10)
