"""gunicorn's threaded worker, whose own refusals are problems too.

gunicorn answers what never reaches the application (an address of ten megabytes, a broken header) with HTML that
repeats what was sent. Here it chooses the status and writes its log line, and the body is ours.
"""

from http import HTTPStatus
from typing import Any, Final

from gunicorn import util
from gunicorn.workers.gthread import ThreadWorker

from dither_server.problems import Problem


class ProblemWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Answers every error by RFC 9457."""

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        """Called for what cannot be handed to the application."""
        theirs = _Kept()
        super().handle_error(req, theirs, addr, exc)
        try:
            util.write_nonblock(client, problem_bytes(theirs.status))
        except OSError:
            self.log.debug("an error could not be sent: the connection is gone")


class _Kept:
    """Stands for the connection while gunicorn writes its page."""

    def __init__(self) -> None:
        self._sent = b""

    def gettimeout(self) -> float:
        """As of a connection that does not block."""
        return 0.0

    def sendall(self, data: bytes) -> None:
        """Keep it."""
        self._sent += data

    @property
    def status(self) -> int:
        """Of the answer; 500 where there is none."""
        parts = self._sent.split(b" ", 2)
        return int(parts[1]) if len(parts) > 1 else _FAULT


_FAULT: Final = 500


def problem_bytes(status: int) -> bytes:
    """A whole HTTP answer, after which the connection ends."""
    name = "internal-error" if status == _FAULT else "request-refused"
    phrase = HTTPStatus(status).phrase
    answer = Problem(name, phrase, status=status).response()
    head = [f"HTTP/1.1 {status} {phrase}", "Connection: close"]
    head += [f"{field}: {value}" for field, value in answer.headers.items()]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + answer.get_data()
