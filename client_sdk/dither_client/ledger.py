"""The ledger: the device's durable record of the privacy it has spent, and the rule that refuses more.

The rule is the plain sum of epsilons (design section 9). Amounts are whole nano-epsilons, rounded up when
charged and down when they are limits, so that sums are exact and never flatter.
"""

import sqlite3
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import Final, NamedTuple

from dither_client.results import RecordStatus
from dither_client.state import add_to_totals, read_total
from dither_protocol.registry import Privacy

NANO: Final = 10**9
LIFETIME: Final = "lifetime"


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


@dataclass(frozen=True)
class MetricSpending:
    """What one metric has cost this device.

    Attributes:
        metric: its name.
        epsilon: sum over all its reports.
        reports: how many.
        windows: epsilon by window label, the latest ones last.
    """

    metric: str
    epsilon: float
    reports: int
    windows: dict[str, float]


@dataclass(frozen=True)
class PrivacyLedger:
    """What this device has spent, and what is left. Plain sums of epsilons.

    Attributes:
        spent_today: on the current UTC day.
        spent_lifetime: since the state directory was created.
        left_today: until the daily limit; None where there is none.
        left_lifetime: until the limit for life; None where there is none.
        metrics: by name.
    """

    spent_today: float
    spent_lifetime: float
    left_today: float | None
    left_lifetime: float | None
    metrics: dict[str, MetricSpending]


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
    return int((Decimal(repr(min(known))) * NANO).to_integral_value(rounding=ROUND_FLOOR))


def limits_of(privacy: Privacy | None, per_day: float | None, lifetime: float | None) -> Limits:
    """The stricter of the registry's limits (None without a registry) and the app's own."""
    return Limits(
        per_day=strictest(per_day, privacy.max_epsilon_per_day if privacy else None),
        lifetime=strictest(lifetime, privacy.max_epsilon_lifetime if privacy else None),
    )


def charge(connection: sqlite3.Connection, item: Charge, today: date, limits: Limits) -> RecordStatus:
    """Book one report inside the caller's transaction.

    Returns:
        QUEUED when booked. On ALREADY_REPORTED or BUDGET_EXHAUSTED the caller must roll back: a part of the
        booking may stand.
    """
    added = connection.execute("INSERT OR IGNORE INTO charges VALUES (?, ?, ?, ?, ?)", item)
    if not added.rowcount:
        return RecordStatus.ALREADY_REPORTED
    day = today.isoformat()
    add_to_totals(connection, (day, item.nano_epsilon), (LIFETIME, item.nano_epsilon))
    for scope, limit in ((day, limits.per_day), (LIFETIME, limits.lifetime)):
        if limit is not None and read_total(connection, scope) > limit:
            return RecordStatus.BUDGET_EXHAUSTED
    return RecordStatus.QUEUED


def spent(connection: sqlite3.Connection, scope: str = LIFETIME) -> int:
    """What was spent so far: for life, or on the UTC day ``scope`` (ISO text). In nano-epsilon."""
    return read_total(connection, scope)


def summary(connection: sqlite3.Connection, today: date, limits: Limits) -> PrivacyLedger:
    """The whole ledger, for people."""
    windows: dict[str, dict[str, int]] = {}
    reports: dict[str, int] = {}
    rows = connection.execute(
        "SELECT metric, window, sum(nano_epsilon), count(*) FROM charges"
        " GROUP BY metric, window ORDER BY metric, window"
    )
    for metric, window, nano, count in rows:
        windows.setdefault(metric, {})[window] = nano
        reports[metric] = reports.get(metric, 0) + count
    day, life = spent(connection, today.isoformat()), spent(connection)
    return PrivacyLedger(
        spent_today=day / NANO,
        spent_lifetime=life / NANO,
        left_today=None if limits.per_day is None else max(0, limits.per_day - day) / NANO,
        left_lifetime=None if limits.lifetime is None else max(0, limits.lifetime - life) / NANO,
        metrics={
            metric: MetricSpending(
                metric, sum(by.values()) / NANO, reports[metric], {w: nano / NANO for w, nano in by.items()}
            )
            for metric, by in windows.items()
        },
    )
