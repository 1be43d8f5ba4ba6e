import math
import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither_protocol import AccountingError, Bound, PrivacyLoss, mechanism
from dither_protocol.accounting import loss_sums
from dither_protocol.accounting.bounds import advanced, basic, best, bounds, exact, optimal, rdp
from dither_protocol.accounting.loss_sums import law_of, sum_of
from support.loss_laws import Pairs, all_pairs, composed, divergence, least_epsilon, three_points
from support.reference_values import reference_rows

ROWS = reference_rows("accounting")
Kinds = list[tuple[PrivacyLoss, int]]


def _label(row: dict[str, Any]) -> str:
    return f"{row['epsilon']}-{row['k']}"


def _oracle(name: str, epsilon: float, d: int = 16) -> PrivacyLoss:
    return PrivacyLoss.of(mechanism(name, epsilon, d))


def _exact_optimum(epsilons: Sequence[float], delta: float) -> float:
    """Over all sign patterns of binary randomised responses: what no bound for these epsilons can be below."""
    chances = [1 / (math.exp(-epsilon) + 1) for epsilon in epsilons]
    outcomes: Pairs = []
    for signs in product((True, False), repeat=len(epsilons)):
        p = math.prod(c if up else 1 - c for c, up in zip(chances, signs, strict=True))
        q = math.prod(1 - c if up else c for c, up in zip(chances, signs, strict=True))
        outcomes.append((p, q))
    return least_epsilon(outcomes, delta)


@pytest.mark.parametrize("row", ROWS, ids=_label)
def test_bounds_are_those_of_the_reference(row: dict[str, Any]) -> None:
    """The plain sum, advanced and optimal composition agree with values computed independently."""
    plan = [(PrivacyLoss.pure(row["epsilon"]), row["k"])]
    assert basic(plan).epsilon == pytest.approx(row["basic"], rel=1e-12)
    assert advanced(plan, row["delta"]).epsilon == pytest.approx(row["advanced"], rel=1e-12)
    assert optimal(plan, row["delta"]).epsilon == pytest.approx(row["optimal"], rel=1e-6)
    assert exact(plan, row["delta"]).epsilon == optimal(plan, row["delta"]).epsilon


@pytest.mark.parametrize("row", ROWS, ids=_label)
def test_renyi_composition_is_that_of_the_reference(row: dict[str, Any]) -> None:
    """Its epsilons may be lower by 0.2 %, since the order is sought more finely, and hardly higher."""
    losses = {"rdp_binary": PrivacyLoss.pure(row["epsilon"])}
    losses |= {"rdp_grr_d16": _oracle("grr", row["epsilon"]), "rdp_oue": _oracle("oue", row["epsilon"])}
    for column, loss in losses.items():
        found = rdp([(loss, row["k"])], row["delta"]).epsilon
        assert row[column] * (1 - 0.002) <= found <= row[column] * (1 + 1e-7)


@pytest.mark.parametrize(
    ("epsilon", "k", "name", "d", "expected"),
    [
        (0.1, 365, "grr", 16, 3.27), (0.5, 100, "oue", 16, 21.7), (0.5, 100, "sue", 16, 21.9),
        (0.5, 100, "grr", 16, 11.3), (0.5, 365, "grr", 128, 7.79), (1.0, 100, "sue", 16, 55.0),
        (1.0, 365, "oue", 16, 143.3), (1.0, 365, "grr", 128, 21.6), (2.0, 365, "oue", 16, 383.6),
        (2.0, 365, "sue", 16, 446.8), (2.0, 365, "grr", 16, 305.8),
    ],
)  # fmt: skip
def test_exact_sums_are_those_found_elsewhere(
    epsilon: float, k: int, name: str, d: int, expected: float
) -> None:
    """Total epsilons at delta 1e-6, computed before by self-convolution of a privacy-loss distribution."""
    assert exact([(_oracle(name, epsilon, d), k)], 1e-6).epsilon == pytest.approx(expected, rel=0.003)


@pytest.mark.parametrize(
    ("name", "d", "k"),
    [("rr", 2, 6), ("grr", 3, 4), ("sue", 2, 3), ("oue", 2, 3), ("subset", 4, 3), ("hadamard", 3, 4)],
)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_the_exact_bound_is_that_of_all_reports_together(name: str, d: int, k: int, epsilon: float) -> None:
    """Over every sequence of reports of one device, delta is reached at the bound's epsilon, whatever the answers."""
    made = mechanism(name, epsilon, d)
    together = [composed([pairs] * k) for pairs in all_pairs(made)[:2]]
    for delta in (1e-6, 1e-3, 0.05):
        bound = exact([(PrivacyLoss.of(made), k)], delta)
        for outcomes in together:
            assert divergence(outcomes, bound.epsilon) <= delta
            assert least_epsilon(outcomes, delta) == pytest.approx(bound.epsilon, rel=1e-6, abs=1e-6)


def test_the_answers_may_change_between_reports() -> None:
    """Every pair of distinct answers has the same loss, so a sequence of different ones adds up alike."""
    pairs = all_pairs(mechanism("grr", 1.0, 4))
    mixed = composed([pairs[0], pairs[5], pairs[9], pairs[2]])
    bound = exact([(_oracle("grr", 1.0, 4), 4)], 1e-3)
    assert least_epsilon(mixed, 1e-3) == pytest.approx(bound.epsilon, rel=1e-6)


def _random_case(seed: int) -> tuple[list[float], float]:
    drawn = random.Random(seed)  # noqa: S311  # a case, not noise
    epsilons = [round(drawn.uniform(0.02, 2.5), 3) for _ in range(drawn.randint(2, 11))]
    return epsilons, 10 ** drawn.uniform(-8, -1)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("points", [loss_sums.EXACT_POINTS, 0], ids=["points", "grid"])
def test_different_epsilons_lie_between_the_exact_optimum_and_the_plain_sum(
    seed: int, points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 50 random cases no bound for any mechanisms is below the exact optimum, and the best is not above basic."""
    monkeypatch.setattr(loss_sums, "EXACT_POINTS", points)
    epsilons, delta = _random_case(seed)
    plan = [(PrivacyLoss.pure(epsilon), 1) for epsilon in epsilons]
    lowest, plain = _exact_optimum(epsilons, delta), basic(plan).epsilon
    for bound in bounds(plan, delta):
        assert bound.epsilon >= lowest * (1 - 1e-9)
    found = optimal(plan, delta).epsilon
    assert lowest * (1 - 1e-9) <= found <= plain == pytest.approx(math.fsum(epsilons))
    assert found == pytest.approx(lowest, rel=1e-3 if points == 0 else 1e-6)
    assert best(plan, delta).epsilon <= plain


def test_many_reports_of_two_kinds_on_the_grid() -> None:
    """The grid is above the exact law of two binomials, by less than its documented step."""
    kinds = [(PrivacyLoss.pure(0.3), 300), (PrivacyLoss.pure(0.7), 200)]
    exact_law = sorted(
        (
            (0.3 * (2 * i - 300) + 0.7 * (2 * j - 200), _binomial(300, i, 0.3) * _binomial(200, j, 0.7))
            for i in range(301)
            for j in range(201)
        ),
        reverse=True,
    )
    truth = loss_sums.epsilon_of(loss_sums.Sum(exact_law), 1e-6)
    found = optimal(kinds, 1e-6).epsilon
    assert len(exact_law) > loss_sums.EXACT_POINTS
    assert truth * (1 - 1e-9) <= found <= truth * 1.001


def _binomial(trials: int, k: int, epsilon: float) -> float:
    up = 1 / (1 + math.exp(-epsilon))
    logs = math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
    return math.exp(logs + k * math.log(up) + (trials - k) * math.log1p(-up))


kinds = st.lists(
    st.tuples(st.floats(0.01, 6), st.floats(0.001, 1), st.integers(1, 60)), min_size=1, max_size=3
).map(
    lambda drawn: [
        (PrivacyLoss(e, share * PrivacyLoss.pure(e).probability), count) for e, share, count in drawn
    ]
)


@settings(max_examples=15, deadline=None)
@given(kinds, st.floats(1e-9, 0.2))
def test_what_always_holds_of_bounds(plan: Kinds, delta: float) -> None:
    """Best is the least; optimal, rdp and exact are never above basic; knowing the mechanisms only helps."""
    named = {bound.name: bound for bound in bounds(plan, delta)}
    assert list(named) == ["basic", "advanced", "optimal", "rdp", "exact"]
    plain = named["basic"].epsilon
    for name in ("optimal", "rdp", "exact"):
        assert 0 <= named[name].epsilon <= plain
    assert best(plan, delta).epsilon == min(bound.epsilon for bound in named.values()) <= plain
    slack = 1e-3 * plain  # of the grid
    assert named["exact"].epsilon <= named["optimal"].epsilon + slack
    assert named["exact"].epsilon <= named["rdp"].epsilon + slack
    assert all(bound.assumption and bound.delta in (0.0, delta) for bound in named.values())


@settings(max_examples=8, deadline=None)
@given(kinds, st.floats(1e-9, 0.2))
def test_more_reports_never_cost_less_and_a_larger_delta_never_more(plan: Kinds, delta: float) -> None:
    """Every bound grows with the plan and falls with delta, up to the step of the grid."""
    more = [*plan, (PrivacyLoss.pure(0.5), 1)]
    for before, after, relaxed in zip(
        bounds(plan, delta), bounds(more, delta), bounds(plan, min(0.5, 2 * delta)), strict=True
    ):
        slack = 1e-3 * (before.epsilon + 1e-9)
        assert after.epsilon >= before.epsilon - slack
        assert after.epsilon <= before.epsilon + 0.5 + slack or before.name == "advanced"
        assert relaxed.epsilon <= before.epsilon + slack


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_law_of_equal_reports_is_that_of_all_their_outcomes(count: int) -> None:
    """Counted one by one, each sum of losses has the probability that the recurrence gives it."""
    loss = _oracle("grr", 1.3, 5)
    expected = dict.fromkeys(range(-count, count + 1), 0.0)
    points = [p for p, _ in three_points(loss)]
    for outcome in product((0, 1, 2), repeat=count):
        net = outcome.count(0) - outcome.count(1)
        expected[net] += math.prod(points[i] for i in outcome)
    law = law_of(loss, count)
    assert [x for x, _ in law] == pytest.approx([net * 1.3 for net in range(count, -count - 1, -1)])
    assert [p for _, p in law] == pytest.approx(
        [expected[net] for net in range(count, -count - 1, -1)], rel=1e-9
    )


@pytest.mark.parametrize("epsilon", [0.001, 1.0, 20.0, 100.0])
@pytest.mark.parametrize("count", [1, 1_000, 100_000])
def test_laws_have_mass_one_at_every_size(epsilon: float, count: int) -> None:
    """Neither many reports nor large epsilons lose mass to underflow or rounding."""
    for loss in (PrivacyLoss.pure(epsilon), PrivacyLoss(epsilon, PrivacyLoss.pure(epsilon).probability / 3)):
        assert math.fsum(p for _, p in law_of(loss, count)) == pytest.approx(1.0, abs=1e-9)


def test_the_grid_loses_no_mass_and_no_mean() -> None:
    """Mass that is cut off above is named; under the other answer the grid has at least the mass that is left."""
    plan = [(_oracle("oue", 0.3), 200), (_oracle("grr", 1.1), 300)]
    total = sum_of(plan, 1e-6)
    assert math.fsum(p for _, p in total.law) + total.lost == pytest.approx(1.0, abs=1e-9)
    assert 0 < total.lost < 1e-10
    assert math.fsum(p * math.exp(-x) for x, p in total.law) <= 1 + 1e-9


def test_what_is_cut_off_above_counts_as_lost() -> None:
    """Mass without an upper loss is taken from delta; where it is all of it, no epsilon holds."""
    law = [(2.0, 0.3), (0.5, 0.3), (-1.0, 0.3)]
    whole = loss_sums.epsilon_of(loss_sums.Sum(law), 0.1)
    assert 0.5 < whole < 2.0
    assert loss_sums.epsilon_of(loss_sums.Sum(law, lost=0.05), 0.15) == pytest.approx(whole)
    assert loss_sums.epsilon_of(loss_sums.Sum(law, lost=0.1), 0.1) == math.inf


def test_small_deltas_leave_the_plain_sum_and_large_ones_nothing() -> None:
    """With next to no delta nothing beats the plain sum; with much of it a weak plan costs nothing."""
    plan = [(PrivacyLoss.pure(1.0), 5)]
    assert best(plan, 1e-100).epsilon == pytest.approx(5.0)
    assert optimal([(PrivacyLoss.pure(0.01), 3)], 0.4).epsilon == 0.0
    assert optimal(plan, 1e-6).epsilon < 5.0


def test_equal_losses_are_counted_together() -> None:
    """A plan is a set of reports: how it is written down makes no difference."""
    loss = PrivacyLoss.pure(0.5)
    assert (
        bounds([(loss, 1)] * 50, 1e-6) == bounds([(loss, 20), (loss, 30)], 1e-6) == bounds([(loss, 50)], 1e-6)
    )


def test_every_bound_says_what_it_assumes() -> None:
    """Basic needs nothing; the others say that the plan is fixed, and optimal when it is an upper bound."""
    one, other = PrivacyLoss.pure(0.5), PrivacyLoss.pure(0.6)
    words = {bound.name: bound.assumption for bound in bounds([(one, 3), (other, 1)], 1e-6)}
    assert words["basic"] == "None: later questions may depend on earlier answers."
    assert all("fixed before the first answer" in text for name, text in words.items() if name != "basic")
    assert "RenyiFilter" in words["rdp"]
    assert "upper bound" in words["optimal"]
    assert "upper bound" not in optimal([(one, 3)], 1e-6).assumption
    assert isinstance(best([(one, 3)], 1e-6), Bound)


@pytest.mark.parametrize("plan", [[], [(PrivacyLoss.pure(1.0), 0)], [(PrivacyLoss.pure(1.0), 1.5)]])
def test_impossible_plans_are_refused(plan: Kinds) -> None:
    """A plan has reports, in whole numbers; delta is a probability."""
    with pytest.raises(AccountingError, match=r"at least one report|whole number"):
        bounds(plan, 1e-6)
    for bound in (advanced, optimal, rdp, exact, best):
        with pytest.raises(AccountingError, match="delta must be"):
            bound([(PrivacyLoss.pure(1.0), 1)], 0.0)
