from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from typing import Any, cast

import pytest

from dither_protocol import MECHANISMS, Mechanism, mechanism
from dither_protocol.mechanisms import GeneralizedRandomizedResponse
from dither_protocol.mechanisms.unary import UnaryEncoding
from support.reference_values import reference_rows

EPSILONS = (0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 14.7, 20.0)
SIZES = (2, 3, 16, 1000)
GRID = [("rr", epsilon, 2) for epsilon in EPSILONS] + [
    (name, epsilon, d) for name in ("grr", "sue", "oue") for epsilon in EPSILONS for d in SIZES
]

# Thresholds are multiples of 2^-32, so p and q are off by at most 2.4e-10; the variance divides by (p-q)^2.
P_TOLERANCE = 1e-9
VARIANCE_TOLERANCE = 1e-7  # relative, at epsilon = 0.1


def _known_rows() -> list[dict[str, Any]]:
    return [row for row in reference_rows("mechanisms") if row["mechanism"] in MECHANISMS]


def _label(row: dict[str, Any]) -> str:
    return f"{row['mechanism']}-{row['epsilon']}-{row['d']}"


def _bit_law(made: UnaryEncoding, held: int) -> Iterator[Fraction]:
    """The probability of every report of d bits, from the integer thresholds."""
    scale = 2**32
    ones = [made.keep_threshold if v == held else made.noise_threshold for v in range(made.d)]
    for bits in product((0, 1), repeat=made.d):
        chance = Fraction(1)
        for bit, threshold in zip(bits, ones, strict=True):
            chance *= Fraction(threshold if bit else scale - threshold, scale)
        yield chance


def _worst_ratio(made: Mechanism) -> Fraction:
    """The greatest ratio of a report's probabilities under two answers, from the sampler's integers."""
    if isinstance(made, GeneralizedRandomizedResponse):
        weights = [made.truth_weight, *[made.lie_weight] * (made.d - 1)]
        return Fraction(max(weights), min(weights))
    unary = cast(UnaryEncoding, made)
    keep, noise = Fraction(unary.keep_threshold, 2**32), Fraction(unary.noise_threshold, 2**32)
    # Two answers differ in two bits, and the bits are independent, whatever d is.
    one, zero = keep / noise, (1 - keep) / (1 - noise)
    return max(one, 1 / one) * max(zero, 1 / zero)


def test_the_reference_has_rows_for_the_mechanisms_at_hand() -> None:
    """The comparison with the reference is not empty."""
    assert {row["mechanism"] for row in _known_rows()} >= {"grr", "sue", "oue"}


@pytest.mark.parametrize("row", _known_rows(), ids=_label)
def test_p_and_q_are_those_of_the_reference(row: dict[str, Any]) -> None:
    """P and q agree with values computed independently, up to the rounding of the weights."""
    made = mechanism(row["mechanism"], row["epsilon"], row["d"])
    assert made.p == pytest.approx(row["p"], rel=0, abs=P_TOLERANCE)
    assert made.q == pytest.approx(row["q"], rel=0, abs=P_TOLERANCE)
    assert made.gap == pytest.approx(row["p"] - row["q"], rel=0, abs=P_TOLERANCE)


@pytest.mark.parametrize("row", _known_rows(), ids=_label)
def test_the_variance_among_reporters_is_that_of_the_reference(row: dict[str, Any]) -> None:
    """N times the variance agrees at true shares 0 and 0.1."""
    made = mechanism(row["mechanism"], row["epsilon"], row["d"])
    assert made.n_variance(0.0) == pytest.approx(row["n_var_f0"], rel=VARIANCE_TOLERANCE)
    assert made.n_variance(0.1) == pytest.approx(row["n_var_f01"], rel=VARIANCE_TOLERANCE)


@pytest.mark.parametrize(("name", "epsilon", "d"), GRID)
def test_the_weights_never_spend_more_than_declared(name: str, epsilon: float, d: int) -> None:
    """The worst ratio of the integer weights is at most e^epsilon, and not idly far below it (P4)."""
    made = mechanism(name, epsilon, d)
    ratio = _worst_ratio(made)
    with localcontext(prec=80):
        loss = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
        assert loss <= Decimal(str(epsilon))
        assert loss >= Decimal(str(epsilon)) * Decimal("0.999")
        assert abs(loss - made.realized_epsilon()) < Decimal("1e-45")
    assert made.realized_epsilon() <= Decimal(str(epsilon))


@pytest.mark.parametrize("name", ["sue", "oue"])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_no_report_of_bits_tells_two_answers_apart_by_more(name: str, epsilon: float) -> None:
    """Over all reports of four bits, the worst ratio is the one that two bits alone give."""
    made = cast(UnaryEncoding, mechanism(name, epsilon, 4))
    first, second = list(_bit_law(made, 0)), list(_bit_law(made, 1))
    assert sum(first) == sum(second) == 1
    assert max(a / b for a, b in zip(first, second, strict=True)) == _worst_ratio(made)
