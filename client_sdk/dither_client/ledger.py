"""The ledger: the device's durable record of the privacy it has spent, and the rule that refuses more.

The rule is the plain sum of epsilons (design section 9). A limit for life that has a delta allows what either the plain
sum or a Renyi filter allows (`dither_client.losses`); both are valid however later answers depend on earlier ones, so
their union is. Amounts are whole nano-epsilons, rounded up when charged and down when they are limits, so that sums
are exact and never flatter.

Days do not run backwards: what is recorded after the clock was set back is booked on the latest day that the ledger has
seen, so that no day's limit is refilled.
"""

import sqlite3
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from dither_client.results import RecordStatus
from dither_client.state import add_to_totals, read_total
from dither_protocol.registry import Privacy, Registry
from dither_protocol.registry.metric import FRESH

if TYPE_CHECKING:
    from dither_protocol.registry.guarantees import Guarantee

NANO: Final = 10**9
LIFETIME: Final = "lifetime"

MAX_SET_BACK: Final = timedelta(days=40)
"""How far back a clock may be set without a day's limit being refilled. A day that is further ahead comes from a clock
that was wrong then; if it counted, the device would answer nothing more until it is reached. The limit for life
knows no days."""

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


@dataclass(frozen=True)
class MetricSpending:
    """What one metric has cost this device.

    Attributes:
        metric: its name.
        epsilon: sum over all its reports.
        reports: how many.
        windows: epsilon by window label, the latest ones last. A memoised metric is charged in full, for all its
            distinct values, at its first report; the later ones cost nothing more.
        distinct_values: of a memoised metric, how many answers have a permanent one; else None.
        guarantees: of a memoised metric, what its epsilons mean and under which assumption; else empty.
    """

    metric: str
    epsilon: float
    reports: int
    windows: dict[str, float]
    distinct_values: int | None = None
    guarantees: "tuple[Guarantee, ...]" = ()


@dataclass(frozen=True)
class FilterSpending:
    """A limit for life that has a delta, and what of it is spent.

    Attributes:
        limit: epsilon.
        delta: probability with which it may fail.
        spent: epsilon of all reports so far at this delta: the lesser of the plain sum and the Renyi filter's.
    """

    limit: float
    delta: float
    spent: float

    @property
    def left(self) -> float:
        """What may be spent in any case. Several reports may add up to more: their losses partly cancel."""
        return max(0.0, self.limit - self.spent)


@dataclass(frozen=True)
class PrivacyLedger:
    """What this device has spent, and what is left. Plain sums of epsilons, where nothing else is said.

    Attributes:
        spent_today: on the current UTC day, or the latest that the ledger has seen where the clock was set back.
        spent_lifetime: since the state directory was created.
        left_today: until the daily limit; None where there is none.
        left_lifetime: what may be spent in any case until the first limit for life; None where there is none.
        metrics: by name.
        filters: the limits for life that have a delta.
    """

    spent_today: float
    spent_lifetime: float
    left_today: float | None
    left_lifetime: float | None
    metrics: dict[str, MetricSpending]
    filters: tuple[FilterSpending, ...] = ()


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


def charge(
    connection: sqlite3.Connection, item: Charge, today: date, limits: Limits, kind: str | None = None
) -> RecordStatus:
    """Book one report inside the caller's transaction.

    Args:
        connection: of that transaction.
        item: the report.
        today: the UTC date.
        limits: what may be spent.
        kind: under which name `losses` counts the report; without one it counts as the worst of its epsilon.

    Returns:
        QUEUED when booked. On ALREADY_REPORTED or BUDGET_EXHAUSTED the caller must roll back: a part of the
        booking may stand.
    """
    added = connection.execute("INSERT OR IGNORE INTO charges VALUES (?, ?, ?, ?, ?)", item)
    if not added.rowcount:
        return RecordStatus.ALREADY_REPORTED
    before = standing(connection, today)
    counted = () if kind is None else ((kind, 1),)
    add_to_totals(connection, (before.day, item.nano_epsilon), (LIFETIME, item.nano_epsilon), *counted)
    if limits.per_day is not None and before.spent_on_it + item.nano_epsilon > limits.per_day:
        return RecordStatus.BUDGET_EXHAUSTED
    if not _life_allows(connection, limits, before.for_life + item.nano_epsilon):
        return RecordStatus.BUDGET_EXHAUSTED
    return RecordStatus.QUEUED


class Standing(NamedTuple):
    """What was spent so far, in nano-epsilon.

    Attributes:
        day: on which charges are booked now: the latest that the ledger has seen, where the clock was set back.
        spent_on_it: so far.
        for_life: so far.
    """

    day: str
    spent_on_it: int
    for_life: int


def standing(connection: sqlite3.Connection, today: date) -> Standing:
    """What was spent so far, in one statement where the day has begun."""
    day, latest = _days(today)
    row = connection.execute(
        "SELECT scope, amount, (SELECT amount FROM totals WHERE scope = ?) FROM totals"
        " WHERE scope >= ? AND scope <= ? ORDER BY scope DESC LIMIT 1",
        (LIFETIME, day, latest),
    ).fetchone()
    return Standing(*row) if row else Standing(day, 0, spent(connection))


@lru_cache(maxsize=4)
def _days(today: date) -> tuple[str, str]:
    """A day, and the latest that counts as its own, as ISO text."""
    return today.isoformat(), (today + MAX_SET_BACK).isoformat()


def _life_allows(connection: sqlite3.Connection, limits: Limits, total: int) -> bool:
    """Whether what is booked stays within every limit for life: by the plain sum, or, with a delta, by a filter."""
    if limits.lifetime is not None and total > limits.lifetime:
        return False
    beyond = [each for each in limits.filters if total > each[0]]
    if not beyond:
        return True
    from dither_client import losses  # noqa: PLC0415  most devices never come so far

    return losses.allowed(connection, total, beyond)


def spent(connection: sqlite3.Connection, scope: str = LIFETIME) -> int:
    """What was spent so far: for life, or on the UTC day ``scope`` (ISO text). In nano-epsilon."""
    return read_total(connection, scope)


def summary(
    connection: sqlite3.Connection, today: date, limits: Limits, registry: Registry | None = None
) -> PrivacyLedger:
    """The whole ledger, for people; the registry says what is memoised, and what that guarantees."""
    windows: dict[str, dict[str, int]] = {}
    reports: dict[str, int] = {}
    rows = connection.execute(
        "SELECT metric, window, sum(nano_epsilon), count(*) FROM charges"
        " GROUP BY metric, window ORDER BY metric, window"
    )
    for metric, window, nano, count in rows:
        windows.setdefault(metric, {})[window] = nano
        reports[metric] = reports.get(metric, 0) + count
    _, day, life = standing(connection, today)
    filters = _filters(connection, life, limits)
    left = [each.left for each in filters]
    if limits.lifetime is not None:
        left.append(max(0, limits.lifetime - life) / NANO)
    memoized = {} if registry is None else _memoized(connection, registry)
    return PrivacyLedger(
        spent_today=day / NANO,
        spent_lifetime=life / NANO,
        left_today=None if limits.per_day is None else max(0, limits.per_day - day) / NANO,
        left_lifetime=min(left, default=None),
        metrics={
            metric: MetricSpending(
                metric,
                sum(by.values()) / NANO,
                reports[metric],
                {w: nano / NANO for w, nano in by.items()},
                *memoized.get(metric, ()),
            )
            for metric, by in windows.items()
        },
        filters=filters,
    )


def _filters(connection: sqlite3.Connection, life: int, limits: Limits) -> tuple[FilterSpending, ...]:
    if not limits.filters:
        return ()
    from dither_client import losses  # noqa: PLC0415  nobody looks at the ledger at the start

    return tuple(
        FilterSpending(nano / NANO, delta, losses.spent_epsilon(connection, life, (nano, delta)))
        for nano, delta in limits.filters
    )


def _memoized(
    connection: sqlite3.Connection, registry: Registry
) -> "dict[str, tuple[int, tuple[Guarantee, ...]]]":
    """Distinct values and guarantees of each memoised metric."""
    from dither_client import memo  # noqa: PLC0415  nobody looks at the ledger at the start
    from dither_protocol.registry.guarantees import guarantees  # noqa: PLC0415

    values = memo.distinct_values(connection)
    return {
        metric.name: (values.get((metric.name, metric.version), 0), guarantees(metric))
        for metric in registry
        if metric.collection != FRESH
    }
