"""Utility of an estimate: how far off it will be by prediction and, where the truth is known, how far off it is. Pure.

Four figures, each of one estimate over all its values:

- mean absolute error: the mean over the values of abs(estimate - true share), in shares;
- relative error: the median of abs(estimate - true share) / true share over the *top values*: the fewest that together
  hold `TOP_SHARE` of everything. Of a rare value the noise makes any multiple, and tells nothing about the metric;
- coverage: how many of the intervals hold the true share;
- noise ratio, the price of privacy: the root mean squared error over the one that n true answers would have, which
  sampling alone gives: sqrt(f (1-f) / n) for a share f. At a ratio r the reports tell as much as n / r^2 true answers
  would: the effective sample size of Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private
  estimation", JASA 113, 2018. It does not depend on n.

Predicted ones follow from the variance of the pure-protocol estimate (Wang et al., USENIX Security 2017; design section
6); p, q and p - q are the mechanism's (invariant C5).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dither_protocol.mechanisms import Mechanism

TOP_SHARE: Final = 0.9
"""Share of all answers that the values of the relative error hold together."""

POPULATION: Final = "population"

_MEAN_OF_NORMAL: Final = math.sqrt(2 / math.pi)
_ROUNDING: Final = 1e-12


@dataclass(frozen=True, slots=True)
class PredictedUtility:
    """What is to be expected of an estimate.

    Attributes:
        mean_absolute_error: in shares.
        relative_error: median over the top values, a factor.
        coverage: the level that the intervals state. Exactly they cover a little more or less, as
            `dither_estimator.utility.exact_coverage` computes it.
        noise_ratio: the price of privacy; None where all devices hold one value, since n true answers have no error.
    """

    mean_absolute_error: float
    relative_error: float
    coverage: float
    noise_ratio: float | None


@dataclass(frozen=True, slots=True)
class RealUtility:
    """What came out, beside a known truth.

    Attributes:
        mean_absolute_error: in shares.
        relative_error: median over the top values of the truth.
        covered: how many of the intervals hold the true share ...
        values: ... of so many.
        noise_ratio: root mean squared error over that of n true answers; by chance above or below the predicted one.
    """

    mean_absolute_error: float
    relative_error: float
    covered: int
    values: int
    noise_ratio: float | None

    @property
    def coverage(self) -> float:
        """Share of the intervals that hold the truth."""
        return self.covered / self.values


def predicted_utility(
    mechanism: Mechanism, shares: Sequence[float], n: int, level: float, target: str = POPULATION
) -> PredictedUtility:
    """What n reports will tell.

    Absolute errors are those of a normal distribution, E abs(N(0, s)) = s sqrt(2/pi): right within a per cent from
    some tens of supporting reports on.

    Args:
        mechanism: what makes the reports.
        shares: true shares, or what is known of them, of shape (d,): in [0, 1] and of sum 1.
        n: number of reports, at least 1.
        level: of the intervals.
        target: "population", or "reporters" whose true shares carry no error of sampling.
    """
    errors = [_MEAN_OF_NORMAL * math.sqrt(_n_variance(mechanism, f, target) / n) for f in shares]
    return PredictedUtility(
        mean_absolute_error=statistics.fmean(errors),
        relative_error=_relative_error(errors, shares),
        coverage=level,
        noise_ratio=_ratio(statistics.fmean(_n_variance(mechanism, f, POPULATION) for f in shares), shares),
    )


def real_utility(
    estimates: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    truth: Sequence[float],
    n: int,
) -> RealUtility:
    """What n reports told.

    Args:
        estimates: the unbiased ones, as they are, of shape (d,).
        intervals: the raw ones, (lower, upper) for each.
        truth: true shares.
        n: number of reports, at least 1.
    """
    errors = [abs(estimate - share) for estimate, share in zip(estimates, truth, strict=True)]
    covers = [lower <= share <= upper for (lower, upper), share in zip(intervals, truth, strict=True)]
    return RealUtility(
        mean_absolute_error=statistics.fmean(errors),
        relative_error=_relative_error(errors, truth),
        covered=sum(covers),
        values=len(covers),
        noise_ratio=_ratio(n * statistics.fmean(error**2 for error in errors), truth),
    )


def top_values(shares: Sequence[float]) -> list[int]:
    """Indices of the fewest values that together hold `TOP_SHARE` of everything, the largest first."""
    wanted, found, held = TOP_SHARE * math.fsum(shares), list[int](), 0.0
    for index in sorted(range(len(shares)), key=lambda index: -shares[index]):
        if found and held >= wanted - _ROUNDING:
            break
        found.append(index)
        held += shares[index]
    return found


def _relative_error(errors: Sequence[float], shares: Sequence[float]) -> float:
    return statistics.median(errors[index] / shares[index] for index in top_values(shares))


def _n_variance(mechanism: Mechanism, f: float, target: str) -> float:
    """Variance of the estimate for a target, times n (design section 6)."""
    if target != POPULATION:
        return mechanism.n_variance(f)
    support = mechanism.q + f * mechanism.gap
    return support * (1 - support) / mechanism.gap**2


def _ratio(n_variance: float, shares: Sequence[float]) -> float | None:
    """Root of a mean variance over that of true answers, both times n."""
    sampling = statistics.fmean(f * (1 - f) for f in shares)
    return math.sqrt(n_variance / sampling) if sampling > _ROUNDING else None
