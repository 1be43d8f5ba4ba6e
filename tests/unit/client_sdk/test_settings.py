"""Settings: mistakes show at the start, in words that name the setting."""

from typing import Any

import pytest

from dither_client.settings import MAX_DELAY_S, check_key, check_limits, check_numbers
from dither_client.testing import MemoryTransport
from support.clients import make_client

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("key", ["dik_x", "a", "~!%", "x" * 500])
def test_a_key_that_may_stand_in_a_header_is_taken(key: str) -> None:
    """One word of printable ASCII."""
    check_key(key)


@pytest.mark.parametrize(
    "key", ["", "two words", " x", "k\u00e9y", "a\nb", "a\0b", "\x7f", None, 5, b"x"], ids=ascii
)
def test_any_other_key_is_refused(key: Any) -> None:
    """Without repeating it."""
    with pytest.raises(ValueError, match="ingest key") as caught:
        check_key(key)
    assert not key or str(key) not in str(caught.value)


def test_limits_above_zero_or_none_are_taken() -> None:
    """None is no limit."""
    check_limits(None, 1, 0.001, 1e9)


@pytest.mark.parametrize("limit", [0, -1.0, NAN, INF, True, "1", [1]], ids=str)
def test_any_other_limit_is_refused(limit: Any) -> None:
    """A limit that is none would look like protection."""
    with pytest.raises(ValueError, match="limit on epsilon"):
        check_limits(1.0, limit)


def test_numbers_at_their_borders_are_taken() -> None:
    """No delay and an hour, no wait at exit, a queue of one."""
    check_numbers(0, 0, 1, 1)
    check_numbers(MAX_DELAY_S, 1e6, 10**9, 10**12)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("delay_s", value) for value in (-1, 3600.1, NAN, INF, True, "1", None)],
        *[("exit_timeout_s", value) for value in (-0.1, NAN, INF, True, "1", None)],
        *[("max_queue_reports", value) for value in (0, -1, 1.0, True, "1", None)],
        *[("max_queue_bytes", value) for value in (0, -1, 1.0, True, "1", None)],
    ],
    ids=str,
)
def test_any_other_number_is_refused_when_the_client_is_made(setting: str, value: Any) -> None:
    """The message names the setting."""
    with pytest.raises(ValueError, match="queue" if "queue" in setting else setting):
        make_client(MemoryTransport(), **{setting: value})
