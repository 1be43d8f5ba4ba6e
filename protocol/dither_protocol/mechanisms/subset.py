"""``subset``: report w of the d values, the true one among them more often than chance.

Ye and Barg, IEEE Transactions on Information Theory 64(8), 2018; Wang et al., arXiv:1607.08025.
"""

from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms import forms
from dither_protocol.mechanisms.base import Form
from dither_protocol.mechanisms.shapes import TwoWeights
from dither_protocol.mechanisms.weights import exp_plus_one


class SubsetSelection(TwoWeights):
    """A subset of w values: each one that holds the truth weighs ``truth_weight``, each other ``lie_weight``."""

    name: ClassVar[str] = "subset"
    form: ClassVar[Form] = Form.BITS

    @cached_property
    def w(self) -> int:
        """Size of a subset: d/(E+1) rounded down or up, whichever gives the smaller variance at f = 0."""
        below = int(self.d / exp_plus_one(self.epsilon))
        choices = {min(max(1, size), self.d - 1) for size in (below, below + 1)}
        return min(sorted(choices), key=self._noise)

    def _noise(self, w: int) -> Fraction:
        p, q = self._in_subset(w)
        return q * (1 - q) / (p - q) ** 2

    def _in_subset(self, w: int) -> tuple[Fraction, Fraction]:
        """P and q with subsets of size w.

        Of all subsets C(d-1, w-1) hold the true value and C(d-1, w) do not, in the ratio w : d-w.
        """
        with_truth, without = w * self.truth_weight, (self.d - w) * self.lie_weight
        total = with_truth + without
        # The other d-1 values share the remaining w-1, or w, places evenly.
        others = Fraction(with_truth * (w - 1) + without * w, total * (self.d - 1))
        return Fraction(with_truth, total), others

    @cached_property
    def p_exact(self) -> Fraction:
        return self._in_subset(self.w)[0]

    @cached_property
    def q_exact(self) -> Fraction:
        return self._in_subset(self.w)[1]

    @property
    def loss_probability_exact(self) -> Fraction:
        # -epsilon is the other answer in a subset without the true one: w of the other d-1 values share it.
        return (1 - self.p_exact) * Fraction(self.w, self.d - 1)

    @property
    def report_bits(self) -> int:
        return self.d

    @property
    def packed_size(self) -> int:
        return (self.d + 7) // 8

    def pack(self, data: object) -> bytes:
        packed = forms.pack_bits(data, self.d)
        if int.from_bytes(packed, "little").bit_count() != self.w:
            raise MechanismError(f"exactly {self.w} bits must be set")
        return packed

    def unpack(self, packed: bytes) -> str:
        return forms.encode_base64url(packed)
