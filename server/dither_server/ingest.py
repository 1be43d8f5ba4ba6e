"""``POST /v1/reports``: a batch comes in, is judged, and is on the store's disk before the answer."""

from typing import Final

from flask import Blueprint, Request, Response, request
from werkzeug.exceptions import HTTPException

from dither_protocol.errors import BatchError, BatchProblem
from dither_protocol.wire import MAX_BODY_BYTES, MAX_INFLATED_BYTES, parse_envelope
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
        key = service.keyring.authorize(request.headers.get("Authorization"), Role.INGEST)
        service.quotas.check(key.key_id, key.quota)
        admission = _judge(_body(request), service)
        charge = service.quotas.charge(key.key_id, key.quota, admission.reports)
        outcome = service.store.admit(admission)
        if outcome is not Outcome.NEW:
            service.quotas.give_back(charge)
        if outcome is Outcome.FULL:
            raise Problem("overloaded", "the counting is behind; the same batch may be sent again later")
        return _accepted(admission, duplicate=outcome is Outcome.DUPLICATE)

    return routes


READ_LIMIT_BYTES: Final = MAX_BODY_BYTES + 1
"""For the framework, which cuts a chunked body at its limit without a word: one byte more shows that it did."""


def _body(given: Request) -> bytes:
    """The inflated body."""
    if given.mimetype != JSON:
        raise Problem("unsupported-media-type", f"send {JSON}", "Content-Type")
    inflated = _ENCODINGS.get(given.headers.get("Content-Encoding", "").strip().lower())
    if inflated is None:
        headers = {"Accept-Encoding": "gzip, identity"}
        raise Problem("unsupported-encoding", "send gzip or no encoding", "Content-Encoding", headers)
    raw = _read(given)
    if not inflated:
        return raw
    try:
        return inflate(raw, MAX_INFLATED_BYTES)
    except BodyTooLarge as error:
        raise Problem("body-too-large", str(error), "body") from None


def _read(given: Request) -> bytes:
    try:
        raw = given.get_data(cache=False)
    except HTTPException:
        raise
    except Exception:
        # a broken chunk or trailer: what the web server raises here has no better base in common
        raise BatchError(BatchProblem.MALFORMED_BODY, "body", "is not sent as HTTP says") from None
    if len(raw) > MAX_BODY_BYTES:
        raise Problem("body-too-large", f"at most {MAX_BODY_BYTES} bytes are read", "body")
    return raw


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
