"""Groups of metrics of which a device answers one per window (`one_of`), and the lot that decides which.

The lot is drawn by the operating system's randomness when any member is first recorded in a window, whatever that
member, its value or its dimensions are (invariant P9), and kept: retries, restarts, forks and other processes find the
same. A member that the app never records is drawn as often as the others, and then there is no report.

A draw is committed with the report that it allows, or alone where it allows none. A draw that was lost or cleaned
before any report was made has told nobody anything, so another takes its place; one that led to a report is
found in the ledger, which is never cleaned.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from dither_client import entropy
from dither_protocol.registry import Metric


def drawn(
    connection: sqlite3.Connection,
    group: Sequence[Metric],
    asked: Sequence[Metric],
    window: str,
    now: datetime,
) -> str:
    """The name of the one metric of a group that this device answers in a window.

    Args:
        connection: inside the transaction of the answer, which must be committed whatever is drawn.
        group: all its metrics.
        asked: those that this device may answer now; at least one.
        window: label of the window.
        now: an aware datetime inside of it.
    """
    name = group[0].one_of
    row = connection.execute(
        "SELECT metric FROM draws WHERE one_of = ? AND window = ?", (name, window)
    ).fetchone()
    if row:
        return str(row[0])
    chosen = _answered(connection, group, window) or asked[entropy.below(len(asked))].name
    ends_at = max(metric.window_at(now).end for metric in asked).timestamp()
    connection.execute("DELETE FROM draws WHERE ends_at <= ?", (now.timestamp(),))
    connection.execute("INSERT INTO draws VALUES (?, ?, ?, ?)", (name, window, chosen, ends_at))
    return chosen


def _answered(connection: sqlite3.Connection, group: Sequence[Metric], window: str) -> str | None:
    """The member that was answered in this window already: its draw was cleaned, and the clock set back."""
    for metric in group:
        version = _version_below(connection, metric.name, 2**31)
        while version is not None:  # version by version: the ledger may be long, and is sorted like this
            if connection.execute(
                "SELECT 1 FROM charges WHERE metric = ? AND version = ? AND window = ? LIMIT 1",
                (metric.name, version, window),
            ).fetchone():
                return metric.name
            version = _version_below(connection, metric.name, version)
    return None


def _version_below(connection: sqlite3.Connection, name: str, version: int) -> int | None:
    """The highest version below this one of which this device ever answered the metric."""
    row = connection.execute(
        "SELECT max(version) FROM charges WHERE metric = ? AND version < ?", (name, version)
    ).fetchone()
    return None if row[0] is None else int(row[0])
