"""Log lines of every process: no address, in either style."""

import json
import logging
import sys

import pytest

from dither_protocol.log_lines import FORMATTERS, mask_addresses


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("from 192.0.2.7 to 10.0.0.1.", "from <address> to <address>."),
        ("('127.0.0.1', 5000)", "('<address>', 5000)"),
        ("peer 192.0.2.7:4711 left", "peer <address>:4711 left"),
        ("peer [2001:db8::1]:80, ::1 and fe80::1.", "peer [<address>]:80, <address> and <address>."),
        ("ip=::ffff:192.0.2.7: bad", "ip=<address>: bad"),
        ("at 12:34:56 version 27.0.1, 999.1.1.1", "at 12:34:56 version 27.0.1, 999.1.1.1"),
        ("dither:{p1}:seen::x std::vector", "dither:{p1}:seen::x std::vector"),
    ],
)
def test_addresses_are_masked_and_nothing_else(text: str, masked: str) -> None:
    """IPv4 and IPv6 addresses go, times and versions stay."""
    assert mask_addresses(text) == masked


def _line(style: str) -> str:
    try:
        raise OSError("192.0.2.7 is away")
    except OSError:
        record = logging.LogRecord("room", logging.WARNING, "", 0, "from\n%s", ("192.0.2.8",), sys.exc_info())
    record.created = 1_795_995_200.25
    return FORMATTERS[style]().format(record)


def test_a_line_for_people() -> None:
    """Time in UTC, level, logger and message, and the traceback below."""
    head, rest, *traceback = _line("human").splitlines()
    assert (head, rest) == ("2026-11-29 23:33:20Z WARNING room: from", "<address>")
    assert traceback[-1] == "OSError: <address> is away"


def test_a_line_for_programs() -> None:
    """One object on one line; the traceback is in it."""
    line = _line("json")
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("traceback").endswith("OSError: <address> is away")
    assert isinstance(found.pop("process"), int)
    assert found == {
        "time": "2026-11-29T23:33:20.250+00:00",
        "level": "warning",
        "logger": "room",
        "message": "from\n<address>",
    }
