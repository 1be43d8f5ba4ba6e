"""``grr`` and ``rr``: name the true value, or any other with less probability.

Kairouz, Bonawitz, Ramage, ICML 2016 (k-ary randomized response); Wang et al., USENIX Security 2017, section
4.1 (direct encoding); Warner 1965 at d = 2.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms import forms
from dither_protocol.mechanisms.base import Form, Mechanism
from dither_protocol.mechanisms.weights import SCALE, exp_floor, log_ratio


@dataclass(frozen=True)
class GeneralizedRandomizedResponse(Mechanism):
    """Report the truth with weight ``truth_weight``, each other value with weight ``lie_weight``."""

    name: ClassVar[str] = "grr"
    form: ClassVar[Form] = Form.INDEX

    @cached_property
    def truth_weight(self) -> int:
        """Integer weight of the true value: floor(e^epsilon 2^32)."""
        return exp_floor(self.epsilon)

    @property
    def lie_weight(self) -> int:
        """Integer weight of each other value."""
        return SCALE

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
    def report_bits(self) -> int:
        return (self.d - 1).bit_length()

    @property
    def packed_size(self) -> int:
        return forms.INDEX.size

    def realized_epsilon(self) -> Decimal:
        return log_ratio(self.truth_weight, self.lie_weight)

    def pack(self, data: object) -> bytes:
        return forms.pack_index(data, self.d)

    def unpack(self, packed: bytes) -> int:
        return forms.unpack_index(packed)


@dataclass(frozen=True)
class RandomizedResponse(GeneralizedRandomizedResponse):
    """``grr`` at d = 2, by the name that the survey literature knows it by."""

    name: ClassVar[str] = "rr"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d != 2:
            raise MechanismError("rr is for two values; use grr for more")
