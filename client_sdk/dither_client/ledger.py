"""The ledger: the device's durable record of the privacy it has spent, and the rule that refuses more.

The rule is the plain sum of epsilons (design section 9). A limit for life that has a delta allows what either the plain
sum or a Renyi filter allows (`dither_client.losses`); both are valid however later answers depend on earlier ones, so
their union is. Amounts are whole nano-epsilons, rounded up when charged and down when they are limits, so that sums
are exact and never flatter.

What was spent before an answer comes with the rest of its `balance`; what people may see of it is `spending`.
"""

import sqlite3
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import Final, NamedTuple

from dither_client.balance import LIFETIME, Balance, read_total
from dither_client.results import RecordStatus
from dither_protocol.registry import Privacy

NANO: Final = 10**9

LEAST_DELTA: Final = 1e-100
"""`accounting.loss.MIN_DELTA`, without its import: a delta below it is none, and leaves the plain sum."""


class Limits(NamedTuple):
    """Limits of one device over all metrics, in nano-epsilon; None where there is none.

    Attributes:
        per_day: on the plain sum of one UTC day.
        lifetime: on the plain sum of the state directory.
        filters: limits for life with a delta, as (nano-epsilon, delta); each holds by itself.
    """

    per_day: int | None
    lifetime: int | None
    filters: tuple[tuple[int, float], ...] = ()


class Charge(NamedTuple):
    """What one report costs, and what identifies it: there is one report per metric, window and dimensions."""

    metric: str
    version: int
    window: str
    dimensions: str
    nano_epsilon: int


@lru_cache(maxsize=256)
def nano_charge(epsilon: float) -> int:
    """An epsilon to be charged, in nano-epsilon, rounded up."""
    return int((Decimal(repr(epsilon)) * NANO).to_integral_value(rounding=ROUND_CEILING))


@lru_cache(maxsize=256)
def strictest(*limits: float | None) -> int | None:
    """The lowest of several limits, in nano-epsilon, rounded down; None where there is none at all."""
    known = [limit for limit in limits if limit is not None]
    if not known:
        return None
    return _floor(min(known))


def _floor(limit: float) -> int:
    return int((Decimal(repr(limit)) * NANO).to_integral_value(rounding=ROUND_FLOOR))


@lru_cache(maxsize=64)
def limits_of(
    privacy: Privacy | None, per_day: float | None, lifetime: float | None, max_delta: float | None = None
) -> Limits:
    """The registry's limits (None without a registry) and the app's own; the stricter holds.

    Args:
        privacy: of the registry. Its delta loosens its own limit for life, never the app's (invariant P6).
        per_day: the app's limit on one day.
        lifetime: the app's limit for life.
        max_delta: the delta of the app's limit for life, and the largest that the registry's may have; None: the
            app's limit is one on the plain sum, and the registry's delta is taken as it is.
    """
    limits = [(lifetime, max_delta)]
    if privacy is not None:
        theirs = [delta for delta in (privacy.delta, max_delta) if delta is not None]
        limits.append((privacy.max_epsilon_lifetime, None if privacy.delta is None else min(theirs)))
    filters = tuple(
        (_floor(epsilon), delta)
        for epsilon, delta in limits
        if epsilon is not None and delta is not None and delta >= LEAST_DELTA and _floor(epsilon) > 0
    )
    plain = [
        epsilon for epsilon, delta in limits if epsilon is None or (_floor(epsilon), delta) not in filters
    ]
    return Limits(
        per_day=strictest(per_day, privacy.max_epsilon_per_day if privacy else None),
        lifetime=strictest(*plain),
        filters=filters,
    )


def charge(connection: sqlite3.Connection, item: Charge, balance: Balance, limits: Limits) -> RecordStatus:
    """Enter one report into the ledger, inside the caller's transaction, unless a plain limit forbids it.

    Args:
        connection: of that transaction.
        item: the report.
        balance: before it.
        limits: what may be spent.

    Returns:
        QUEUED when entered: its `sums` are still to be added, and then `filters_allow` has to agree. On
        ALREADY_REPORTED or BUDGET_EXHAUSTED the caller must roll back: the entry may stand.
    """
    added = connection.execute("INSERT OR IGNORE INTO charges VALUES (?, ?, ?, ?, ?)", item)
    if not added.rowcount:
        return RecordStatus.ALREADY_REPORTED
    if limits.per_day is not None and balance.spent_on_it + item.nano_epsilon > limits.per_day:
        return RecordStatus.BUDGET_EXHAUSTED
    if limits.lifetime is not None and balance.for_life + item.nano_epsilon > limits.lifetime:
        return RecordStatus.BUDGET_EXHAUSTED
    return RecordStatus.QUEUED


def sums(item: Charge, balance: Balance, kind: str | None = None) -> tuple[tuple[str, int], ...]:
    """What a report adds to the sums of the day and for life.

    Args:
        item: the report.
        balance: before it.
        kind: under which name `losses` counts the report; without one it counts as the worst of its epsilon.
    """
    plain = ((balance.day, item.nano_epsilon), (LIFETIME, item.nano_epsilon))
    return plain if kind is None else (*plain, (kind, 1))


def filters_allow(connection: sqlite3.Connection, limits: Limits, total: int) -> bool:
    """Whether what is booked stays within every limit for life that has a delta: by the plain sum, or by its filter.

    Args:
        connection: inside the transaction that has added the report in question to the sums.
        limits: what may be spent.
        total: plain sum of all charges, the report's included.
    """
    beyond = [each for each in limits.filters if total > each[0]]
    if not beyond:
        return True
    from dither_client import losses  # noqa: PLC0415  most devices never come so far

    return losses.allowed(connection, total, beyond)


def spent(connection: sqlite3.Connection, scope: str = LIFETIME) -> int:
    """What was spent so far: for life, or on the UTC day ``scope`` (ISO text). In nano-epsilon."""
    return read_total(connection, scope)
