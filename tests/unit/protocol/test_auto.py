import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol import MECHANISMS, MechanismError, mechanism
from dither_protocol.mechanisms import (
    AUTO,
    MAX_D,
    MAX_EPSILON,
    MIN_EPSILON,
    Mechanism,
    ProjectiveGeometryResponse,
    candidates,
)
from dither_protocol.mechanisms.auto import best
from support.reference_values import reference_rows

GRID = [
    (epsilon, d)
    for epsilon in (MIN_EPSILON, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 14.7, MAX_EPSILON)
    for d in (2, 3, 4, 7, 16, 100, 263, 1_024, 8_192, 8_193, 32_768, MAX_D)
]
ROUNDING = 1e-7  # relative; weights are multiples of 2^-32


@pytest.mark.parametrize("row", reference_rows("auto"), ids=lambda row: f"{row['epsilon']}-{row['d']}")
def test_the_choice_is_that_of_the_reference(row: dict[str, Any]) -> None:
    """Name, sizes, variance and space agree with values computed independently."""
    made = mechanism(AUTO, row["epsilon"], row["d"])
    assert made.name == row["mechanism"]
    assert (made.report_bits, made.counters) == (row["report_bits"], row["counters"])
    assert made.n_variance(1 / made.d) == pytest.approx(row["n_variance_at_1_over_d"], rel=ROUNDING)
    if isinstance(made, ProjectiveGeometryResponse):
        assert (made.r, made.t) == (row["r"], row["t"])
    least = min(other.n_variance(1 / made.d) for other in candidates(made.epsilon, made.d) if _allowed(other))
    assert made.n_variance(1 / made.d) / least == pytest.approx(row["over_best"], rel=ROUNDING)


def _allowed(made: Mechanism) -> bool:
    return made.report_bits <= 8_192 and made.counters <= 2**20


def _chosen_slowly(epsilon: float, d: int) -> str:
    """The rule of design section 6, by sorting all that is good enough."""
    made = [(index, mechanism(name, epsilon, d)) for index, name in enumerate(MECHANISMS) if name != "rr"]
    allowed = [(index, each) for index, each in made if _allowed(each)]
    least = min(each.n_variance(1 / d) for _, each in allowed)
    good = [(each.report_bits, each.counters, index, each.name) for index, each in allowed
            if each.n_variance(1 / d) <= 1.05 * least]  # fmt: skip
    return min(good)[3]


@pytest.mark.parametrize(("epsilon", "d"), GRID)
def test_the_choice_follows_the_rule(epsilon: float, d: int) -> None:
    """Finite, inside the caps, within 5 % of the best, then the smallest report, and the same again."""
    made = mechanism(AUTO, epsilon, d)
    assert (made.epsilon, made.d) == (epsilon, d)
    assert _allowed(made)
    assert made.name == _chosen_slowly(epsilon, d)
    assert mechanism(AUTO, epsilon, d) == made == best(candidates(epsilon, d))
    for f in (0.0, 1 / d, 1.0):
        assert 0 < made.n_variance(f) < math.inf
    assert 0 < made.gap < 1
    assert made.realized_epsilon() <= epsilon


@given(st.floats(MIN_EPSILON, MAX_EPSILON), st.integers(2, 3_000))
def test_no_allowed_mechanism_is_much_better(epsilon: float, d: int) -> None:
    """Whatever is asked for, the choice has at most 5 % more variance than any mechanism within the caps."""
    made = mechanism(AUTO, epsilon, d)
    for other in candidates(epsilon, d):
        if _allowed(other):
            assert made.n_variance(1 / d) <= 1.05 * other.n_variance(1 / d) * (1 + 1e-12)


def test_candidates_are_all_mechanisms_in_the_order_of_the_table() -> None:
    """`rr` goes by its name `grr`."""
    assert [made.name for made in candidates(1.0, 2)] == [name for name in MECHANISMS if name != "rr"]
    assert all((made.epsilon, made.d) == (1.0, 50) for made in candidates(1.0, 50))


@pytest.mark.parametrize(
    ("epsilon", "d"), [(0, 4), (20.5, 4), (math.nan, 4), (True, 4), (1.0, 1), (1.0, 2.0), (1.0, 65_537)]
)
def test_what_no_mechanism_takes_is_refused(epsilon: float, d: int) -> None:
    """`auto` and `candidates` refuse the same parameters as every mechanism, before anything is cached."""
    with pytest.raises(MechanismError, match=r"^(epsilon|d) must be"):
        mechanism(AUTO, epsilon, d)
    with pytest.raises(MechanismError, match=r"^(epsilon|d) must be"):
        candidates(epsilon, d)


def test_a_whole_epsilon_is_the_same_as_its_double() -> None:
    """Epsilon 1 and 1.0 are one choice."""
    assert mechanism(AUTO, 1, 40) == mechanism(AUTO, 1.0, 40)
