"""``olh`` and ``blh``: hash the value into few buckets by a hash of one's own, and randomise the bucket.

Wang et al., USENIX Security 2017, section 4.4 (`olh`); Bassily and Smith, STOC 2015 (`blh`).
"""

from abc import abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dither_protocol.mechanisms import forms
from dither_protocol.mechanisms.base import Form
from dither_protocol.mechanisms.shapes import TwoWeights
from dither_protocol.mechanisms.weights import exp_plus_one, rounded


class LocalHashing(TwoWeights):
    """A 32-bit seed that the device draws, and the randomised bucket of the value under the seed's hash.

    A value supports the report if its hash is the reported bucket. The hash family is that of
    `dither_protocol.hashing`: two values share a bucket with probability 1/g over the seeds, hence q = 1/g.
    """

    form: ClassVar[Form] = Form.HASH

    @property
    @abstractmethod
    def g(self) -> int:
        """Number of buckets."""

    @property
    def total_weight(self) -> int:
        """Sum of all g weights."""
        return self.truth_weight + (self.g - 1) * self.lie_weight

    @property
    def p_exact(self) -> Fraction:
        return Fraction(self.truth_weight, self.total_weight)

    @property
    def q_exact(self) -> Fraction:
        return Fraction(1, self.g)

    @property
    def loss_probability_exact(self) -> Fraction:
        # -epsilon is the bucket of the other answer, where the seed keeps the two apart; else the loss is 0.
        return (1 - self.q_exact) * Fraction(self.lie_weight, self.total_weight)

    @property
    def report_bits(self) -> int:
        return 32 + (self.g - 1).bit_length()

    @property
    def packed_size(self) -> int:
        return forms.PAIR.size

    def pack(self, data: object) -> bytes:
        return forms.pack_pair(data, self.g)

    def unpack(self, packed: bytes) -> list[int]:
        return forms.unpack_pair(packed)


class OptimizedLocalHashing(LocalHashing):
    """``olh``: about e^epsilon + 1 buckets, where the variance is least."""

    name: ClassVar[str] = "olh"

    @cached_property
    def g(self) -> int:
        return max(2, rounded(exp_plus_one(self.epsilon)))


class BinaryLocalHashing(LocalHashing):
    """``blh``: two buckets."""

    name: ClassVar[str] = "blh"

    @property
    def g(self) -> int:
        return 2
