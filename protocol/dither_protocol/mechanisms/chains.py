"""Memoised collection: a permanent answer for each value, and a fresh round over it for each report.

Erlingsson, Pihur, Korolova, CCS 2014 (RAPPOR: permanent and instantaneous response). The second rounds are solved
here so that the chain of both is again the base oracle, at the epsilon of one report: of GRR over g values with
A = e^epsilon_permanent and c = e^epsilon it is GRR with e^x = (c (A + g - 2) - (g - 1)) / (A - c); of a unary encoding
it flips each bit with probability (q - q1) / (1 - 2 q1), q that of the chain, q1 of the permanent round.

The permanent answer is a function of a secret of the device and the value, so its digits are of fixed number: its
weights add up to 2^56, and its thresholds are out of 2^32.
"""

from abc import abstractmethod
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms.auto import best
from dither_protocol.mechanisms.base import MAX_EPSILON, MIN_EPSILON, Mechanism
from dither_protocol.mechanisms.direct import GeneralizedRandomizedResponse, RandomizedResponse
from dither_protocol.mechanisms.unary import OptimizedUnaryEncoding, SymmetricUnaryEncoding, UnaryEncoding
from dither_protocol.mechanisms.weights import CONTEXT, SCALE, exact_epsilon, exp_floor, log_ratio

MAX_MEMOIZED_D: Final = 1_024
PERMANENT_BITS: Final = 56
PERMANENT_TOTAL: Final = 1 << PERMANENT_BITS
"""Sum of the weights of a permanent answer that is an index: whole bytes, so that no draw is ever rejected."""

_TOO_CLOSE: Final = "epsilon is too close to epsilon_permanent: the second round would have next to no noise"


@dataclass(frozen=True)
class Memoized(Mechanism):
    """A base oracle as a chain of two rounds. ``p``, ``q`` and ``epsilon`` are those of one report.

    Attributes:
        epsilon_permanent: declared privacy loss of one permanent answer, however often it is reported.

    Raises:
        MechanismError: a parameter is outside its range, or no second round leads from one epsilon to the other.
    """

    epsilon_permanent: float

    def __post_init__(self) -> None:
        super().__post_init__()
        permanent = self.epsilon_permanent
        if type(permanent) not in (int, float) or not MIN_EPSILON <= permanent <= MAX_EPSILON:
            raise MechanismError(f"epsilon_permanent must be a number from {MIN_EPSILON} to {MAX_EPSILON:g}")
        if self.d > MAX_MEMOIZED_D:
            raise MechanismError(f"memoised collection takes at most {MAX_MEMOIZED_D:,} values")
        if permanent <= self.epsilon:
            raise MechanismError("epsilon must be below epsilon_permanent")
        object.__setattr__(self, "epsilon_permanent", float(permanent))
        self._check_second_round()

    @abstractmethod
    def _check_second_round(self) -> None:
        """Refuse parameters that no second round fits."""

    @property
    @abstractmethod
    def permanent_p(self) -> Fraction:
        """Pr[the permanent answer supports v | holds v]."""

    @property
    @abstractmethod
    def permanent_q(self) -> Fraction:
        """Pr[the permanent answer supports v | holds another value]."""

    @property
    @abstractmethod
    def second_p(self) -> Fraction:
        """Pr[a report supports v | the permanent answer does]."""

    @property
    @abstractmethod
    def second_q(self) -> Fraction:
        """Pr[a report supports v | the permanent answer does not]."""

    @property
    @abstractmethod
    def second_epsilon(self) -> float | None:
        """Privacy loss of one report about the permanent answer; None where it is of no use."""

    @abstractmethod
    def realized_permanent_epsilon(self) -> Decimal:
        """The privacy loss of the integers of the permanent round, 50 digits. Never above ``epsilon_permanent``."""

    def n_floor(self, f: float) -> float:
        """The part of `n_variance` that stays, however many reports each of the n devices sends.

        It is the variance of the permanent round alone: [f p1(1-p1) + (1-f) q1(1-q1)] / (p1-q1)^2.
        """
        p, q = float(self.permanent_p), float(self.permanent_q)
        return (f * p * (1 - p) + (1 - f) * q * (1 - q)) / float(self.permanent_p - self.permanent_q) ** 2


class MemoizedResponse(Memoized, GeneralizedRandomizedResponse):
    """``grr`` over ``grr``. ``truth_weight`` and ``lie_weight`` are those of the chain."""

    @cached_property
    def permanent_lie_weight(self) -> int:
        """Weight of each other value in the permanent round: ceil(2^56 / (A + d - 1))."""
        with localcontext(CONTEXT):
            share = PERMANENT_TOTAL / (exact_epsilon(self.epsilon_permanent).exp() + (self.d - 1))
            return int(share.to_integral_value(rounding=ROUND_CEILING))

    @property
    def permanent_truth_weight(self) -> int:
        """Weight of the truth in the permanent round: what is left of 2^56."""
        return PERMANENT_TOTAL - (self.d - 1) * self.permanent_lie_weight

    @cached_property
    def second_truth_weight(self) -> int:
        """Weight of the permanent answer in the second round, where any other value weighs ``second_lie_weight``.

        floor(2^32 e^x), with A = ``permanent_truth_weight / permanent_lie_weight``: less is more noise.
        """
        with localcontext(CONTEXT):
            big = Decimal(self.permanent_truth_weight) / self.permanent_lie_weight
            small = exact_epsilon(self.epsilon).exp()
            if big <= small:
                raise MechanismError(_TOO_CLOSE)
            ratio = (small * (big + self.d - 2) - (self.d - 1)) / (big - small)
            return int((SCALE * ratio).to_integral_value(rounding=ROUND_FLOOR))

    @property
    def second_lie_weight(self) -> int:
        """Weight of each other value in the second round."""
        return SCALE

    @property
    def second_total_weight(self) -> int:
        """Sum of the weights of the second round."""
        return self.second_truth_weight + (self.d - 1) * self.second_lie_weight

    def _check_second_round(self) -> None:
        if self.second_truth_weight > exp_floor(MAX_EPSILON):
            raise MechanismError(_TOO_CLOSE)

    @cached_property
    def truth_weight(self) -> int:
        """Kept twice, or changed and changed back."""
        kept = self.permanent_truth_weight * self.second_truth_weight
        return kept + (self.d - 1) * self.permanent_lie_weight * self.second_lie_weight

    @cached_property
    def lie_weight(self) -> int:
        """Changed in one of the rounds, or in both by way of any third value."""
        first = self.permanent_lie_weight * self.second_truth_weight
        second = self.permanent_truth_weight * self.second_lie_weight
        return first + second + (self.d - 2) * self.permanent_lie_weight * self.second_lie_weight

    @property
    def permanent_p(self) -> Fraction:
        return Fraction(self.permanent_truth_weight, PERMANENT_TOTAL)

    @property
    def permanent_q(self) -> Fraction:
        return Fraction(self.permanent_lie_weight, PERMANENT_TOTAL)

    @property
    def second_p(self) -> Fraction:
        return Fraction(self.second_truth_weight, self.second_total_weight)

    @property
    def second_q(self) -> Fraction:
        return Fraction(self.second_lie_weight, self.second_total_weight)

    @cached_property
    def second_epsilon(self) -> float:
        return float(log_ratio(self.second_truth_weight, self.second_lie_weight))

    def realized_permanent_epsilon(self) -> Decimal:
        return log_ratio(self.permanent_truth_weight, self.permanent_lie_weight)


class MemoizedBinaryResponse(MemoizedResponse, RandomizedResponse):
    """``rr`` over ``rr``."""

    name: ClassVar[str] = "rr"


class MemoizedUnaryEncoding(Memoized, UnaryEncoding):
    """A unary encoding whose permanent bits are flipped once more in each report.

    ``keep_threshold`` and ``noise_threshold`` are those of the chain, out of 2^64, since both rounds have theirs out
    of 2^32. For epsilon up to 8 what is realised lies within 1e-6 below it.
    """

    halves: ClassVar[int]
    """How many bits share the epsilon evenly: the bit that is 1 with q has odds of e^(epsilon/halves)."""

    @cached_property
    def permanent(self) -> UnaryEncoding:
        """The permanent round, as the fresh oracle that it is."""
        return self._base(self.epsilon_permanent)

    @abstractmethod
    def _base(self, epsilon: float) -> UnaryEncoding:
        """The base oracle at another epsilon."""

    @cached_property
    def flip_threshold(self) -> int:
        """Each permanent bit is flipped with probability flip_threshold / 2^32; rounded up, which is more noise."""
        with localcontext(CONTEXT):
            lie = Decimal(self.permanent.noise_threshold) / SCALE
            target = 1 / ((exact_epsilon(self.epsilon) / self.halves).exp() + 1)
            share = SCALE * (target - lie) / (1 - 2 * lie)
            return int(share.to_integral_value(rounding=ROUND_CEILING))

    def _check_second_round(self) -> None:
        if self.flip_threshold < 1:
            raise MechanismError(_TOO_CLOSE)

    def _chained(self, threshold: int) -> int:
        return threshold * (SCALE - self.flip_threshold) + (SCALE - threshold) * self.flip_threshold

    @cached_property
    def keep_threshold(self) -> int:
        return self._chained(self.permanent.keep_threshold)

    @cached_property
    def noise_threshold(self) -> int:
        return self._chained(self.permanent.noise_threshold)

    @property
    def p_exact(self) -> Fraction:
        return Fraction(self.keep_threshold, SCALE**2)

    @property
    def q_exact(self) -> Fraction:
        return Fraction(self.noise_threshold, SCALE**2)

    def realized_epsilon(self) -> Decimal:
        lie = SCALE**2 - self.keep_threshold
        return log_ratio(self.keep_threshold * (SCALE**2 - self.noise_threshold), self.noise_threshold * lie)

    @property
    def permanent_p(self) -> Fraction:
        return self.permanent.p_exact

    @property
    def permanent_q(self) -> Fraction:
        return self.permanent.q_exact

    @property
    def second_p(self) -> Fraction:
        return 1 - self.second_q

    @property
    def second_q(self) -> Fraction:
        return Fraction(self.flip_threshold, SCALE)

    @property
    def second_epsilon(self) -> None:
        """Two permanent answers may differ in every bit."""

    def realized_permanent_epsilon(self) -> Decimal:
        return self.permanent.realized_epsilon()


class MemoizedSymmetricUnaryEncoding(MemoizedUnaryEncoding):
    """``sue`` over flips."""

    name: ClassVar[str] = "sue"
    halves: ClassVar[int] = 2

    def _base(self, epsilon: float) -> UnaryEncoding:
        return SymmetricUnaryEncoding(epsilon, self.d)


class MemoizedOptimizedUnaryEncoding(MemoizedUnaryEncoding):
    """``oue`` over flips."""

    name: ClassVar[str] = "oue"
    halves: ClassVar[int] = 1

    def _base(self, epsilon: float) -> UnaryEncoding:
        return OptimizedUnaryEncoding(epsilon, self.d)


MEMOIZED: Final[dict[str, type[Memoized]]] = {
    cls.name: cls
    for cls in (
        MemoizedBinaryResponse,
        MemoizedResponse,
        MemoizedSymmetricUnaryEncoding,
        MemoizedOptimizedUnaryEncoding,
    )
}
"""The chains by the name of their base oracle, in the order of the table in design section 6."""


def memoized(name: str, epsilon: float, d: int, epsilon_permanent: float) -> Memoized:
    """The chain over a base oracle.

    Args:
        name: rr, grr, sue, oue, or ``auto`` for the best of them by the rule of `dither_protocol.mechanism`.
        epsilon: declared privacy loss of one report alone.
        d: number of values in the domain, 2 to MAX_MEMOIZED_D.
        epsilon_permanent: declared privacy loss of one permanent answer; above ``epsilon``.

    Raises:
        MechanismError: a name without memoised collection, or parameters outside their range.
    """
    if name == "auto":
        chains = (MEMOIZED[each](epsilon, d, epsilon_permanent) for each in ("grr", "sue", "oue"))
        return best(list(chains))
    if name not in MEMOIZED:
        raise MechanismError("memoised collection takes auto, " + ", ".join(MEMOIZED))
    return MEMOIZED[name](epsilon, d, epsilon_permanent)
