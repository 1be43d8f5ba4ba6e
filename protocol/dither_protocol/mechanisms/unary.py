"""``sue`` and ``oue``: d bits, one per value, each randomised by itself.

Wang et al., USENIX Security 2017, section 4.3; `sue` is the one-time basic RAPPOR of Erlingsson et al., CCS
2014.
"""

from abc import abstractmethod
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dither_protocol.mechanisms import forms
from dither_protocol.mechanisms.base import Form, Mechanism
from dither_protocol.mechanisms.weights import SCALE, flip_threshold, log_ratio


class UnaryEncoding(Mechanism):
    """A one-hot vector whose bits are randomised independently with thresholds out of 2^32."""

    form: ClassVar[Form] = Form.BITS

    @property
    @abstractmethod
    def keep_threshold(self) -> int:
        """The bit of the true value is 1 with probability keep_threshold / 2^32."""

    @property
    @abstractmethod
    def noise_threshold(self) -> int:
        """Every other bit is 1 with probability noise_threshold / 2^32."""

    @property
    def p_exact(self) -> Fraction:
        return Fraction(self.keep_threshold, SCALE)

    @property
    def q_exact(self) -> Fraction:
        return Fraction(self.noise_threshold, SCALE)

    @property
    def loss_probability_exact(self) -> Fraction:
        # Two answers differ in two bits, and -epsilon has both of them wrong.
        return self.q_exact * (1 - self.p_exact)

    @property
    def report_bits(self) -> int:
        return self.d

    @property
    def packed_size(self) -> int:
        return (self.d + 7) // 8

    def realized_epsilon(self) -> Decimal:
        # Two inputs differ in two bits: the loss is ln[p (1-q) / (q (1-p))], reached where both speak up.
        lie = SCALE - self.keep_threshold
        return log_ratio(self.keep_threshold * (SCALE - self.noise_threshold), self.noise_threshold * lie)

    def pack(self, data: object) -> bytes:
        return forms.pack_bits(data, self.d)

    def unpack(self, packed: bytes) -> str:
        return forms.encode_base64url(packed)


class SymmetricUnaryEncoding(UnaryEncoding):
    """``sue``: every bit is flipped with the same probability 1/(e^(epsilon/2) + 1)."""

    name: ClassVar[str] = "sue"

    @cached_property
    def noise_threshold(self) -> int:
        return flip_threshold(self.epsilon, halves=2)

    @property
    def keep_threshold(self) -> int:
        return SCALE - self.noise_threshold


class OptimizedUnaryEncoding(UnaryEncoding):
    """``oue``: the true bit is a fair coin, every other bit is 1 with probability 1/(e^epsilon + 1)."""

    name: ClassVar[str] = "oue"

    @cached_property
    def noise_threshold(self) -> int:
        return flip_threshold(self.epsilon)

    @property
    def keep_threshold(self) -> int:
        return SCALE // 2
