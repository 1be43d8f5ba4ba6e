"""The ledger: the device's durable record of the privacy it has spent, and the rule that refuses more.

The rule is the plain sum of epsilons (design section 9). Amounts are whole nano-epsilons, rounded up when
charged and down when they are limits, so that sums are exact and never flatter.
"""

import sqlite3
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final, NamedTuple

from dither_client.results import RecordStatus

_NANO: Final = Decimal(10) ** 9
_LIFETIME: Final = "lifetime"


class Limits(NamedTuple):
    """Limits of one device over all metrics, in nano-epsilon; None where there is none."""

    per_day: int | None
    lifetime: int | None


class Charge(NamedTuple):
    """What one report costs, and what identifies it: there is one report per metric, window and dimensions."""

    metric: str
    version: int
    window: str
    dimensions: str
    nano_epsilon: int


def nano_charge(epsilon: float) -> int:
    """An epsilon to be charged, in nano-epsilon, rounded up."""
    return int((Decimal(repr(epsilon)) * _NANO).to_integral_value(rounding=ROUND_CEILING))


def strictest(*limits: float | None) -> int | None:
    """The lowest of several limits, in nano-epsilon, rounded down; None where there is none at all."""
    known = [limit for limit in limits if limit is not None]
    if not known:
        return None
    return int((Decimal(repr(min(known))) * _NANO).to_integral_value(rounding=ROUND_FLOOR))


def charge(connection: sqlite3.Connection, item: Charge, today: date, limits: Limits) -> RecordStatus:
    """Book one report inside the caller's transaction, or refuse it and change nothing.

    Returns:
        QUEUED when booked, ALREADY_REPORTED or BUDGET_EXHAUSTED when refused.
    """
    key = item[:4]
    if connection.execute(
        "SELECT 1 FROM charges WHERE metric = ? AND version = ? AND window = ? AND dimensions = ?", key
    ).fetchone():
        return RecordStatus.ALREADY_REPORTED
    scopes = ((today.isoformat(), limits.per_day), (_LIFETIME, limits.lifetime))
    for scope, limit in scopes:
        if limit is not None and spent(connection, scope) + item.nano_epsilon > limit:
            return RecordStatus.BUDGET_EXHAUSTED
    connection.execute("INSERT INTO charges VALUES (?, ?, ?, ?, ?)", item)
    for scope, _ in scopes:
        connection.execute(
            "INSERT INTO spent VALUES (?, ?)"
            " ON CONFLICT (scope) DO UPDATE SET nano_epsilon = nano_epsilon + excluded.nano_epsilon",
            (scope, item.nano_epsilon),
        )
    return RecordStatus.QUEUED


def spent(connection: sqlite3.Connection, scope: str = _LIFETIME) -> int:
    """What was spent so far: for life, or on the UTC day ``scope`` (ISO text). In nano-epsilon."""
    row = connection.execute("SELECT nano_epsilon FROM spent WHERE scope = ?", (scope,)).fetchone()
    return int(row[0]) if row else 0
