"""The outbox: randomised reports waiting to be sealed, and sealed batches waiting to be delivered.

A report enters in the transaction of its charge and is never randomised again (invariant P3). A sealed batch
is stored as the very bytes that go out, so every try sends the same.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import groupby
from typing import NamedTuple

from dither_protocol.windows import batch_until
from dither_protocol.wire import MAX_BODY_BYTES, MAX_REPORTS, encode_batch, new_batch_id

_HEAD_ROOM_BYTES = 200  # the batch's own keys, and a little


class Batch(NamedTuple):
    """A sealed batch.

    Attributes:
        batch_id: 16 random bytes.
        until: last UTC date on which it is accepted.
        reports: how many are inside.
        body: the bytes that every try sends.
    """

    batch_id: bytes
    until: date
    reports: int
    body: bytes


def add(connection: sqlite3.Connection, period: str, last_date: date | None, body: str) -> None:
    """Queue one encoded report inside the caller's transaction.

    Args:
        connection: inside the transaction of the report's charge.
        period: of its metric; different periods never share a batch.
        last_date: last day on which its window takes reports; None for `once`.
        body: the report as JSON text.
    """
    connection.execute(
        "INSERT INTO open_reports (period, last_date, body) VALUES (?, ?, ?)",
        (period, last_date.isoformat() if last_date else None, body),
    )


def _fit(rows: Iterable[tuple[int, str | None, str]]) -> Iterator[list[tuple[int, str | None, str]]]:
    """Cut rows of (id, last date, body) into runs that respect the limits of one batch."""
    run: list[tuple[int, str | None, str]] = []
    size = 0
    for row in rows:
        cost = len(row[2].encode("utf-8")) + 1
        if run and (len(run) == MAX_REPORTS or size + cost > MAX_BODY_BYTES - _HEAD_ROOM_BYTES):
            yield run
            run, size = [], 0
        run.append(row)
        size += cost
    if run:
        yield run


def seal(connection: sqlite3.Connection, today: date) -> None:
    """Move all open reports into batches inside the caller's transaction, which must be a durable one."""
    rows = connection.execute(
        "SELECT period, id, last_date, body FROM open_reports ORDER BY period, id"
    ).fetchall()
    for _, same_period in groupby(rows, key=lambda row: row[0]):
        for run in _fit(row[1:] for row in same_period):
            batch_id = new_batch_id()
            until = batch_until((date.fromisoformat(r[1]) if r[1] else None for r in run), today)
            body = encode_batch(batch_id, until, (r[2] for r in run))
            connection.execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?)", (batch_id, until.isoformat(), len(run), body)
            )
    connection.execute("DELETE FROM open_reports")


def first_batch(connection: sqlite3.Connection) -> Batch | None:
    """One sealed batch, in an order that tells nothing: that of its random id."""
    row = connection.execute("SELECT * FROM batches ORDER BY batch_id LIMIT 1").fetchone()
    return Batch(row[0], date.fromisoformat(row[1]), row[2], row[3]) if row else None


def remove(connection: sqlite3.Connection, batch_id: bytes) -> None:
    """Forget a batch that was delivered or given up."""
    connection.execute("DELETE FROM batches WHERE batch_id = ?", (batch_id,))


def pending_reports(connection: sqlite3.Connection) -> int:
    """How many reports are still on the device, sealed or not."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM open_reports) + (SELECT coalesce(sum(reports), 0) FROM batches)"
    ).fetchone()
    return int(row[0])
