"""A real HTTP server on the loopback interface that answers from a script, for tests of the SDK's transport."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RECEIPT = b'{"accepted":1,"duplicate":false,"rejected":[]}'


@dataclass
class Answer:
    """One scripted answer.

    Attributes:
        status: of the answer; 0 closes the connection without a word.
        body: of the answer.
        headers: beside Content-Length.
        drip_s: seconds between two bytes of the body; 0 sends it at once.
        silent: read the request and never answer, until the server ends.
        reset: read the request and reset the connection.
    """

    status: int = 202
    body: bytes = RECEIPT
    headers: dict[str, str] = field(default_factory=dict)
    drip_s: float = 0.0
    silent: bool = False
    reset: bool = False


@dataclass
class ScriptedServer:
    """What the server saw, and what it will answer; the last answer stays.

    Attributes:
        url: where it listens.
        answers: to batches, in turn.
        registry: to ``GET /v1/registry``, in turn.
        bodies: of the batches it was sent.
        headers: of those requests.
        gets: headers of the requests for the registry.
        paths: of those.
        connections: how many were opened.
    """

    url: str
    answers: list[Answer]
    registry: list[Answer] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    gets: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    connections: int = 0

    def next_answer(self) -> Answer:
        """The next answer of the script."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def next_registry(self) -> Answer:
        """The next answer about the registry; 404 where none is scripted."""
        if not self.registry:
            return Answer(status=404, body=b"")
        return self.registry.pop(0) if len(self.registry) > 1 else self.registry[0]


@contextmanager
def scripted_server(*answers: Answer, keep_alive: bool = False) -> Iterator[ScriptedServer]:
    """Serve the answers in turn on a free port; with ``keep_alive`` a connection takes many requests."""
    lock = threading.Lock()
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if keep_alive else "HTTP/1.0"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                script.bodies.append(body)
                script.headers.append(dict(self.headers.items()))
                answer = script.next_answer()
            self.say(answer)

        def do_GET(self) -> None:
            with lock:
                script.gets.append(dict(self.headers.items()))
                script.paths.append(self.path)
                answer = script.next_registry()
            self.say(answer)

        def say(self, answer: Answer) -> None:
            if answer.silent:
                stopped.wait()
            if answer.reset:
                linger = struct.pack("ii", 1, 0)  # closing sends RST
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
            if answer.status == 0 or answer.silent or answer.reset:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if "Content-Length" not in answer.headers and "Transfer-Encoding" not in answer.headers:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            with suppress(OSError):  # whoever asked may have lost patience
                self.pour(answer)

        def pour(self, answer: Answer) -> None:
            if not answer.drip_s:
                self.wfile.write(answer.body)
                return
            for byte in answer.body:
                self.wfile.write(bytes([byte]))
                if stopped.wait(answer.drip_s):
                    return

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is http.server's
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def get_request(self) -> Any:
            accepted = super().get_request()
            with lock:
                script.connections += 1
            return accepted

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing: what a device cuts short is part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    script = ScriptedServer(f"http://127.0.0.1:{server.server_address[1]}", list(answers) or [Answer()])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        stopped.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
