"""What `Recorder.commit` does with ledger and queue, for tests of the one without the other."""

import sqlite3
from datetime import date

from dither_client import RecordStatus, ledger, outbox
from dither_client.balance import add_to_totals, read_balance

ANY_DAY = date(2026, 11, 29)


def charged(
    connection: sqlite3.Connection,
    item: ledger.Charge,
    today: date,
    limits: ledger.Limits,
    kind: str | None = None,
) -> RecordStatus:
    """Charge one report, inside a transaction that is to be rolled back unless it is QUEUED."""
    balance = read_balance(connection, today)
    status = ledger.charge(connection, item, balance, limits)
    if status is RecordStatus.QUEUED:
        add_to_totals(connection, *ledger.sums(item, balance, kind))
        if not ledger.filters_allow(connection, limits, balance.for_life + item.nano_epsilon):
            return RecordStatus.BUDGET_EXHAUSTED
    return status


def queued(
    connection: sqlite3.Connection,
    report: outbox.OpenReport,
    max_reports: int = 10_000,
    max_bytes: int = 1 << 30,
) -> bool:
    """Queue one report, inside a transaction that is to be rolled back where there is no room."""
    balance, size = read_balance(connection, ANY_DAY), outbox.size_of(report.body)
    add_to_totals(connection, *outbox.sums(size))
    outbox.add(connection, report)
    return outbox.has_room(balance, size, max_reports, max_bytes)
