"""What a fixed plan of reports adds up to, by five bounds, each with its name and its assumption.

They are for display. Whether one more report may be sent is decided by the plain sum or by `RenyiFilter`: the minimum
of several bounds is no valid stopping rule where later questions depend on earlier answers.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from dither_protocol.accounting.loss import PrivacyLoss, check_count, check_delta
from dither_protocol.accounting.loss_sums import Plan, epsilon_of, sum_of
from dither_protocol.accounting.renyi import ORDERS, epsilon_from_renyi, renyi_divergence
from dither_protocol.errors import AccountingError

_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_LOG_EXCESSES: Final = [math.log(order - 1) for order in ORDERS] + [
    math.log(10.0**k) for k in (3.5, 4, 4.5, 5, 6)
]
"""Where the best order is sought: beyond ORDERS too, since a fixed plan need not share delta among them."""

_FIXED: Final = "The number of reports and their epsilons are fixed before the first answer is seen"


@dataclass(frozen=True)
class Bound:
    """Reports together are (epsilon, delta)-locally differentially private, under an assumption.

    Attributes:
        name: basic, advanced, optimal, rdp, exact or shuffled.
        epsilon: nats.
        delta: probability with which it may fail.
        assumption: what must be true for it, for people.
    """

    name: str
    epsilon: float
    delta: float
    assumption: str


def basic(plan: Iterable[tuple[PrivacyLoss, int]]) -> Bound:
    """The plain sum of epsilons, with delta = 0."""
    return Bound("basic", _plain(_merged(plan)), 0.0, "None: later questions may depend on earlier answers.")


def advanced(plan: Iterable[tuple[PrivacyLoss, int]], delta: float) -> Bound:
    """Advanced composition with all of delta as slack; often above the plain sum for epsilons from 0.5 on.

    sqrt(2 ln(1/delta) sum eps^2) + sum eps (e^eps - 1): Dwork, Rothblum, Vadhan, FOCS 2010. Its
    proof, by Azuma's inequality, takes different epsilons as they are.
    """
    check_delta(delta)
    merged = _merged(plan)
    squares = math.fsum(count * loss.epsilon**2 for loss, count in merged)
    drift = math.fsum(count * loss.epsilon * math.expm1(loss.epsilon) for loss, count in merged)
    epsilon = math.sqrt(-2 * math.log(delta) * squares) + drift
    return Bound("advanced", epsilon, delta, f"{_FIXED}; any mechanisms of these epsilons.")


def optimal(plan: Iterable[tuple[PrivacyLoss, int]], delta: float) -> Bound:
    """The least epsilon that holds for every choice of mechanisms with these epsilons.

    Exact for equal epsilons: Kairouz, Oh, Viswanath, ICML 2015, theorem 3.3. For different ones the exact value is
    #P-hard (Murtagh and Vadhan, TCC 2016), so beyond a few reports it is computed on a grid that errs upward, see
    `sum_of`.
    """
    check_delta(delta)
    worst = _merged((PrivacyLoss.pure(loss.epsilon), count) for loss, count in plan)
    assumption = f"{_FIXED}; any mechanisms of these epsilons"
    assumption += "." if len(worst) == 1 else " (an upper bound of the optimum, since epsilons differ)."
    return Bound("optimal", _composed(worst, delta), delta, assumption)


def rdp(plan: Iterable[tuple[PrivacyLoss, int]], delta: float) -> Bound:
    """Renyi composition at the order that suits this plan and delta best; never above the plain sum, its limit."""
    check_delta(delta)
    merged = _merged(plan)

    def at(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        rho = math.fsum(count * renyi_divergence(loss, order) for loss, count in merged)
        return epsilon_from_renyi(rho, order, delta)

    epsilon = min(_plain(merged), _least(at, _LOG_EXCESSES))
    assumption = f"{_FIXED}; fresh noise in every report. As a stopping rule use RenyiFilter."
    return Bound("rdp", epsilon, delta, assumption)


def exact(plan: Iterable[tuple[PrivacyLoss, int]], delta: float) -> Bound:
    """What exactly these mechanisms add up to: the sum of three-point privacy losses.

    Exact for one kind of report; for several on a grid that errs upward, see `sum_of`.
    """
    check_delta(delta)
    merged = _merged(plan)
    return Bound(
        "exact",
        _composed(merged, delta),
        delta,
        f"{_FIXED}; exactly these mechanisms, fresh noise in every report.",
    )


def bounds(plan: Iterable[tuple[PrivacyLoss, int]], delta: float) -> tuple[Bound, ...]:
    """Every bound for this plan, in the order of the file."""
    merged = _merged(plan)
    at_delta = (advanced, optimal, rdp, exact)
    return (basic(merged), *(bound(merged, delta) for bound in at_delta))


def best(plan: Iterable[tuple[PrivacyLoss, int]], delta: float) -> Bound:
    """The bound with the least epsilon; never above basic. For display of a fixed plan."""
    return min(bounds(plan, delta), key=lambda bound: bound.epsilon)


def _composed(plan: Plan, delta: float) -> float:
    return min(_plain(plan), epsilon_of(sum_of(plan, delta), delta))


def _plain(plan: Plan) -> float:
    return math.fsum(count * loss.epsilon for loss, count in plan)


def _merged(plan: Iterable[tuple[PrivacyLoss, int]]) -> list[tuple[PrivacyLoss, int]]:
    """The plan with each loss once, in order.

    Raises:
        AccountingError: there is no report, or a count is not a whole number from 1.
    """
    counts: dict[PrivacyLoss, int] = {}
    for loss, count in plan:
        counts[loss] = counts.get(loss, 0) + check_count(count)
    if not counts:
        raise AccountingError("a plan needs at least one report")
    return sorted(counts.items())


def _least(at: Callable[[float], float], grid: list[float]) -> float:
    """The least value of a function on the grid and, by golden section, between the neighbours of its best point.

    Every point gives a valid bound, so a local minimum is merely less tight.
    """
    values = [at(x) for x in grid]
    i = values.index(min(values))
    low, high = grid[max(0, i - 1)], grid[min(len(grid) - 1, i + 1)]
    found = values[i]
    inner = [high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)]
    inner_values = [at(x) for x in inner]
    for _ in range(30):
        found = min(found, *inner_values)
        if inner_values[0] < inner_values[1]:
            high = inner[1]
            inner, inner_values = [high - _GOLDEN * (high - low), inner[0]], [0.0, inner_values[0]]
            inner_values[0] = at(inner[0])
        else:
            low = inner[0]
            inner, inner_values = [inner[1], low + _GOLDEN * (high - low)], [inner_values[1], 0.0]
            inner_values[1] = at(inner[1])
    return found
