"""Problems: each error has one status, and no body repeats the request."""

import logging

import pytest
from flask import Flask, Response
from werkzeug.exceptions import BadRequest, ImATeapot, MethodNotAllowed, NotFound, RequestEntityTooLarge

from dither_protocol.errors import BatchError, BatchProblem
from dither_server.auth import Forbidden, Role, Unauthenticated
from dither_server.problems import KINDS, Problem, install, problem_of
from dither_server.store_rules import StoreRefused, StoreUnavailable


@pytest.mark.parametrize(
    ("error", "status", "slug", "retryable"),
    [
        (BatchError(BatchProblem.MALFORMED_BODY, "batch", "d"), 400, "malformed-body", False),
        (BatchError(BatchProblem.TOO_MANY_REPORTS, "reports", "d"), 413, "too-many-reports", False),
        (BatchError(BatchProblem.UNTIL_PAST, "until", "d"), 422, "until-past", False),
        (BatchError(BatchProblem.UNTIL_TOO_FAR, "until", "d"), 422, "until-too-far", False),
        (Unauthenticated(presented=False), 401, "unauthorized", False),
        (Unauthenticated(presented=True), 401, "unauthorized", False),
        (Forbidden(Role.VIEWER), 403, "forbidden", False),
        (StoreUnavailable("timeout"), 503, "store-unavailable", True),
        (StoreRefused("was created with partitions 8"), 503, "store-unavailable", True),
        (Problem("overloaded", "d"), 503, "overloaded", True),
        (NotFound(), 404, "not-found", False),
        (MethodNotAllowed(["POST"]), 405, "method-not-allowed", False),
        (RequestEntityTooLarge(), 413, "body-too-large", False),
        (BadRequest(), 400, "request-refused", False),
        (ImATeapot(), 418, "request-refused", False),
        (ZeroDivisionError("secret"), 500, "internal-error", True),
    ],
)
def test_every_error_has_one_answer(error, status, slug, retryable):
    """The table of errors, statuses and types."""
    answer = problem_of(error).response()
    body = answer.get_json(force=True)
    assert (answer.status_code, answer.mimetype) == (status, "application/problem+json")
    assert (body["type"], body["status"], body["retryable"]) == (slug, status, retryable)
    assert body["title"] == KINDS[slug].title
    assert body["detail"]
    assert "secret" not in answer.get_data(as_text=True)
    if retryable:
        assert 1 <= int(answer.headers["Retry-After"]) <= 5
    else:
        assert "Retry-After" not in answer.headers


def test_every_problem_of_a_batch_has_a_kind():
    """A new word in the protocol cannot be forgotten here."""
    assert {problem.value for problem in BatchProblem} <= KINDS.keys()


def test_a_field_is_named_where_it_is_known():
    """The key that is wrong stands in a member of its own."""
    known = problem_of(BatchError(BatchProblem.UNTIL_PAST, "until", "d")).response().get_json(force=True)
    assert known["field"] == "until"
    too_large = problem_of(RequestEntityTooLarge()).response().get_json(force=True)
    assert too_large["field"] == "body"
    assert "field" not in problem_of(NotFound()).response().get_json(force=True)


@pytest.mark.parametrize(
    ("error", "header", "value"),
    [
        (Unauthenticated(presented=False), "WWW-Authenticate", 'Bearer realm="dither"'),
        (Unauthenticated(presented=True), "WWW-Authenticate", 'Bearer realm="dither", error="invalid_token"'),
        (Forbidden(Role.INGEST), "WWW-Authenticate", 'Bearer realm="dither", error="insufficient_scope"'),
        (MethodNotAllowed(["POST", "OPTIONS"]), "Allow", "OPTIONS, POST"),
    ],
)
def test_an_error_brings_its_header(error, header, value):
    """401 and 403 say how to authenticate, 405 says what is allowed."""
    assert problem_of(error).response().headers[header] == value


def test_an_unforeseen_error_is_logged_and_not_shown(caplog):
    """A fault of ours is answered 500, its traceback is in the log and not in the answer."""
    app = Flask("test")
    install(app)

    @app.get("/")
    def fail() -> Response:
        raise ZeroDivisionError("inner words")

    with caplog.at_level(logging.ERROR):
        answer = app.test_client().get("/")
    assert answer.status_code == 500
    assert "inner words" not in answer.text
    assert "inner words" in caplog.text
