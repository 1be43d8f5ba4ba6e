"""Errors as HTTP: the RFC 9457 body, and the one place where an exception becomes a status.

``type`` is a short word, relative to the API's own address as RFC 9457 section 3.1.1 allows; the table in the README
lists them, and clients may rely on them. No body ever carries a byte of what was sent, but for the plain name of a
query parameter that is not known.
"""

import dataclasses
import logging
import math
import secrets
from collections.abc import Mapping
from typing import Final

from flask import Flask, Response
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from dither_protocol.errors import BatchError
from dither_server.answers import encode, json_bytes
from dither_server.auth import Forbidden, Unauthenticated
from dither_server.quota import QuotaExceeded
from dither_server.store_rules import StoreRefused, StoreUnavailable

PROBLEM_JSON: Final = "application/problem+json"
_LOG: Final = logging.getLogger(__name__)
_RETRY_AFTER_S: Final = range(1, 6)
"""A retry is asked for after so many seconds, drawn at random so that devices do not come back all at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """What all problems of one type have in common."""

    status: int
    title: str
    retryable: bool = False


KINDS: Final[dict[str, Kind]] = {
    "malformed-body": Kind(400, "The body is not understood"),
    "query-invalid": Kind(400, "The query is not understood"),
    "unauthorized": Kind(401, "A valid key is required"),
    "forbidden": Kind(403, "The key has another role"),
    "not-found": Kind(404, "There is nothing here"),
    "unknown-metric": Kind(404, "There is no such metric"),
    "method-not-allowed": Kind(405, "The method is not allowed here"),
    "body-too-large": Kind(413, "The body is too large"),
    "too-many-reports": Kind(413, "The batch has too many reports"),
    "unsupported-media-type": Kind(415, "The content type is not supported"),
    "unsupported-encoding": Kind(415, "The content encoding is not supported"),
    "level-unavailable": Kind(409, "The estimates are there at their published level alone"),
    "plan-invalid": Kind(422, "The plan is not possible"),
    "until-past": Kind(422, "The batch is too late"),
    "until-too-far": Kind(422, "The batch lasts too long"),
    "quota-exceeded": Kind(429, "The quota of the key is used up", retryable=True),
    "request-refused": Kind(400, "The request is refused"),
    "internal-error": Kind(500, "The server failed", retryable=True),
    "statistics-not-installed": Kind(501, "This server computes no statistics"),
    "store-unavailable": Kind(503, "The store is unavailable", retryable=True),
    "overloaded": Kind(503, "The store takes no more for now", retryable=True),
    "not-ready": Kind(503, "The server is not ready", retryable=True),
}
"""Every problem type of this API."""

_FRAMEWORK: Final = {
    404: "not-found",
    405: "method-not-allowed",
    413: "body-too-large",
    500: "internal-error",
}


@dataclasses.dataclass(eq=False)  # not frozen: Python itself writes the traceback into an exception
class Problem(Exception):
    """An error as the caller sees it; raise it, or make one from an exception with `problem_of`.

    Attributes:
        type: a key of `KINDS`.
        detail: what is wrong, in words that repeat nothing of the request.
        field: the key of the body or query that it is about, where known.
        headers: of the answer, such as Allow.
        members: further members of the body.
        status: where the type alone does not say it.
    """

    type: str
    detail: str
    field: str | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    members: Mapping[str, object] = dataclasses.field(default_factory=dict)
    status: int | None = None

    def response(self) -> Response:
        """The answer, with Retry-After where a retry may succeed."""
        kind = KINDS[self.type]
        status = self.status or kind.status
        body: dict[str, object] = {
            "type": self.type,
            "title": kind.title,
            "status": status,
            "detail": self.detail,
            "retryable": kind.retryable,
        }
        if self.field is not None:
            body["field"] = self.field
        headers = dict(self.headers)
        if kind.retryable:
            headers.setdefault("Retry-After", str(secrets.choice(_RETRY_AFTER_S)))
        return json_bytes(encode(body | dict(self.members)), status, mimetype=PROBLEM_JSON, headers=headers)


def problem_of(error: Exception) -> Problem:  # noqa: PLR0911  # one return per kind of error is the table
    """The one mapping from exceptions to HTTP."""
    match error:
        case Problem():
            return error
        case BatchError():
            return Problem(error.problem.value, error.detail, error.field)
        case Unauthenticated():
            challenge = 'Bearer realm="dither"' + (', error="invalid_token"' if error.presented else "")
            return Problem("unauthorized", str(error), headers={"WWW-Authenticate": challenge})
        case Forbidden():
            challenge = 'Bearer realm="dither", error="insufficient_scope"'
            return Problem("forbidden", str(error), headers={"WWW-Authenticate": challenge})
        case QuotaExceeded():
            wait_s = math.ceil(error.ends_in_s) + secrets.randbelow(error.quota.spread_s) + 1
            return Problem("quota-exceeded", str(error), headers={"Retry-After": str(wait_s)})
        case StoreUnavailable():
            return Problem("store-unavailable", str(error))
        case StoreRefused():
            return Problem("store-unavailable", "the store is not fit for use; the operator's log says why")
        case HTTPException():
            return _framework_problem(error)
    return Problem("internal-error", "the fault is on our side; the same request may be sent again")


def _framework_problem(error: HTTPException) -> Problem:
    code = error.code or 500
    allow = {}
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        allow["Allow"] = ", ".join(sorted(error.valid_methods))
    slug = _FRAMEWORK.get(code, "request-refused" if code < 500 else "internal-error")
    field = "body" if slug == "body-too-large" else None
    return Problem(slug, error.name, field, headers=allow, status=code)


def answer_of(error: Exception) -> Response:
    """The answer to a request that failed; a fault of ours is logged."""
    problem = problem_of(error)
    if problem.type == "internal-error":
        _LOG.error("a request failed", exc_info=error)
    return problem.response()


def install(app: Flask) -> None:
    """Let every error of ``app`` be answered as a problem."""
    app.register_error_handler(Exception, answer_of)
