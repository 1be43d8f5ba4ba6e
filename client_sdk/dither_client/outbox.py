"""The outbox: randomised reports waiting to be sealed, and sealed batches waiting to be delivered.

A report enters in the transaction of its charge and is never randomised again (invariant P3). A sealed batch
is stored as the very bytes that go out, so every try sends the same.

Times are seconds since the epoch by the device's clock. A time further ahead than any delay of ours can only come
from a clock that was set back since, and counts as reached.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import groupby
from typing import Final, NamedTuple

from dither_client.balance import QUEUED_BYTES, QUEUED_REPORTS, Balance, add_to_totals, read_total
from dither_protocol.mechanisms import Data
from dither_protocol.registry.metric import Dimensions, Metric
from dither_protocol.windows import Window, batch_until
from dither_protocol.wire import (
    MAX_BODY_BYTES,
    MAX_REPORTS,
    encode_batch,
    encode_fields,
    new_batch_id,
    split_batch,
)

FAR_AHEAD_S: Final = 2 * 3600.0

_HEAD_ROOM_BYTES = 200  # the batch's own keys, and a little
_DATA_BYTES = (
    32  # more than any datum that is a number or two; bit reports of one metric are all equally long
)


class Batch(NamedTuple):
    """A sealed batch.

    Attributes:
        batch_id: 16 random bytes.
        until: last UTC date on which it is accepted.
        reports: how many are inside.
        in_doubt: whether an earlier try ended without an answer, so that the server may have it.
        body: the bytes that every try sends.
    """

    batch_id: bytes
    until: date
    reports: int
    in_doubt: bool
    body: bytes


def encode_answer(metric: Metric, window: Window, dimensions: Dimensions, data: Data, params: str) -> str:
    """One randomised answer as the JSON text that will stand in a batch."""
    return encode_fields(metric.name, metric.version, params, window.label, dimensions=dimensions, data=data)


class OpenReport(NamedTuple):
    """A report before it is sealed.

    Attributes:
        owner: token of the sender that delivers it.
        due_at: when, seconds since the epoch.
        period: of its metric.
        last_date: ISO text of the last UTC date on which it is accepted; None for `once`.
        body: its JSON text.
    """

    owner: str
    due_at: float
    period: str
    last_date: str | None
    body: str


def size_of(report: str) -> int:
    """What a report counts for in the limit of bytes: the same whatever its datum, which stands last in it.

    With the true length, a nearly full queue would take a short datum and refuse a long one (invariant P9).
    """
    head, data = report.rsplit(":", 1)
    return len(head) + max(len(data), _DATA_BYTES)


def sums(size: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """What a report of this `size_of` adds to the sums of the queue."""
    return (QUEUED_REPORTS, 1), (QUEUED_BYTES, size)


def has_room(balance: Balance, size: int, max_reports: int, max_bytes: int) -> bool:
    """Whether the queue takes one report more.

    Args:
        balance: before the report.
        size: `size_of` the report.
        max_reports: how many reports the whole queue may hold.
        max_bytes: how many bytes of reports the whole queue may hold.
    """
    return balance.queued_reports < max_reports and balance.queued_bytes + size <= max_bytes


def add(connection: sqlite3.Connection, report: OpenReport) -> None:
    """Queue one report, inside the transaction of its charge and of its `sums`."""
    connection.execute(
        "INSERT INTO open_reports (owner, due_at, period, last_date, body) VALUES (?, ?, ?, ?, ?)", report
    )


_Row = tuple[int, str | None, str]  # id, last date, body


def _fit(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Cut rows into runs that respect the limits of one batch."""
    run: list[_Row] = []
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


def seal(
    connection: sqlite3.Connection, owner: str, today: date, now: float, *, everything: bool, alone: bool
) -> None:
    """Move an owner's open reports into batches inside the caller's transaction, which must be a durable one.

    Args:
        connection: inside that transaction.
        owner: whose reports.
        today: UTC date on the device.
        now: time on the device.
        everything: also those whose time has not come.
        alone: each report in a batch of its own.
    """
    rows = connection.execute(
        "SELECT period, id, last_date, body FROM open_reports"
        " WHERE owner = ? AND (? OR due_at <= ? OR due_at > ?) ORDER BY period, id",
        (owner, everything, now, now + FAR_AHEAD_S),
    ).fetchall()
    for _, same_period in groupby(rows, key=lambda row: row[0]):
        members = (row[1:] for row in same_period)
        for run in ([row] for row in members) if alone else _fit(members):
            last_dates = (date.fromisoformat(row[1]) if row[1] else None for row in run)
            _insert(connection, owner, batch_until(last_dates, today), [row[2] for row in run])
            connection.executemany("DELETE FROM open_reports WHERE id = ?", [(row[0],) for row in run])


def _insert(connection: sqlite3.Connection, owner: str, until: date, reports: list[str]) -> None:
    batch_id = new_batch_id()
    body = encode_batch(batch_id, until, reports)
    connection.execute(
        "INSERT INTO batches VALUES (?, ?, ?, ?, 0, 0, ?)",
        (batch_id, owner, until.isoformat(), len(reports), body),
    )


def next_batch(connection: sqlite3.Connection, owner: str) -> Batch | None:
    """A sealed batch of this owner: untried ones first, in the order of their random ids, which tells nothing.

    The batch is marked as in doubt from here on: if the process dies during the try, the server may have it.
    `postpone` takes the mark back after an answer. The caller's transaction must be a durable one.
    """
    row = connection.execute(
        "SELECT batch_id, until, reports, in_doubt, body FROM batches WHERE owner = ?"
        " ORDER BY tried_at, batch_id LIMIT 1",
        (owner,),
    ).fetchone()
    if row is None:
        return None
    connection.execute("UPDATE batches SET in_doubt = 1 WHERE batch_id = ?", (row[0],))
    return Batch(row[0], date.fromisoformat(row[1]), row[2], bool(row[3]), row[4])


def postpone(connection: sqlite3.Connection, batch: Batch, now: float, *, answered: bool) -> None:
    """A try of this batch failed: it goes behind the others, so that one that always fails holds up no other.

    Args:
        connection: inside a transaction.
        batch: as `next_batch` gave it.
        now: time on the device.
        answered: whether the try got an answer, so that it left no doubt that was not there before.
    """
    connection.execute(
        "UPDATE batches SET tried_at = ?, in_doubt = ? WHERE batch_id = ?",
        (now, batch.in_doubt or not answered, batch.batch_id),
    )


def remove(connection: sqlite3.Connection, batch: Batch) -> None:
    """Forget a batch that was delivered or given up."""
    gone = connection.execute("DELETE FROM batches WHERE batch_id = ?", (batch.batch_id,))
    if gone.rowcount:
        size = sum(map(size_of, split_batch(batch.body)))
        add_to_totals(connection, (QUEUED_REPORTS, -batch.reports), (QUEUED_BYTES, -size))


def split(connection: sqlite3.Connection, owner: str, batch: Batch) -> bool:
    """Replace a batch that the server finds too large by two halves with ids of their own.

    Returns:
        False where it holds one report only and cannot be split.
    """
    reports = split_batch(batch.body)
    if len(reports) < 2:
        return False
    gone = connection.execute("DELETE FROM batches WHERE batch_id = ?", (batch.batch_id,))
    if not gone.rowcount:  # erased during the try: it must not come back in halves (invariant P8)
        return True
    middle = len(reports) // 2
    for half in (reports[:middle], reports[middle:]):
        _insert(connection, owner, batch.until, half)
    return True


def next_due(connection: sqlite3.Connection, owner: str, now: float) -> float | None:
    """When the sender has to act next: ``now`` for a sealed batch, the time of the next open report, or None."""
    if connection.execute("SELECT 1 FROM batches WHERE owner = ? LIMIT 1", (owner,)).fetchone():
        return now
    row = connection.execute("SELECT min(due_at) FROM open_reports WHERE owner = ?", (owner,)).fetchone()
    if row[0] is None:
        return None
    return float(row[0]) if row[0] <= now + FAR_AHEAD_S else now


def pending_reports(connection: sqlite3.Connection, owner: str) -> int:
    """How many reports of this owner are still on the device, sealed or not."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM open_reports WHERE owner = ?)"
        " + (SELECT coalesce(sum(reports), 0) FROM batches WHERE owner = ?)",
        (owner, owner),
    ).fetchone()
    return int(row[0])


def contents(connection: sqlite3.Connection) -> tuple[list[bytes], list[str]]:
    """Everything that is going to leave the device: bodies of sealed batches, reports not yet in one."""
    batches = [bytes(row[0]) for row in connection.execute("SELECT body FROM batches ORDER BY batch_id")]
    reports = [str(row[0]) for row in connection.execute("SELECT body FROM open_reports ORDER BY id")]
    return batches, reports


def erase(connection: sqlite3.Connection) -> int:
    """Delete the whole queue, of all owners; how many reports that were."""
    queued = read_total(connection, QUEUED_REPORTS)
    for statement in ("DELETE FROM open_reports", "DELETE FROM batches"):
        connection.execute(statement)
    connection.execute("DELETE FROM totals WHERE scope IN (?, ?)", (QUEUED_REPORTS, QUEUED_BYTES))
    return queued
