"""``POST /v1/reports``: a batch comes in, is judged, and is on the store's disk before the answer."""

from typing import Final

from flask import Blueprint, Request, Response, request

from dither_protocol.wire import MAX_INFLATED_BYTES, parse_envelope
from dither_server.admission import Admission, admit
from dither_server.admit_call import Outcome
from dither_server.answers import JSON, encode, json_bytes
from dither_server.auth import Role
from dither_server.bodies import BodyTooLarge, inflate, read_json, turn
from dither_server.problems import Problem
from dither_server.service import Service

_ENCODINGS: Final = {"": False, "identity": False, "gzip": True, "x-gzip": True}
"""Accepted content encodings, and whether there is something to inflate (RFC 9110 section 8.4.1)."""


def blueprint(service: Service) -> Blueprint:
    """The ingest route over one service."""
    routes = Blueprint("ingest", __name__)

    @routes.post("/v1/reports")
    def post_reports() -> Response:
        service.keyring.authorize(request.headers.get("Authorization"), Role.INGEST)
        admission = _judge(_body(request), service)
        outcome = service.store.admit(admission)
        if outcome is Outcome.FULL:
            raise Problem("overloaded", "the counting is behind; the same batch may be sent again later")
        return _accepted(admission, duplicate=outcome is Outcome.DUPLICATE)

    return routes


def _body(given: Request) -> bytes:
    """The inflated body. The framework refuses more than MAX_BODY_BYTES on the wire, chunked or not."""
    if given.mimetype != JSON:
        raise Problem("unsupported-media-type", f"send {JSON}", "Content-Type")
    inflated = _ENCODINGS.get(given.headers.get("Content-Encoding", "").strip().lower())
    if inflated is None:
        headers = {"Accept-Encoding": "gzip, identity"}
        raise Problem("unsupported-encoding", "send gzip or no encoding", "Content-Encoding", headers)
    raw = given.get_data(cache=False)
    if not inflated:
        return raw
    try:
        return inflate(raw, MAX_INFLATED_BYTES)
    except BodyTooLarge as error:
        raise Problem("body-too-large", str(error), "body") from None


def _judge(body: bytes, service: Service) -> Admission:
    with turn(len(body)):
        envelope = parse_envelope(read_json(body))
        return admit(service.store.catalogue(), envelope, service.clock())


def _accepted(admission: Admission, *, duplicate: bool) -> Response:
    rejected = [
        {"index": refusal.index, "type": refusal.rejection.value, "detail": refusal.detail}
        for refusal in admission.refusals
    ]
    accepted = 0 if duplicate else admission.accepted
    return json_bytes(encode({"accepted": accepted, "duplicate": duplicate, "rejected": rejected}), 202)
