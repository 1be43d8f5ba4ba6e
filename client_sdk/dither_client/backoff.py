"""When to try again, and when to send at all: random times, kept in the state so that a restart keeps them."""

import sqlite3
from typing import Final

from dither_client import entropy
from dither_client.outbox import FAR_AHEAD_S
from dither_client.state import read_note, write_note

BACKOFF_BASE_S: Final = 1.0
BACKOFF_CAP_S: Final = 300.0

_RETRY_AT: Final = "retry at"
_FAILURES: Final = "failures"


def uniform_s(limit_s: float) -> float:
    """A uniform random time in [0, limit_s), seconds; from the operating system, since it must not be guessed."""
    return limit_s * entropy.below(1 << 30) / (1 << 30)


def backoff_s(failures: int) -> float:
    """Full-jitter back-off after ``failures`` failures in a row: uniform in [0, min(cap, base 2^(failures-1))].

    Brooker, Exponential backoff and jitter, AWS Architecture Blog 2015 ("full jitter").
    """
    return uniform_s(min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(failures - 1, 16)))


def retry_at(connection: sqlite3.Connection, now: float) -> float:
    """When the back-off ends, seconds since the epoch; 0 while there is none."""
    note = read_note(connection, _RETRY_AT)
    at = float(note) if note else 0.0
    return at if at <= now + FAR_AHEAD_S else 0.0  # the clock was set back since


def failed(connection: sqlite3.Connection, now: float, after_s: float | None) -> None:
    """Note one more failure: wait as long as the server asked, or for a random time that grows."""
    failures = int(read_note(connection, _FAILURES) or 0) + 1
    wait_s = backoff_s(failures) if after_s is None else after_s
    write_note(connection, _FAILURES, str(failures))
    write_note(connection, _RETRY_AT, repr(now + wait_s))


def succeeded(connection: sqlite3.Connection) -> None:
    """Note that the server answers again."""
    write_note(connection, _FAILURES, None)
    write_note(connection, _RETRY_AT, None)
