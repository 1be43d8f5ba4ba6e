"""What a device has spent, for the person at it: read when somebody asks, and not loaded before."""

import sqlite3
from dataclasses import dataclass
from datetime import date

from dither_client import losses, memo
from dither_client.balance import read_balance
from dither_client.ledger import NANO, Limits
from dither_protocol.registry import Registry
from dither_protocol.registry.guarantees import Guarantee, guarantees
from dither_protocol.registry.metric import FRESH


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
    guarantees: tuple[Guarantee, ...] = ()


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
    balance = read_balance(connection, today)
    day, life = balance.spent_on_it, balance.for_life
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
    return tuple(
        FilterSpending(nano / NANO, delta, losses.spent_epsilon(connection, life, (nano, delta)))
        for nano, delta in limits.filters
    )


def _memoized(
    connection: sqlite3.Connection, registry: Registry
) -> dict[str, tuple[int, tuple[Guarantee, ...]]]:
    """Distinct values and guarantees of each memoised metric."""
    values = memo.distinct_values(connection)
    return {
        metric.name: (values.get((metric.name, metric.version), 0), guarantees(metric))
        for metric in registry
        if metric.collection != FRESH
    }
