"""What one answer needs to know of the state, in one read; what it adds to the sums, in one write.

An app waits for `Client.record`, and each statement of SQL costs it some microseconds. So the person's decision, what
was spent on the day and for life, and how full the queue is come together.

Days do not run backwards: what is recorded after the clock was set back is booked on the latest day that the ledger has
seen, so that no day's limit is refilled.
"""

import sqlite3
from datetime import date, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

CONSENT: Final = "consent"
"""The note that holds the person's decision."""

LIFETIME: Final = "lifetime"
QUEUED_REPORTS: Final = "queued reports"
QUEUED_BYTES: Final = "queued bytes"
"""Names of sums; that of a day is its date as ISO text, those of losses by kind are `losses`' own."""

MAX_SET_BACK: Final = timedelta(days=40)
"""How far back a clock may be set without a day's limit being refilled. A day that is further ahead comes from a clock
that was wrong then; if it counted, the device would answer nothing more until it is reached. The limit for life
knows no days."""

_LAST_DAY: Final = date.max - MAX_SET_BACK  # a clock may say anything


class Balance(NamedTuple):
    """The state as it is before an answer. Amounts are in nano-epsilon.

    Attributes:
        consent: what the person decided, as the note has it; None where they have not.
        for_life: spent so far.
        queued_reports: how many reports wait, of all processes.
        queued_bytes: the same in bytes.
        day: on which charges are booked now: the latest that the ledger has seen, where the clock was set back.
        spent_on_it: so far.
    """

    consent: str | None
    for_life: int
    queued_reports: int
    queued_bytes: int
    day: str
    spent_on_it: int


_READ: Final = """
SELECT (SELECT value FROM notes WHERE name = ?),
    (SELECT amount FROM totals WHERE scope = ?),
    (SELECT amount FROM totals WHERE scope = ?),
    (SELECT amount FROM totals WHERE scope = ?),
    (SELECT scope FROM totals WHERE scope >= ? AND scope <= ? ORDER BY scope DESC LIMIT 1),
    (SELECT amount FROM totals WHERE scope >= ? AND scope <= ? ORDER BY scope DESC LIMIT 1)
"""


def read_balance(connection: sqlite3.Connection, today: date) -> Balance:
    """The balance on a UTC date, inside a transaction."""
    days = _days(today)
    names = (CONSENT, LIFETIME, QUEUED_REPORTS, QUEUED_BYTES, *days, *days)
    consent, for_life, reports, size, day, spent = connection.execute(_READ, names).fetchone()
    return Balance(consent, for_life or 0, reports or 0, size or 0, day or days[0], spent or 0)


@lru_cache(maxsize=4)
def _days(today: date) -> tuple[str, str]:
    """A day, and the latest that counts as its own, as ISO text."""
    return today.isoformat(), (min(today, _LAST_DAY) + MAX_SET_BACK).isoformat()


def add_to_totals(connection: sqlite3.Connection, *sums: tuple[str, int]) -> None:
    """Add to sums, each of which begins at zero, in one statement."""
    connection.execute(_addition(len(sums)), [part for each in sums for part in each])


@lru_cache(maxsize=8)
def _addition(count: int) -> str:
    return _ADD_ONE.replace("(?, ?)", ", ".join(["(?, ?)"] * count))


_ADD_ONE: Final = (
    "INSERT INTO totals VALUES (?, ?) ON CONFLICT (scope) DO UPDATE SET amount = amount + excluded.amount"
)


def read_total(connection: sqlite3.Connection, scope: str) -> int:
    """One of the sums; 0 where nothing was ever added."""
    row = connection.execute("SELECT amount FROM totals WHERE scope = ?", (scope,)).fetchone()
    return int(row[0]) if row else 0
