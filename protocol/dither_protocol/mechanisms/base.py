"""What all mechanisms share: the pure-protocol interface of Wang et al., USENIX Security 2017, section 3.

p = Pr[v in S(y) | holds v] and q = Pr[v in S(y) | holds another value], S(y) the support of report y. Both
are computed here and nowhere else (invariant C5), as exact fractions of the integers that the sampler uses.
"""

from abc import ABC, abstractmethod
from dataclasses import FrozenInstanceError, dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

from dither_protocol.errors import MechanismError

MIN_EPSILON: Final = 0.001
"""Below it thresholds of 2^-32 are too coarse, and no fleet on earth would see a signal."""

MAX_EPSILON: Final = 20.0
MAX_D: Final = 65_536


class Form(StrEnum):
    """The shape of a report's ``data`` on the wire (design section 7)."""

    INDEX = "index"
    BITS = "bits"
    HASH = "hash"


Data = int | str | list[int]
"""The ``data`` of one report: an index, base64url of bits, or a pair [seed, value]."""


class _Frozen:
    """Nothing of its instances can be set or deleted, whatever their class.

    Of a frozen dataclass Python freezes the fields alone in classes below it, so that p or q could be overwritten.
    Making each of those a frozen dataclass again would cost every program that asks a metric 5 ms.
    """

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


@dataclass(frozen=True)
class Mechanism(_Frozen, ABC):
    """A frequency oracle with its parameters. Frozen, hashable, compared by (class, epsilon, d).

    A class that adds a field is decorated as a frozen dataclass again, any other need not be.

    Attributes:
        name: the word in registries and results.
        form: the shape of ``data``.
        epsilon: declared privacy loss of one report.
        d: number of values in the domain.
    """

    name: ClassVar[str]
    form: ClassVar[Form]

    epsilon: float
    d: int

    def __post_init__(self) -> None:
        if type(self.epsilon) not in (int, float) or not MIN_EPSILON <= self.epsilon <= MAX_EPSILON:
            raise MechanismError(f"epsilon must be a number from {MIN_EPSILON} to {MAX_EPSILON:g}")
        if type(self.d) is not int or not 2 <= self.d <= MAX_D:
            raise MechanismError(f"d must be a whole number from 2 to {MAX_D}")
        object.__setattr__(self, "epsilon", float(self.epsilon))

    @property
    @abstractmethod
    def p_exact(self) -> Fraction:
        """Pr[v in S(y) | holds v], exactly as sampled."""

    @property
    @abstractmethod
    def q_exact(self) -> Fraction:
        """Pr[v in S(y) | holds another value], exactly as sampled."""

    @property
    @abstractmethod
    def loss_probability_exact(self) -> Fraction:
        """The r of a report: between two answers the privacy loss is epsilon with r e^epsilon, -epsilon with r, else 0.

        Of one fresh report; exact as sampled. Reports that share a memoised draw do not compose by it.
        """

    @property
    @abstractmethod
    def report_bits(self) -> int:
        """Information in one report, bits."""

    @property
    @abstractmethod
    def packed_size(self) -> int:
        """Bytes of one report in the packed form that the store and the counters use."""

    @property
    def counters(self) -> int:
        """How many counters a cell keeps."""
        return self.d

    @abstractmethod
    def realized_epsilon(self) -> Decimal:
        """The privacy loss of the integer weights themselves, 50 digits. Never above ``epsilon``."""

    @abstractmethod
    def pack(self, data: object) -> bytes:
        """Check the ``data`` of one report strictly, and give its packed form.

        Raises:
            MechanismError: the data is nothing that this mechanism produces.
        """

    @abstractmethod
    def unpack(self, packed: bytes) -> Data:
        """The wire ``data`` of one packed report; the inverse of `pack`."""

    @cached_property
    def p(self) -> float:
        """Pr[v in S(y) | holds v]."""
        return float(self.p_exact)

    @cached_property
    def q(self) -> float:
        """Pr[v in S(y) | holds another value]."""
        return float(self.q_exact)

    @cached_property
    def gap(self) -> float:
        """The difference p - q, taken exactly: at small epsilon that of the doubles would lose digits."""
        return float(self.p_exact - self.q_exact)

    @cached_property
    def loss_probability(self) -> float:
        """The r of the privacy loss, see `loss_probability_exact`."""
        return float(self.loss_probability_exact)

    def fake_margin(self, share: float) -> float:
        """How far this share of made-up reports can move the estimate of any value: share max(1-q, p)/(p-q).

        A fake that supports the value adds up to 1 - q over an honest report of another one; one that does not takes
        p from an honest report of it (design section 10).
        """
        return share * max(1 - self.q, self.p) / self.gap

    def n_variance(self, f: float) -> float:
        """Variance among reporters of the unbiased estimate, times n, where the true share is ``f``.

        Wang et al., USENIX Security 2017, equation (4) in its exact form for every f:
        [f p(1-p) + (1-f) q(1-q)] / (p-q)^2.
        """
        return (f * self.p * (1 - self.p) + (1 - f) * self.q * (1 - self.q)) / self.gap**2
