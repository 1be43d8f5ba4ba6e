"""Confidence intervals for C_v/n, and their way through the debias.

The number of supporting reports C_v is binomial for target "population", and a sum of two binomials of the
same mean, hence less spread, for target "reporters". So an interval for a binomial proportion is right for both.

Plug-in Wald intervals are not offered: near 0 they cover far less often than they say (Brown, Cai, DasGupta,
Statistical Science 16, 2001). Of scipy only `scipy.special` is used: `scipy.stats` takes 0.8 s to import.
"""

from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv, ndtri

from dither_estimator.errors import EstimationError
from dither_protocol import Mechanism

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]

CLOPPER_PEARSON: Final = "clopper-pearson"
WILSON: Final = "wilson"

WILSON_FROM: Final = 10
"""From so many supporting and so many other reports on, `default_interval` takes the narrower Wilson."""


_NUDGE: Final = 1 + 1e-12
"""Where a parameter is exactly 1,000, scipy 1.17 gives another quantile from about n = 10^7 on: at 10^9, lower
ends above the estimate. A hair beside 1,000 it is right to twelve digits."""

_INVERSE_UP_TO: Final = 2**40
"""Up to so many trials scipy's inverse of the incomplete beta function keeps its digits. Far beyond, where both
counts are large, it loses them all (NaN from about 2^54), while Clopper-Pearson and Wilson have become one."""

_WILSON_IN_ITS_PLACE_FROM: Final = 1_000


class Interval(NamedTuple):
    """Two-sided intervals, one per value.

    Attributes:
        lower: lower ends, float64.
        upper: upper ends, float64, same shape.
        method: "clopper-pearson" or "wilson" for each, same shape.
    """

    lower: Floats
    upper: Floats
    method: NDArray[np.str_]


def _alpha(level: float) -> float:
    """The probability left outside, after a check of the level."""
    if not isinstance(level, int | float) or not 0 < level < 1:
        raise EstimationError("the level must be a number between 0 and 1, both excluded")
    return 1 - level


def clopper_pearson(successes: Counts, n: int, level: float) -> Interval:
    """The exact interval of Clopper and Pearson, Biometrika 26, 1934: it covers at least at its level.

    Args:
        successes: int64 of any shape, each in [0, n].
        n: number of trials; 0 gives [0, 1]. Reliable up to 2^40.
        level: in (0, 1).

    Raises:
        EstimationError: the level is not between 0 and 1.
    """
    return _clopper_pearson(successes, n, _alpha(level))


def _clopper_pearson(successes: Counts, n: int, alpha: float) -> Interval:
    failures = n - successes  # in integers: floats would lose the last ones of a large n
    low = betaincinv(np.maximum(successes, 1) * _NUDGE, (failures + 1.0) * _NUDGE, alpha / 2)
    high = betainccinv((successes + 1.0) * _NUDGE, np.maximum(failures, 1) * _NUDGE, alpha / 2)
    lower = np.where(successes == 0, 0.0, low)
    upper = np.where(failures == 0, 1.0, high)
    return Interval(lower, upper, np.full(successes.shape, CLOPPER_PEARSON))


def wilson(successes: Counts, n: int, level: float) -> Interval:
    """The score interval of Wilson, JASA 22, 1927. Arguments and errors as for `clopper_pearson`."""
    return _wilson(successes, n, _alpha(level))


def _wilson(successes: Counts, n: int, alpha: float) -> Interval:
    z = -float(ndtri(alpha / 2))
    method = np.full(successes.shape, WILSON)
    if n == 0:
        return Interval(np.zeros(successes.shape), np.ones(successes.shape), method)
    share = successes / n
    spread = z * z / n
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * np.sqrt(share * ((n - successes) / n) / n + spread / (4 * n))
    # Rounding may put an end one unit beyond the share or beyond [0, 1], where it never truly lies.
    return Interval(np.clip(middle - half, 0.0, share), np.clip(middle + half, share, 1.0), method)


def default_interval(successes: Counts, n: int, level: float) -> Interval:
    """Wilson where at least 10 reports support the value and 10 do not, Clopper-Pearson elsewhere.

    There Wilson covers at its level within a percent or two, and is narrower. Arguments and errors as for
    `clopper_pearson`.
    """
    return _mixed(successes, n, _alpha(level), WILSON_FROM)


def simultaneous_interval(successes: Counts, n: int, level: float) -> Interval:
    """Clopper-Pearson intervals that cover all together at the level, by Bonferroni's inequality.

    Each of the ``successes.size`` intervals gets an equal share of the probability left outside. Arguments and
    errors as for `clopper_pearson`. (Beyond 2^40 trials large counts get Wilson, and ``method`` says so.)
    """
    alpha = _alpha(level) / max(1, successes.size)
    if n > _INVERSE_UP_TO:
        return _mixed(successes, n, alpha, _WILSON_IN_ITS_PLACE_FROM)
    return _clopper_pearson(successes, n, alpha)


def _mixed(successes: Counts, n: int, alpha: float, wilson_from: int) -> Interval:
    score = _wilson(successes, n, alpha)
    few = np.minimum(successes, n - successes) < wilson_from
    exact = _clopper_pearson(successes[few], n, alpha)  # of these alone: it takes fifty times as long
    lower, upper = score.lower, score.upper
    lower[few], upper[few] = exact.lower, exact.upper
    return Interval(lower, upper, np.where(few, CLOPPER_PEARSON, WILSON))


def debiased(mechanism: Mechanism, interval: Interval) -> Interval:
    """The interval on the scale of frequencies: x -> (x - q)/(p - q), an increasing map.

    Raw: not cut to [0, 1] (invariant C4). That an end lies outside says how little the reports say.
    """
    lower, upper = ((end - mechanism.q) / mechanism.gap for end in interval[:2])
    return Interval(lower, upper, interval.method)
