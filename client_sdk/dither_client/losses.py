"""Privacy losses of what was recorded, by kind, and how often each: what a Renyi filter for life goes by.

A kind is an epsilon, in nano-epsilon, and the probability r of its three-point loss
(`dither_protocol.accounting.loss`); together they give the divergence at every order. The counts are kept in place
of sums at the orders of one grid: another delta, or another grid of a later version, finds everything that was ever
spent, and nothing has to be converted.

The plain sum of the kinds must be that of the ledger. Where it is not, because there was no delta yet, or an older
SDK wrote the ledger, what is missing is counted from the rows of the ledger, as the worst that its epsilon can be.
So nothing is forgotten: a report without a kind is a report of the worst kind.
"""

import math
import sqlite3
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from dither_client.balance import add_to_totals
from dither_protocol.accounting.loss import MAX_LOSS, PrivacyLoss, worst_probability
from dither_protocol.accounting.renyi import ORDERS, RenyiFilter, renyi_costs
from dither_protocol.mechanisms import Mechanism

NANO: Final = 10**9  # as `ledger.NANO`, which imports this module late
_PREFIX: Final = "loss "
_BEHIND: Final = "loss!"  # the next text after everything that begins with the prefix


class Kind(NamedTuple):
    """One kind of loss.

    Attributes:
        nano_epsilon: its epsilon, in nano-epsilon; above 0.
        probability: its r; cut to the largest that there is.
    """

    nano_epsilon: int
    probability: float


@lru_cache(maxsize=1024)
def kind_scope(nano_epsilon: int, mechanisms: tuple[Mechanism, ...]) -> str:
    """Under which name the totals count a report.

    Args:
        nano_epsilon: what it is charged, above 0; at least the epsilon of each mechanism.
        mechanisms: of which one made it, by fresh answers. A larger epsilon, and a larger r, are nowhere better, so
            the largest of each stand for all. Empty: nothing is known, and the worst is assumed.
    """
    epsilon = nano_epsilon / NANO
    probability = worst_probability(epsilon)
    if mechanisms and epsilon <= MAX_LOSS:
        probability = min(probability, max(PrivacyLoss.of(each).probability for each in mechanisms))
    return f"{_PREFIX}{nano_epsilon} {probability!r}"


def allowed(connection: sqlite3.Connection, total: int, limits: Iterable[tuple[int, float]]) -> bool:
    """Whether all that was charged stays within every limit by its Renyi filter.

    Args:
        connection: inside the transaction that has booked the report in question.
        total: plain sum of all charges, nano-epsilon.
        limits: (nano-epsilon, delta) of each.
    """
    spent = divergences(connection, total)
    return all(_filter(nano, delta).allows(spent) for nano, delta in limits)


def spent_epsilon(connection: sqlite3.Connection, total: int, limit: tuple[int, float]) -> float:
    """What was spent so far as the epsilon of (epsilon, delta): the lesser of the plain sum and the filter's."""
    return min(total / NANO, _filter(*limit).epsilon(divergences(connection, total)))


def divergences(connection: sqlite3.Connection, total: int) -> tuple[float, ...]:
    """Renyi divergence at each of ORDERS of all that was ever charged; counts what had no kind yet.

    Args:
        connection: inside a transaction.
        total: plain sum of all charges, nano-epsilon.
    """
    counts = _counts(connection)
    if sum(kind.nano_epsilon * count for kind, count in counts.items()) != total:
        _count_the_rest(connection, counts)
        counts = _counts(connection)
    parts = [[count * cost for cost in _costs(kind)] for kind, count in counts.items()]
    return (
        tuple(math.fsum(at_order) for at_order in zip(*parts, strict=True)) if parts else (0.0,) * len(ORDERS)
    )


def _counts(connection: sqlite3.Connection) -> dict[Kind, int]:
    rows = connection.execute(
        "SELECT scope, amount FROM totals WHERE scope >= ? AND scope < ?", (_PREFIX, _BEHIND)
    )
    return {_kind_of(scope): int(count) for scope, count in rows}


def _count_the_rest(connection: sqlite3.Connection, counted: Mapping[Kind, int]) -> None:
    rows = connection.execute(
        "SELECT nano_epsilon, count(*) FROM charges WHERE nano_epsilon > 0 GROUP BY nano_epsilon"
    ).fetchall()
    for nano, count in rows:
        missing = count - sum(times for kind, times in counted.items() if kind.nano_epsilon == nano)
        if missing > 0:
            add_to_totals(connection, (kind_scope(nano, ()), missing))


def _kind_of(scope: str) -> Kind:
    nano, probability = scope.removeprefix(_PREFIX).split(" ")
    return Kind(int(nano), float(probability))


@lru_cache(maxsize=1024)
def _costs(kind: Kind) -> tuple[float, ...]:
    epsilon = kind.nano_epsilon / NANO
    if epsilon > MAX_LOSS:  # all distinct values of a memoised metric; a divergence never exceeds the epsilon
        return (epsilon,) * len(ORDERS)
    return renyi_costs(PrivacyLoss(epsilon, min(kind.probability, worst_probability(epsilon))))


@lru_cache(maxsize=8)
def _filter(nano_epsilon: int, delta: float) -> RenyiFilter:
    return RenyiFilter(nano_epsilon / NANO, delta)
