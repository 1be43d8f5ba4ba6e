import math
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol import MECHANISMS, AccountingError, Mechanism, PrivacyLoss, mechanism
from dither_protocol.accounting.loss import (
    MAX_LOSS,
    MIN_DELTA,
    check_count,
    check_delta,
    check_epsilon,
    worst_probability,
)
from dither_protocol.mechanisms import MAX_D, MAX_EPSILON, MIN_EPSILON, UnaryEncoding, memoized
from support.loss_laws import all_pairs, divergence, exact_pairs, three_points

SMALL = [
    (name, epsilon, d)
    for name, sizes in {
        "rr": (2,), "grr": (2, 3, 5), "sue": (2, 4), "oue": (2, 4), "subset": (2, 3, 5, 8), "olh": (3,), "blh": (3,),
        "hadamard": (2, 3, 4, 9), "projective": (3, 4, 7, 10, 15),
    }.items()
    for d in sizes
    for epsilon in (0.01, 0.5, 1.0, 2.0)
]  # fmt: skip


def _most(made: Mechanism) -> Fraction:
    """The greatest ratio of the sampler's integers."""
    if isinstance(made, UnaryEncoding):
        keep, noise = Fraction(made.keep_threshold, 2**32), Fraction(made.noise_threshold, 2**32)
        return keep * (1 - noise) / (noise * (1 - keep))
    return Fraction(made.truth_weight, made.lie_weight)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "epsilon", "d"), SMALL)
def test_the_loss_has_three_values_and_r_is_the_chance_of_the_least(
    name: str, epsilon: float, d: int
) -> None:
    """Over all reports and all pairs of answers: ratios E, 1/E and 1 alone, exactly, with r E, r and the rest."""
    made = mechanism(name, epsilon, d)
    most, r = _most(made), made.loss_probability_exact
    for one, other in permutations(range(d), 2):
        chances = {most: Fraction(0), 1 / most: Fraction(0), Fraction(1): Fraction(0)}
        for p, q in exact_pairs(made, one, other):
            chances[p / q] += p
        assert chances == {most: r * most, 1 / most: r, Fraction(1): 1 - r * (most + 1)}


@pytest.mark.parametrize(("name", "epsilon", "d"), SMALL)
def test_no_pair_of_answers_is_above_its_three_points(name: str, epsilon: float, d: int) -> None:
    """At every level the divergence of real reports is at most that of the loss, and no more than rounding below."""
    made = mechanism(name, epsilon, d)
    points = three_points(PrivacyLoss.of(made))
    for pairs in all_pairs(made):
        for level in (0.0, 0.3 * epsilon, 0.9 * epsilon):
            real, bound = divergence(pairs, level), divergence(points, level)
            assert real <= bound * (1 + 1e-12)
            assert real == pytest.approx(bound, rel=1e-5)  # 2^-32 beside a loss of 0.001


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grr", lambda e, made: 1 / (e + made.d - 1)),
        ("sue", lambda e, made: 1 / (math.sqrt(e) + 1) ** 2),
        ("oue", lambda e, made: 1 / (2 * (e + 1))),
        ("blh", lambda e, made: 1 / (2 * (e + 1))),
        ("hadamard", lambda e, made: 1 / (2 * (e + 1))),
        ("olh", lambda e, made: (1 - 1 / made.g) / (e + made.g - 1)),
        (
            "subset",
            lambda e, made: made.w * (made.d - made.w) / ((made.d - 1) * (made.w * e + made.d - made.w)),
        ),
    ],
)
def test_r_is_that_of_the_papers(name: str, expected: object) -> None:
    """In real numbers r has a closed form, and the integers are close to it."""
    for epsilon in (0.1, 1.0, 4.0, 12.0):
        for d in (2, 16, 1_000):
            made = mechanism(name, epsilon, d)
            formula = expected(math.exp(epsilon), made)  # type: ignore[operator]
            assert made.loss_probability == pytest.approx(formula, rel=1e-3 if epsilon == 12 else 1e-6)


@given(st.sampled_from(list(MECHANISMS)), st.floats(MIN_EPSILON, MAX_EPSILON), st.integers(3, MAX_D))
def test_every_mechanism_has_a_loss(name: str, epsilon: float, d: int) -> None:
    """Whatever the parameters, the loss exists, has the declared epsilon and at most the worst probability."""
    made = mechanism(name, epsilon, 2 if name == "rr" else min(d, 300))
    loss = PrivacyLoss.of(made)
    assert loss.epsilon == made.epsilon
    assert 0 < loss.probability <= worst_probability(made.epsilon)
    assert loss.probability == pytest.approx(made.loss_probability, rel=1e-3)


def test_memoised_reports_are_no_losses_of_their_own() -> None:
    """Their second report is not independent of the first, so nothing composes them as if it were."""
    with pytest.raises(AccountingError, match="memoised reports share a draw"):
        PrivacyLoss.of(memoized("grr", 1.0, 4, 2.0))


def test_binary_randomised_response_is_the_worst() -> None:
    """`rr` has the loss that stands for everything of its epsilon, up to the rounding of its weights."""
    for epsilon in (MIN_EPSILON, 0.1, 1.0, 5.0):
        worst = PrivacyLoss.pure(epsilon)
        assert PrivacyLoss.of(mechanism("rr", epsilon, 2)) == worst
        assert worst.probability == pytest.approx(1 / (math.exp(epsilon) + 1))
        for name in ("grr", "sue", "oue", "subset", "olh", "blh", "hadamard"):
            assert PrivacyLoss.of(mechanism(name, epsilon, 16)).probability < worst.probability


@pytest.mark.parametrize(
    ("epsilon", "probability"),
    [
        *((epsilon, 0.1) for epsilon in (0, -1.0, math.inf, math.nan, True, "1")),
        *((1.0, probability) for probability in (0.0, -0.1, 0.27, math.nan, None, True)),
        (MAX_LOSS + 1, 1e-60),
    ],
)
def test_impossible_losses_are_refused(epsilon: object, probability: object) -> None:
    """No loss has an epsilon of nothing or without end, nor probabilities that exceed 1."""
    with pytest.raises(AccountingError, match="must be"):
        PrivacyLoss(epsilon, probability)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [0.0, -0.1, 1.0, 1, math.nan, math.inf, True, "0.1", None, MIN_DELTA / 2])
def test_impossible_deltas_are_refused(delta: object) -> None:
    """A delta is a probability above 0 and below 1, and large enough for doubles."""
    with pytest.raises(AccountingError, match=r"^delta must be a number from 1e-100 and below 1$"):
        check_delta(delta)


def test_checks_give_what_they_were_given() -> None:
    """A good value comes back; where 0 is allowed, it is."""
    assert check_delta(0, zero=True) == 0.0
    assert check_delta(0.5) == 0.5
    assert check_epsilon(2) == 2.0
    assert check_count(3) == 3
    for bad in (0, -1, 1.0, True, None):
        with pytest.raises(AccountingError, match="count must be a whole number from 1"):
            check_count(bad)
