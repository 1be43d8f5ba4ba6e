import math

import pytest
from dp_accounting import dp_event, privacy_accountant
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant

from dither_protocol import PrivacyLoss, mechanism
from dither_protocol.accounting.bounds import exact, optimal, rdp
from dither_protocol.accounting.renyi import ORDERS, renyi_divergence
from support.loss_laws import three_points

REPLACE_ONE = privacy_accountant.NeighboringRelation.REPLACE_ONE
Plan = list[tuple[PrivacyLoss, int]]


def _law(loss: PrivacyLoss, step: float, upward: bool) -> privacy_loss_distribution.PrivacyLossDistribution:
    """One report, as two probability functions over three outcomes, logarithms under each answer."""
    pairs = [(p, q) for p, q in three_points(loss) if p > 1e-15]
    one, other = ({i: math.log(pair[side]) for i, pair in enumerate(pairs)} for side in (0, 1))
    return privacy_loss_distribution.from_two_probability_mass_functions(
        other, one, value_discretization_interval=step, pessimistic_estimate=upward
    )


def _bracket(plan: Plan, delta: float, step: float) -> tuple[float, float]:
    """The oracle's epsilon with every loss rounded down, and up, to multiples of the step."""
    found = []
    for upward in (False, True):
        laws = [_law(loss, step, upward).self_compose(count) for loss, count in plan]
        composed = laws[0]
        for law in laws[1:]:
            composed = composed.compose(law)
        found.append(composed.get_epsilon_for_delta(delta))
    return found[0], found[1]


@pytest.mark.parametrize(("epsilon", "d"), [(0.1, 2), (0.5, 16), (1.0, 128), (3.0, 5)])
def test_renyi_divergences_are_those_of_the_oracle(epsilon: float, d: int) -> None:
    """At every order of the grid, k-ary randomised response costs what dp-accounting says."""
    loss = PrivacyLoss.of(mechanism("grr", epsilon, d))
    accountant = rdp_privacy_accountant.RdpAccountant(ORDERS, REPLACE_ONE)
    accountant.compose(dp_event.RandomizedResponseDpEvent(d / (math.exp(epsilon) + d - 1), d))
    ours = [renyi_divergence(loss, order) for order in ORDERS]
    assert ours == pytest.approx(list(accountant._rdp), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "d", "k"), [(0.1, 2, 1_000), (0.5, 16, 365), (1.0, 128, 100)])
def test_renyi_composition_is_that_of_the_oracle(epsilon: float, d: int, k: int) -> None:
    """The total epsilon at delta agrees, ours being lower by what a finer choice of order gains."""
    orders = [1 + math.exp(i / 40) for i in range(-200, 280)]
    accountant = rdp_privacy_accountant.RdpAccountant(orders, REPLACE_ONE)
    accountant.compose(dp_event.RandomizedResponseDpEvent(d / (math.exp(epsilon) + d - 1), d), k)
    theirs = accountant.get_epsilon(1e-6)
    ours = rdp([(PrivacyLoss.of(mechanism("grr", epsilon, d)), k)], 1e-6).epsilon
    assert theirs * (1 - 1e-3) <= ours <= theirs * (1 + 1e-6)


@pytest.mark.parametrize(
    ("name", "epsilon", "d", "k"),
    [
        ("rr", 0.5, 2, 50), ("grr", 1.0, 16, 365), ("oue", 0.5, 16, 100), ("sue", 1.0, 8, 100), ("subset", 1.0, 32, 50),
        ("olh", 1.0, 100, 50), ("hadamard", 2.0, 10, 30), ("projective", 1.0, 64, 200),
    ],
)  # fmt: skip
def test_exact_sums_are_those_of_the_oracle(name: str, epsilon: float, d: int, k: int) -> None:
    """Equal reports: ours lies between the oracle's epsilons with losses rounded down and up, close together."""
    loss = PrivacyLoss.of(mechanism(name, epsilon, d))
    for delta in (1e-9, 1e-6, 1e-3):
        below, above = _bracket([(loss, k)], delta, 4e-4 * epsilon)
        assert below <= exact([(loss, k)], delta).epsilon * (1 + 1e-6)
        assert exact([(loss, k)], delta).epsilon <= above * (1 + 1e-6)
        assert above - below <= 6e-3 * above


def test_sums_of_several_kinds_are_those_of_the_oracle() -> None:
    """Four metrics at different epsilons, a year of reports: the grid is between the oracle's, or 0.05 % above."""
    plan = [
        (PrivacyLoss.of(mechanism("grr", 0.317, 16)), 365),
        (PrivacyLoss.of(mechanism("oue", 0.532, 64)), 52),
        (PrivacyLoss.of(mechanism("subset", 1.113, 24)), 12),
        (PrivacyLoss.pure(0.211), 100),
    ]
    for delta in (1e-8, 1e-5):
        below, above = _bracket(plan, delta, 5e-4)
        assert below <= exact(plan, delta).epsilon <= above * 1.0005
        assert above - below <= 0.02 * above


def test_different_epsilons_at_their_worst_are_those_of_the_oracle() -> None:
    """Pure losses of three epsilons: our upper bound of the optimum is between the oracle's, or 0.05 % above."""
    plan = [(PrivacyLoss.pure(0.1), 200), (PrivacyLoss.pure(0.25), 100), (PrivacyLoss.pure(0.7), 40)]
    below, above = _bracket(plan, 1e-6, 5e-4)
    assert below <= optimal(plan, 1e-6).epsilon <= above * 1.0005
    assert above - below <= 0.02 * above
