"""A real HTTP server on the loopback interface that answers from a script, for tests of the SDK's transport."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RECEIPT = b'{"accepted":1,"duplicate":false,"rejected":[]}'


@dataclass
class Answer:
    """One scripted answer. ``status`` 0 closes the connection without a word."""

    status: int = 202
    body: bytes = RECEIPT
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class ScriptedServer:
    """What the server saw, and what it will answer; the last answer stays."""

    url: str
    answers: list[Answer]
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def next_answer(self) -> Answer:
        """The next answer of the script."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def scripted_server(*answers: Answer) -> Iterator[ScriptedServer]:
    """Serve the answers in turn on a free port."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                script.bodies.append(body)
                script.headers.append(dict(self.headers.items()))
                answer = script.next_answer()
            if answer.status == 0:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is http.server's
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script = ScriptedServer(f"http://127.0.0.1:{server.server_address[1]}", list(answers) or [Answer()])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
