"""Exact integer weights from epsilon, always rounded toward more noise (invariant P4).

Everything is computed with `decimal` at 50 digits: a double of e^epsilon rounds up for some epsilon, and from
about 14.6 on it has fewer bits than the weights.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import Final

SCALE_BITS: Final = 32
"""Weights and thresholds are multiples of 2^-32: p and q move by at most 2.4e-10, and every weight of a
mechanism (epsilon <= 20, d <= 65,536) fits into 63 bits, so that simulations can draw them vectorised."""

SCALE: Final = 1 << SCALE_BITS

CONTEXT: Final = Context(prec=50)


def exact_epsilon(epsilon: float) -> Decimal:
    """The declared epsilon as a decimal: what was typed or what the double holds, whichever is smaller."""
    return min(Decimal(repr(epsilon)), Decimal(epsilon))


def exp_floor(epsilon: float) -> int:
    """floor(e^epsilon * 2^32): the weight of the truth where any lie weighs 2^32.

    Rounding down gives ln(weight / 2^32) <= epsilon.
    """
    with localcontext(CONTEXT):
        scaled = exact_epsilon(epsilon).exp() * SCALE
        return int(scaled.to_integral_value(rounding=ROUND_FLOOR))


def flip_threshold(epsilon: float, halves: int = 1) -> int:
    """ceil(2^32 / (e^(epsilon/halves) + 1)): the threshold T of a bit flipped with probability T/2^32.

    Rounding up gives ln((2^32 - T)/T) <= epsilon / halves.
    """
    with localcontext(CONTEXT):
        share = SCALE / ((exact_epsilon(epsilon) / halves).exp() + 1)
        return int(share.to_integral_value(rounding=ROUND_CEILING))


def log_ratio(numerator: int, denominator: int) -> Decimal:
    """ln(numerator / denominator) to 50 digits."""
    with localcontext(CONTEXT):
        return (Decimal(numerator) / Decimal(denominator)).ln()


def exp_plus_one(epsilon: float) -> Decimal:
    """e^epsilon + 1 to 50 digits, for the choice of integer parameters."""
    with localcontext(CONTEXT):
        return exact_epsilon(epsilon).exp() + 1


def rounded(number: Decimal) -> int:
    """The nearest integer, half to even."""
    return int(number.to_integral_value(rounding=ROUND_HALF_EVEN))
