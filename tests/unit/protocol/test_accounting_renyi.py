import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol import AccountingError, PrivacyLoss, RenyiFilter, mechanism
from dither_protocol.accounting.renyi import (
    ORDERS,
    epsilon_from_renyi,
    renyi_budget,
    renyi_costs,
    renyi_divergence,
    renyi_total,
)
from support.loss_laws import all_pairs, three_points

SMALL = [
    ("rr", 2),
    ("grr", 4),
    ("sue", 3),
    ("oue", 3),
    ("subset", 5),
    ("blh", 3),
    ("hadamard", 3),
    ("projective", 7),
]
losses = st.floats(0.001, 20).flatmap(
    lambda epsilon: st.floats(1e-6, 1).map(
        lambda share: PrivacyLoss(epsilon, share * PrivacyLoss.pure(epsilon).probability)
    )
)
orders = st.floats(1.0001, 10_000)


@pytest.mark.parametrize(("name", "d"), SMALL)
@pytest.mark.parametrize("order", [1.01, 1.5, 2.0, 7.0, 33.0])
def test_the_divergence_is_that_of_real_reports(name: str, d: int, order: float) -> None:
    """Over all reports, by the definition: ln(sum P^a Q^(1-a)) / (a-1) is the same for every pair of answers."""
    for epsilon in (0.1, 1.0, 3.0):
        made = mechanism(name, epsilon, d)
        expected = renyi_divergence(PrivacyLoss.of(made), order)
        for pairs in all_pairs(made):
            moment = math.fsum(p**order * q ** (1 - order) for p, q in pairs)
            assert math.log(moment) / (order - 1) == pytest.approx(expected, rel=1e-6)


@given(losses, orders, orders)
def test_the_divergence_grows_with_the_order_up_to_epsilon(loss: PrivacyLoss, a: float, b: float) -> None:
    """Nothing overflows, nothing is negative, and a higher order never sees less."""
    low, high = sorted((a, b))
    assert 0 < renyi_divergence(loss, low) <= renyi_divergence(loss, high) * (1 + 1e-12)
    assert renyi_divergence(loss, high) <= loss.epsilon


@given(losses, orders)
def test_a_pure_loss_bounds_all_others_of_its_epsilon(loss: PrivacyLoss, order: float) -> None:
    """Binary randomised response is the worst of its epsilon at every order."""
    assert renyi_divergence(loss, order) <= renyi_divergence(PrivacyLoss.pure(loss.epsilon), order)


def test_small_epsilons_keep_their_digits() -> None:
    """Near 0 the divergence is a r eps^2, which a sum of exponentials less 1 would lose."""
    loss = PrivacyLoss.pure(1e-9)
    assert renyi_divergence(loss, 2.0) == pytest.approx(2 * 0.5 * 1e-18, rel=1e-6)


def test_limits_of_the_order() -> None:
    """At order 1 it is the Kullback-Leibler divergence, at infinity epsilon."""
    loss = PrivacyLoss.of(mechanism("grr", 1.0, 16))
    relative_entropy = math.fsum(p * math.log(p / q) for p, q in three_points(loss))
    assert renyi_divergence(loss, 1 + 1e-9) == pytest.approx(relative_entropy, rel=1e-6)
    assert renyi_divergence(loss, 1e6) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("order", [1.0, 0.5, -2.0, math.inf, math.nan])
def test_orders_from_one_down_are_refused(order: float) -> None:
    """There is no conversion at order 1 and below, nor at infinity, where the plain sum stands."""
    with pytest.raises(AccountingError, match="order must be"):
        renyi_divergence(PrivacyLoss.pure(1.0), order)
    with pytest.raises(AccountingError, match="order must be"):
        renyi_budget(1.0, 1e-6, order)


@given(losses, st.integers(1, 5_000), orders, st.floats(1e-12, 0.5))
def test_the_conversion_holds_where_the_truth_is_known(
    loss: PrivacyLoss, count: int, order: float, delta: float
) -> None:
    """For one report, the divergence at the converted epsilon is at most delta."""
    epsilon = epsilon_from_renyi(renyi_divergence(loss, order), order, delta)
    assert loss.probability * (math.exp(loss.epsilon) - math.exp(min(epsilon, loss.epsilon))) <= delta * (
        1 + 1e-9
    )
    assert epsilon <= epsilon_from_renyi(count * renyi_divergence(loss, order), order, delta)


def test_the_conversion_is_that_of_the_paper() -> None:
    """Rho + ln((a-1)/a) - (ln delta + ln a)/(a-1), at numbers worked out by hand; negative means 0."""
    assert epsilon_from_renyi(3.0, 2.0, math.exp(-10)) == pytest.approx(3 - math.log(2) + 10 - math.log(2))
    assert epsilon_from_renyi(0.001, 50.0, 0.9) == 0.0


@given(st.floats(0.01, 1_000), st.floats(1e-12, 0.5), orders)
def test_the_budget_is_the_conversion_read_backwards(epsilon: float, delta: float, order: float) -> None:
    """Spending the whole budget of an order gives the epsilon back; some orders have none."""
    budget = renyi_budget(epsilon, delta, order)
    if budget > 0:
        assert epsilon_from_renyi(budget, order, delta) == pytest.approx(epsilon, rel=1e-9, abs=1e-6)
    else:
        assert epsilon_from_renyi(0.0, order, delta) >= epsilon * (1 - 1e-9) - 1e-6


def test_the_grid_is_pinned() -> None:
    """The orders are fixed beforehand and rise; a ledger that stores sums relies on them."""
    assert len(ORDERS) == 21
    assert (ORDERS[0], ORDERS[8], ORDERS[-1]) == (1.01, 2.0, 1001.0)
    for low, high in pairwise(order - 1 for order in ORDERS):
        assert 1.4 < high / low < 2


@pytest.mark.parametrize(
    ("epsilon", "count"),
    [(0.001, 1_000), (0.01, 10_000), (0.1, 1_000), (1.0, 365), (1.0, 100_000), (2.0, 1_000)],
)
def test_the_grid_is_fine_enough(epsilon: float, count: int) -> None:
    """Over the range it is made for, its best order costs at most 5 % of epsilon beside the best of all orders."""
    for loss in (PrivacyLoss.pure(epsilon), PrivacyLoss.of(mechanism("grr", epsilon, 16))):

        def at(order: float, loss: PrivacyLoss = loss) -> float:
            return epsilon_from_renyi(count * renyi_divergence(loss, order), order, 1e-6)

        ideal = min(at(1 + math.exp(i / 50)) for i in range(-400, 500))
        assert ideal <= min(map(at, ORDERS)) <= 1.05 * ideal


def test_costs_add_up() -> None:
    """The total of several kinds of reports is the sum at each order, and nothing is nothing."""
    one, other = PrivacyLoss.pure(1.0), PrivacyLoss.of(mechanism("oue", 2.0, 9))
    expected = [3 * a + 5 * b for a, b in zip(renyi_costs(one), renyi_costs(other), strict=True)]
    assert renyi_total([(one, 3), (other, 5)]) == pytest.approx(expected)
    assert renyi_total([]) == (0.0,) * len(ORDERS)


def _accepted(rule: RenyiFilter, loss: PrivacyLoss) -> int:
    count = 0
    while rule.allows(renyi_total([(loss, count + 1)])):
        count += 1
    return count


def test_the_filter_allows_more_than_the_plain_sum_and_less_than_the_best_order() -> None:
    """A hundred thin reports fit where the plain sum has room for fifty; sharing delta among orders costs a little."""
    loss = PrivacyLoss.of(mechanism("grr", 0.1, 16))
    ideal = next(
        k for k in range(1, 2_000)
        if min(epsilon_from_renyi((k + 1) * renyi_divergence(loss, a), a, 1e-6) for a in ORDERS) > 5
    )  # fmt: skip
    assert 0.75 * ideal < _accepted(RenyiFilter(5.0, 1e-6), loss) < ideal


def test_the_filter_spends_exactly_its_budget() -> None:
    """At the limit the converted epsilon of the order in charge is the total, with its share of delta."""
    rule = RenyiFilter(5.0, 1e-6)
    share = 1e-6 / len(ORDERS)
    for order, budget in zip(ORDERS, rule.budgets, strict=True):
        if budget > 0:
            assert epsilon_from_renyi(budget, order, share) == pytest.approx(5.0, rel=1e-8)
            assert epsilon_from_renyi(budget, order, share) < 5.0
    assert min(rule.budgets) < 0 < max(rule.budgets)
    assert rule.epsilon(rule.budgets) == pytest.approx(5.0, rel=1e-6)
    assert rule.used((0.0,) * len(ORDERS)) == 0.0
    assert rule.used(rule.budgets) == pytest.approx(1.0)
    assert RenyiFilter(0.001, 1e-6).used((0.1,) * len(ORDERS)) == math.inf


def test_one_order_within_its_budget_is_enough_and_one_is_needed() -> None:
    """The rule is: at least one order; sums of the wrong length are no sums."""
    rule = RenyiFilter(5.0, 1e-6)
    best = rule.budgets.index(max(rule.budgets))
    spent = [math.inf] * len(ORDERS)
    assert not rule.allows(spent)
    spent[best] = rule.budgets[best]
    assert rule.allows(spent)
    spent[best] = math.nextafter(rule.budgets[best], math.inf)
    assert not rule.allows(spent)
    assert not rule.allows([math.nan] * len(ORDERS))
    with pytest.raises(ValueError, match="zip"):
        rule.allows(spent[1:])


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 0.1), (math.nan, 0.1), (1.0, 0.0), (1.0, 1.0), (1.0, math.nan)]
)
def test_impossible_filters_are_refused(epsilon: float, delta: float) -> None:
    """A filter needs a budget and a delta."""
    with pytest.raises(AccountingError, match="must be"):
        RenyiFilter(epsilon, delta)


Counts = tuple[int, ...]


def _worst_delta(kinds: list[PrivacyLoss], total: float, allowed: Callable[[Counts], bool]) -> float:
    """The delta at ``total`` of the cleverest analyst: after each answer the next kind of report, or the end.

    Every history is played, by dynamic programming over (how many of each kind, net number of +eps of each).
    """

    @cache
    def value(counts: Counts, nets: Counts) -> float:
        lost = sum(net * kind.epsilon for net, kind in zip(nets, kinds, strict=True))
        best = max(0.0, -math.expm1(total - lost)) if lost > total else 0.0
        for i, kind in enumerate(kinds):
            more = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
            if allowed(more):
                outcomes = zip((1, -1, 0), (p for p, _ in three_points(kind)), strict=True)
                after = (
                    p * value(more, (*nets[:i], nets[i] + s, *nets[i + 1 :]))
                    for s, p in outcomes
                    if p > 1e-15
                )
                best = max(best, math.fsum(after))
        return best

    return value((0,) * len(kinds), (0,) * len(kinds))


@pytest.mark.parametrize(
    ("total", "delta", "kinds"),
    [
        (1.0, 0.05, [PrivacyLoss.pure(0.15), PrivacyLoss(0.5, 0.01)]),
        (2.0, 0.05, [PrivacyLoss.pure(0.3), PrivacyLoss(1.0, 0.01)]),
        (2.0, 0.05, [PrivacyLoss.pure(0.25), PrivacyLoss(2.5, 0.003)]),
    ],
)
def test_no_adaptive_analyst_gets_past_the_filter(
    total: float, delta: float, kinds: list[PrivacyLoss]
) -> None:
    """Choosing each report by the answers before it gives at most delta; four times the budgets would not hold."""
    rule = RenyiFilter(total, delta)
    costs = [renyi_costs(kind) for kind in kinds]

    def within(counts: Counts, factor: float) -> bool:
        plain = sum(count * kind.epsilon for count, kind in zip(counts, kinds, strict=True))
        spent = [
            math.fsum(n * cost[i] for n, cost in zip(counts, costs, strict=True)) for i in range(len(ORDERS))
        ]
        return plain <= total or rule.allows([at_order / factor for at_order in spent])

    assert 0 < _worst_delta(kinds, total, cache(lambda counts: within(counts, 1.0))) <= delta
    assert _worst_delta(kinds, total, cache(lambda counts: within(counts, 4.0))) > delta
