"""``grr`` and ``rr``: name the true value, or any other with less probability.

Kairouz, Bonawitz, Ramage, ICML 2016 (k-ary randomized response); Wang et al., USENIX Security 2017, section
4.1 (direct encoding); Warner 1965 at d = 2.
"""

from fractions import Fraction
from typing import ClassVar

from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms.shapes import IndexReports, TwoWeights


class GeneralizedRandomizedResponse(IndexReports, TwoWeights):
    """Report the truth with weight ``truth_weight``, each other value with weight ``lie_weight``."""

    name: ClassVar[str] = "grr"

    @property
    def total_weight(self) -> int:
        """Sum of all d weights."""
        return self.truth_weight + (self.d - 1) * self.lie_weight

    @property
    def p_exact(self) -> Fraction:
        return Fraction(self.truth_weight, self.total_weight)

    @property
    def q_exact(self) -> Fraction:
        return Fraction(self.lie_weight, self.total_weight)

    @property
    def loss_probability_exact(self) -> Fraction:
        # -epsilon is the other one of the two answers, named as a lie.
        return self.q_exact


class RandomizedResponse(GeneralizedRandomizedResponse):
    """``grr`` at d = 2, by the name that the survey literature knows it by."""

    name: ClassVar[str] = "rr"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d != 2:
            raise MechanismError("rr is for two values; use grr for more")
