"""Logs: no address, in either style."""

import json
import logging
import sys

import pytest

from dither_server.logs import HumanFormatter, JsonFormatter, log_config


def _record(message, *args, exc_info=None):
    return logging.LogRecord("gunicorn.error", logging.WARNING, "", 0, message, args, exc_info)


@pytest.mark.parametrize("style", [HumanFormatter, JsonFormatter])
def test_what_was_no_request_is_not_quoted(style):
    """Gunicorn's line about an unreadable request loses the address and the request's bytes."""
    line = style().format(_record("Invalid request from ip=192.0.2.7: Invalid Header: 'secret'"))
    assert "192.0.2.7" not in line
    assert "secret" not in line
    assert "refused" in line


@pytest.mark.parametrize("style", [HumanFormatter, JsonFormatter])
def test_the_query_of_a_request_that_failed_is_not_quoted(style):
    """It may hold a token; the path stays, so that the fault can be found."""
    line = style().format(_record("Error handling request %s %s", "GET", "/login?token=secret?x"))
    assert "GET /login" in line
    assert "secret" not in line


@pytest.mark.parametrize("style", [HumanFormatter, JsonFormatter])
def test_an_address_in_any_message_is_masked(style):
    """A message of any library loses the addresses in it, also those among its arguments."""
    assert "192.0.2.7" not in style().format(_record("%s closed the connection", ("192.0.2.7", 80)))


@pytest.mark.parametrize("style", [HumanFormatter, JsonFormatter])
def test_the_own_address_stays(style):
    """The line that says where the server listens keeps its address."""
    assert "http://127.0.0.1:8787" in style().format(
        _record("Listening at: %s (%s)", "http://127.0.0.1:8787", 1)
    )


@pytest.mark.parametrize("style", [HumanFormatter, JsonFormatter])
def test_a_traceback_is_masked_too(style):
    """An address in an exception does not reach the log, and the traceback does."""
    try:
        raise OSError("no route to 192.0.2.7")
    except OSError:
        line = style().format(_record("failed", exc_info=sys.exc_info()))
    assert "192.0.2.7" not in line
    assert "OSError" in line


def test_a_json_line_is_one_object():
    """The JSON style gives one object with level, logger, message and time."""
    line = JsonFormatter().format(_record("a\nb"))
    assert "\n" not in line
    found = json.loads(line)
    assert (found["level"], found["logger"], found["message"]) == ("warning", "gunicorn.error", "a\nb")
    assert found["time"].endswith("+00:00")


def test_the_style_chooses_the_formatter():
    """DITHER_LOG decides which formatter is used."""
    assert log_config("json")["formatters"]["clean"]["()"] is JsonFormatter
    assert log_config("human")["formatters"]["clean"]["()"] is HumanFormatter
