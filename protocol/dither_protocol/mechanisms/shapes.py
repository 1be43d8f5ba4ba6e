"""What several families share: the two weights of a report, and reports that are one number."""

from decimal import Decimal
from functools import cached_property
from typing import ClassVar

from dither_protocol.mechanisms import forms
from dither_protocol.mechanisms.base import Form, Mechanism
from dither_protocol.mechanisms.weights import SCALE, exp_floor, log_ratio


class TwoWeights(Mechanism):
    """Every report that favours the truth weighs ``truth_weight``, every other one ``lie_weight``.

    What favouring means is the family's own: naming the value, holding it, being orthogonal to it. The privacy loss is
    the ratio of the weights, whatever the family.
    """

    @cached_property
    def truth_weight(self) -> int:
        """Integer weight of a report that favours the truth: floor(e^epsilon 2^32)."""
        return exp_floor(self.epsilon)

    @property
    def lie_weight(self) -> int:
        """Integer weight of any other report."""
        return SCALE

    def realized_epsilon(self) -> Decimal:
        return log_ratio(self.truth_weight, self.lie_weight)


class IndexReports(Mechanism):
    """Reports are one number below ``counters``, and a cell counts how often each came."""

    form: ClassVar[Form] = Form.INDEX

    @property
    def report_bits(self) -> int:
        return (self.counters - 1).bit_length()

    @property
    def packed_size(self) -> int:
        return forms.INDEX.size

    def pack(self, data: object) -> bytes:
        return forms.pack_index(data, self.counters)

    def unpack(self, packed: bytes) -> int:
        return forms.unpack_index(packed)
