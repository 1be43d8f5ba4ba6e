"""Renyi differential privacy of fresh reports, and a filter that stays valid when later questions depend on answers.

Mironov, CSF 2017 (Renyi DP and its composition); Canonne, Kamath, Steinke, NeurIPS 2020, proposition 12
(arXiv:2004.00010v4; conversion to epsilon and delta). Standard library only.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dither_protocol.accounting.loss import PrivacyLoss, check_delta, check_epsilon
from dither_protocol.errors import AccountingError

ORDERS: Final = (
    1.01, 1.018, 1.032, 1.056, 1.1, 1.18, 1.32, 1.56, 2.0, 2.8, 4.2, 6.6, 11.0, 19.0, 33.0, 57.0, 101.0, 181.0, 321.0,
    561.0, 1001.0,
)  # fmt: skip
"""The orders of the filter: public and fixed beforehand, since a choice of order made later would be a choice by
what was seen. Four for each factor of ten in a - 1, which costs at most 5 % of epsilon beside the best order; they
reach from 100,000 reports of epsilon 1 down to a hundred of epsilon 0.001."""

ROUNDING: Final = 1e-9
"""Budgets are cut by this share: far more than a million additions of doubles can be off."""


def renyi_divergence(loss: PrivacyLoss, order: float) -> float:
    """Renyi divergence of one report at an order above 1, in nats; the same in both directions.

    ln[r e^(a eps) + r e^((1-a) eps) + 1 - r (e^eps + 1)] / (a - 1), Mironov 2017, proposition 5, for three points.
    The sum less 1 is r (1 - e^(-(a-1) eps)) (e^(a eps) - 1), a product that neither cancels nor, as a
    logarithm, overflows.

    Raises:
        AccountingError: the order is not a finite number above 1.
    """
    _check_order(order)
    excess = (
        math.log(loss.probability)
        + math.log(-math.expm1(-(order - 1) * loss.epsilon))
        + order * loss.epsilon
        + math.log(-math.expm1(-order * loss.epsilon))
    )
    log_moment = excess + math.log1p(math.exp(-excess)) if excess > 0 else math.log1p(math.exp(excess))
    return min(log_moment / (order - 1), loss.epsilon)


def epsilon_from_renyi(rho: float, order: float, delta: float) -> float:
    """The epsilon that (order, rho)-Renyi DP implies together with this delta; at least 0.

    rho + ln((a-1)/a) - (ln delta + ln a)/(a-1): Canonne, Kamath, Steinke 2020, proposition 12.
    """
    return max(0.0, rho + _conversion(order, check_delta(delta)))


def renyi_budget(epsilon: float, delta: float, order: float) -> float:
    """The Renyi divergence at this order up to which (epsilon, delta) holds: the conversion read backwards.

    At or below 0 the order allows nothing.
    """
    return check_epsilon(epsilon) - _conversion(order, check_delta(delta))


def renyi_costs(loss: PrivacyLoss) -> tuple[float, ...]:
    """Divergence of one report at each of ORDERS."""
    return tuple(renyi_divergence(loss, order) for order in ORDERS)


def renyi_total(losses: Iterable[tuple[PrivacyLoss, int]]) -> tuple[float, ...]:
    """Divergence at each of ORDERS of so many reports of each loss: zeros of none."""
    parts = [[count * cost for cost in renyi_costs(loss)] for loss, count in losses]
    return (
        tuple(math.fsum(at_order) for at_order in zip(*parts, strict=True)) if parts else (0.0,) * len(ORDERS)
    )


@dataclass(frozen=True)
class RenyiFilter:
    """A stopping rule for (total_epsilon, delta) that is valid however later reports depend on earlier ones.

    Ask `allows` with the sums at ORDERS *including* the report to come; charge and send only if it says yes. One
    order whose sum stays within its budget is enough.

    Why it holds: at one order a fixed beforehand, exp((a-1)(loss - sum of costs)) is a supermartingale, so the
    divergence of all that was sent is at most the budget (Feldman and Zrnic, NeurIPS 2021; Lecuyer,
    arXiv:2103.01379). Which order is still within its budget at the end may depend on what was answered, so the orders
    share delta evenly and their failures add up (union bound). Taking the best order of each history with the
    whole of delta has no such proof.

    The plain sum of epsilons is a filter with delta = 0, so "allowed by the plain sum or by this filter" is valid
    too. The minimum of other bounds is not.

    Attributes:
        total_epsilon: nats, above 0.
        delta: between 0 and 1.

    Raises:
        AccountingError: either is out of its range.
    """

    total_epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_epsilon(self.total_epsilon, "total_epsilon")
        check_delta(self.delta)

    @cached_property
    def budgets(self) -> tuple[float, ...]:
        """The most that the sum may reach at each of ORDERS; at or below 0 the order allows nothing."""
        exact = (self.total_epsilon - _conversion(order, self.delta / len(ORDERS)) for order in ORDERS)
        return tuple(budget - ROUNDING * abs(budget) for budget in exact)

    def allows(self, spent: Sequence[float]) -> bool:
        """Whether sums of `renyi_costs`, one for each of ORDERS, stay within the budget of at least one."""
        pairs = zip(spent, self.budgets, strict=True)
        return any(0 <= total <= budget for total, budget in pairs)

    def epsilon(self, spent: Sequence[float]) -> float:
        """What these sums are together at the kindest order with its share of delta, nats."""
        pairs = zip(spent, ORDERS, strict=True)
        return min(max(0.0, total + _conversion(order, self.delta / len(ORDERS))) for total, order in pairs)

    def used(self, spent: Sequence[float]) -> float:
        """The part of the budget that these sums use at the kindest order: 0 for nothing, 1 at the limit."""
        shares = [total / budget for total, budget in zip(spent, self.budgets, strict=True) if budget > 0]
        return min(shares, default=math.inf)


def _conversion(order: float, delta: float) -> float:
    _check_order(order)
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def _check_order(order: float) -> None:
    if not 1 < order < math.inf:
        raise AccountingError("order must be a finite number above 1")
