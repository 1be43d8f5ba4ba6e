"""The privacy loss of one report as three points, which is all that composition has to know of it.

For every fresh frequency oracle, any two answers differ by a privacy loss of +epsilon, -epsilon or 0, with
probabilities r e^epsilon, r and the rest. r is `Mechanism.loss_probability`, exact from the sampler's weights.
"""

import math
from dataclasses import dataclass
from typing import Final

from dither_protocol.errors import AccountingError
from dither_protocol.mechanisms.base import Mechanism

MAX_LOSS: Final = 100.0
"""Largest epsilon of one loss, so that e^epsilon and its square are ordinary doubles."""


MIN_DELTA: Final = 1e-100
"""Smallest delta above 0, far above what doubles lose by underflow."""


def check_epsilon(epsilon: object, name: str = "epsilon") -> float:
    """A privacy loss in nats as a float.

    Raises:
        AccountingError: not a finite number above 0.
    """
    if type(epsilon) not in (int, float) or not 0 < epsilon < math.inf:  # type: ignore[operator]
        raise AccountingError(f"{name} must be a finite number above 0")
    return float(epsilon)  # type: ignore[arg-type]


def check_delta(delta: object, name: str = "delta", *, zero: bool = False) -> float:
    """A probability of failure as a float.

    Raises:
        AccountingError: not a number from MIN_DELTA and below 1, nor 0 where ``zero``.
    """
    if type(delta) not in (int, float) or not (MIN_DELTA <= delta < 1 or (zero and delta == 0)):  # type: ignore[operator]
        raise AccountingError(
            f"{name} must be a number from {MIN_DELTA:g} and below 1{', or 0' if zero else ''}"
        )
    return float(delta)  # type: ignore[arg-type]


def check_count(count: object, name: str = "count") -> int:
    """A number of reports.

    Raises:
        AccountingError: not a whole number from 1.
    """
    if type(count) is not int or count < 1:
        raise AccountingError(f"{name} must be a whole number from 1")
    return count


@dataclass(frozen=True, order=True)
class PrivacyLoss:
    """Loss +epsilon with probability r e^epsilon, -epsilon with r, else 0.

    A loss with a larger epsilon, or a larger r at the same epsilon, is at least as bad at every level: its
    hockey-stick divergence r (e^epsilon - e^t) is nowhere below. So the declared epsilon beside an r from weights
    that were rounded toward more noise errs on the safe side; where the two together would exceed probability 1,
    r is cut to 1/(e^epsilon + 1), which nothing exceeds.

    Attributes:
        epsilon: nats, above 0 and at most MAX_LOSS.
        probability: r, above 0 and at most 1/(e^epsilon + 1).

    Raises:
        AccountingError: either is out of its range.
    """

    epsilon: float
    probability: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if self.epsilon > MAX_LOSS:
            raise AccountingError(f"epsilon of one loss must be at most {MAX_LOSS:g}")
        if type(self.probability) is not float or not 0 < self.probability <= worst_probability(self.epsilon):
            raise AccountingError("probability must be a float above 0 and at most 1/(e^epsilon + 1)")

    @classmethod
    def pure(cls, epsilon: float) -> "PrivacyLoss":
        """The worst that anything of pure epsilon can do: binary randomised response.

        Kairouz, Oh, Viswanath, ICML 2015: between two answers, every epsilon-LDP mechanism is a post-processing of it.
        """
        check_epsilon(epsilon)
        return cls(epsilon, worst_probability(epsilon))

    @classmethod
    def of(cls, mechanism: Mechanism) -> "PrivacyLoss":
        """That of one fresh report: declared epsilon, exact probability.

        Raises:
            AccountingError: the mechanism is memoised. Its reports share a draw, so they do not add up as losses of
                their own; for life it costs ``max_distinct_values`` times ``pure(epsilon_permanent)``.
        """
        if hasattr(
            mechanism, "epsilon_permanent"
        ):  # not by class: a device without memoised metrics loads none
            raise AccountingError(
                "memoised reports share a draw; charge epsilon_permanent for each distinct value"
            )
        worst = worst_probability(mechanism.epsilon)
        upward = math.nextafter(float(mechanism.loss_probability_exact), 1.0)
        return cls(mechanism.epsilon, min(upward, worst))


def worst_probability(epsilon: float) -> float:
    """1/(e^epsilon + 1), the largest r that there is; epsilon in nats, above 0."""
    small = math.exp(-epsilon)
    return small / (1 + small)
