"""``hadamard``: report a column index of a Hadamard matrix, one of those where the value's row is +1 more often.

Acharya, Sun, Zhang, AISTATS 2019, with one block.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dither_protocol.mechanisms import forms
from dither_protocol.mechanisms.base import Form, Mechanism
from dither_protocol.mechanisms.weights import SCALE, exp_floor, log_ratio


@dataclass(frozen=True)
class HadamardResponse(Mechanism):
    """Value v supports the indexes y in [K] with an even number of common bits of v+1 and y.

    Half of all indexes support v, and half of those support any other value too, hence q = 1/2 exactly. Row 0
    of the matrix supports everything and is not used.
    """

    name: ClassVar[str] = "hadamard"
    form: ClassVar[Form] = Form.INDEX

    @cached_property
    def order(self) -> int:
        """K, the order of the matrix: the smallest power of two above d."""
        return 1 << self.d.bit_length()

    @cached_property
    def truth_weight(self) -> int:
        """Integer weight of the half that supports the true value: floor(e^epsilon 2^32)."""
        return exp_floor(self.epsilon)

    @property
    def lie_weight(self) -> int:
        """Integer weight of the other half."""
        return SCALE

    @property
    def p_exact(self) -> Fraction:
        return Fraction(self.truth_weight, self.truth_weight + self.lie_weight)

    @property
    def q_exact(self) -> Fraction:
        return Fraction(1, 2)

    @property
    def report_bits(self) -> int:
        return (self.order - 1).bit_length()

    @property
    def counters(self) -> int:
        return self.order

    @property
    def packed_size(self) -> int:
        return forms.INDEX.size

    def realized_epsilon(self) -> Decimal:
        return log_ratio(self.truth_weight, self.lie_weight)

    def pack(self, data: object) -> bytes:
        return forms.pack_index(data, self.order)

    def unpack(self, packed: bytes) -> int:
        return forms.unpack_index(packed)
