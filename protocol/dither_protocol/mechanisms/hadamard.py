"""``hadamard``: report a column index of a Hadamard matrix, one of those where the value's row is +1 more often.

Acharya, Sun, Zhang, AISTATS 2019, with one block.
"""

from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dither_protocol.mechanisms.shapes import IndexReports, TwoWeights


class HadamardResponse(IndexReports, TwoWeights):
    """Value v supports the indexes y in [K] with an even number of common bits of v+1 and y.

    Half of all indexes support v, and half of those support any other value too, hence q = 1/2 exactly. Row 0
    of the matrix supports everything and is not used.
    """

    name: ClassVar[str] = "hadamard"

    @cached_property
    def order(self) -> int:
        """K, the order of the matrix: the smallest power of two above d."""
        return 1 << self.d.bit_length()

    @property
    def p_exact(self) -> Fraction:
        return Fraction(self.truth_weight, self.truth_weight + self.lie_weight)

    @property
    def q_exact(self) -> Fraction:
        return Fraction(1, 2)

    @property
    def loss_probability_exact(self) -> Fraction:
        # Of the indexes that do not support one answer, half support the other.
        return (1 - self.p_exact) / 2

    @property
    def counters(self) -> int:
        return self.order
