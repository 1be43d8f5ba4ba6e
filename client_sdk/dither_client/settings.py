"""What an app may pass to `Client`, with its defaults: mistakes show at the start, not at the first report."""

import math
from datetime import UTC, datetime
from typing import Final

DEFAULT_MAX_EPSILON: Final = 8.0
DEFAULT_DELAY_S: Final = 300.0
MAX_DELAY_S: Final = 3600.0
DEFAULT_EXIT_TIMEOUT_S: Final = 2.0
DEFAULT_MAX_QUEUE_REPORTS: Final = 10_000
DEFAULT_MAX_QUEUE_BYTES: Final = 16 << 20


def utc_now() -> datetime:
    """The default clock."""
    return datetime.now(UTC)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_key(ingest_key: str) -> None:
    """Refuse a key that could not stand in a header.

    Raises:
        ValueError: it is no single word of printable ASCII.
    """
    if not isinstance(ingest_key, str) or not ingest_key.isascii() or not ingest_key.isprintable():
        raise ValueError("the ingest key must be printable ASCII")
    if not ingest_key or " " in ingest_key:
        raise ValueError("the ingest key must be one word")


def check_limits(*limits: float | None, max_delta: float | None = None) -> None:
    """Refuse a limit on epsilon, or on delta, that is none.

    Raises:
        ValueError: one on epsilon is not a finite number above 0, or that on delta is none between 0 and 1.
    """
    if max_delta is not None and (not _is_number(max_delta) or not 0 < max_delta < 1):
        raise ValueError("max_delta must be a number between 0 and 1")
    for limit in limits:
        if limit is not None and (not _is_number(limit) or limit <= 0):
            raise ValueError("a limit on epsilon must be a finite number above 0")


def check_numbers(delay_s: float, exit_timeout_s: float, *queue_limits: int) -> None:
    """Refuse times and sizes outside their range.

    Raises:
        ValueError: the message names the setting.
    """
    if not _is_number(delay_s) or not 0 <= delay_s <= MAX_DELAY_S:
        raise ValueError(f"delay_s must be a number from 0 to {MAX_DELAY_S:g}")
    if not _is_number(exit_timeout_s) or exit_timeout_s < 0:
        raise ValueError("exit_timeout_s must be a finite number from 0")
    for limit in queue_limits:
        if type(limit) is not int or limit < 1:
            raise ValueError("a limit of the queue must be a whole number from 1")
