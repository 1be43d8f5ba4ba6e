"""``POST /v1/reports``: a batch comes in, is judged, and is on the store's disk before the answer.

It is a WSGI application of its own that stands before the framework. The framework's routing, contexts and request
objects would take as long as reading a batch of ten reports and judging it.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, Flask, Response, request
from werkzeug.exceptions import ClientDisconnected, HTTPException
from werkzeug.wrappers import Request

from dither_protocol.errors import BatchError, BatchProblem
from dither_protocol.wire import MAX_BODY_BYTES, MAX_INFLATED_BYTES, parse_envelope
from dither_server.admission import Admission, admit
from dither_server.admit_call import Outcome
from dither_server.answers import JSON, JSON_HEADERS, encode
from dither_server.auth import Role
from dither_server.bodies import BodyTooLarge, inflate, inflated_size, read_json, turn
from dither_server.problems import Problem, answer_of
from dither_server.service import Service

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

PATH: Final = "/v1/reports"
READ_LIMIT_BYTES: Final = MAX_BODY_BYTES + 1
"""For the framework, which cuts a chunked body at its limit without a word: one byte more shows that it did."""

_ENCODINGS: Final = {"": False, "identity": False, "gzip": True, "x-gzip": True}
"""Accepted content encodings, and whether there is something to inflate (RFC 9110 section 8.4.1)."""
_DIGITS: Final = len(str(MAX_BODY_BYTES))


class Ingest:
    """The route. Call it as a WSGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer one request, errors too."""
        try:
            body = self._take(environ)
        except Exception as error:
            return answer_of(error)(environ, start_response)
        start_response("202 ACCEPTED", [*JSON_HEADERS, ("Content-Length", str(len(body)))])
        return (body,)

    def _take(self, environ: "WSGIEnvironment") -> bytes:
        service = self._service
        key = service.keyring.authorize(environ.get("HTTP_AUTHORIZATION"), Role.INGEST)
        service.quotas.check(key.key_id, key.quota)
        admission = self._judge(*_body(environ))
        charge = service.quotas.charge(key.key_id, key.quota, admission.reports)
        outcome = service.store.admit(admission)
        if outcome is not Outcome.NEW:
            service.quotas.give_back(charge)
        if outcome is Outcome.FULL:
            raise Problem("overloaded", "the counting is behind; the same batch may be sent again later")
        return _accepted(admission, duplicate=outcome is Outcome.DUPLICATE)

    def _judge(self, raw: bytes, zipped: bool) -> Admission:
        """What becomes of each report. A body is kept no longer: while the store works nobody needs it."""
        service = self._service
        with turn(inflated_size(raw) if zipped else len(raw)):
            body = _inflated(raw) if zipped else raw
            return admit(service.store.catalogue(), parse_envelope(read_json(body)), service.clock())


def install(app: Flask, service: Service) -> None:
    """Put the route before the framework.

    The framework knows it too, so that it answers the other methods of its address, and gives it to whoever calls the
    application's views without its WSGI entry.
    """
    ingest, rest = Ingest(service), app.wsgi_app

    def entry(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "POST" and environ.get("PATH_INFO") == PATH:
            return ingest(environ, start_response)
        return rest(environ, start_response)

    app.wsgi_app = entry  # type: ignore[method-assign]  # Flask's own way to put something before it
    routes = Blueprint("ingest", __name__)
    routes.add_url_rule(
        PATH, "post_reports", lambda: Response.from_app(ingest, request.environ), methods=["POST"]
    )
    app.register_blueprint(routes)


def _body(environ: "WSGIEnvironment") -> tuple[bytes, bool]:
    """The body as it was sent, and whether it is to be inflated."""
    if environ.get("CONTENT_TYPE") != JSON and Request(environ).mimetype != JSON:
        raise Problem("unsupported-media-type", f"send {JSON}", "Content-Type")
    zipped = _ENCODINGS.get(environ.get("HTTP_CONTENT_ENCODING", "").strip().lower())
    if zipped is None:
        headers = {"Accept-Encoding": "gzip, identity"}
        raise Problem("unsupported-encoding", "send gzip or no encoding", "Content-Encoding", headers)
    return _read(environ), zipped


def _inflated(raw: bytes) -> bytes:
    try:
        return inflate(raw, MAX_INFLATED_BYTES)
    except BodyTooLarge as error:
        raise Problem("body-too-large", str(error), "body") from None


class _Limited(Request):
    """The framework's way to read what has no plain length."""

    max_content_length = READ_LIMIT_BYTES


def _read(environ: "WSGIEnvironment") -> bytes:
    length = environ.get("CONTENT_LENGTH", "")
    try:
        if length.isdecimal() and len(length) <= _DIGITS and "HTTP_TRANSFER_ENCODING" not in environ:
            return _read_exactly(environ["wsgi.input"], int(length))
        raw = _Limited(environ).get_data(cache=False)
    except (HTTPException, Problem):
        raise
    except Exception:
        # a broken chunk or trailer: what the web server raises here has no better base in common
        raise BatchError(BatchProblem.MALFORMED_BODY, "body", "is not sent as HTTP says") from None
    if len(raw) > MAX_BODY_BYTES:
        raise _too_large()
    return raw


def _read_exactly(stream: Any, size: int) -> bytes:
    if size > MAX_BODY_BYTES:
        raise _too_large()
    raw: bytes = stream.read(size)
    if len(raw) < size:
        raise ClientDisconnected
    return raw


def _too_large() -> Problem:
    return Problem("body-too-large", f"at most {MAX_BODY_BYTES} bytes are read", "body")


def _accepted(admission: Admission, *, duplicate: bool) -> bytes:
    rejected = [
        {"index": refusal.index, "type": refusal.rejection.value, "detail": refusal.detail}
        for refusal in admission.refusals
    ]
    accepted = 0 if duplicate else admission.accepted
    return encode({"accepted": accepted, "duplicate": duplicate, "rejected": rejected})
