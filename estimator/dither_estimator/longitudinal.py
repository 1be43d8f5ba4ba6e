"""Several memoised reports of one device: what averaging them leaves, and intervals that say so.

A memoised report is a fresh round over a permanent answer. The reports of one device about one value share that
answer, so averaging takes away the noise of the fresh rounds only; the permanent round is a floor. (Independent
draws would have a variance that falls with every report, and intervals by it would not cover.)

Let r be the most reports that a device may have among n. Its k <= r reports support v in a sum of variance
k F + k^2 G <= k (F + r G), with F = p1 p2(1-p2) + (1-p1) q2(1-q2) of the fresh round and G = p1(1-p1) (p2-q2)^2 of the
permanent one (p1, q1 of the permanent round, p2, q2 of the second; q1 in the place of p1 where the device does not hold
v). Over independent devices this gives Var(C_v) <= n (F + r G), and F + G = p(1-p) is the variance of one report. So
n reports are worth n / D independent ones, D = (F + r G) / (F + G), the design effect (Kish, Survey Sampling, 1965);
it lies in [1, r], and the greater one of the holders' and the others' is taken. Answers that change cost nothing more:
the permanent answers to different values are independent.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from dither_estimator.errors import EstimationError
from dither_estimator.estimation import Estimates, estimate, estimate_of_support
from dither_protocol.mechanisms import Memoized


def design_effect(mechanism: Memoized, repeats: int) -> float:
    """How many reports are worth one independent report, where a device may have ``repeats`` of them; at most that.

    Raises:
        EstimationError: fewer than one.
    """
    return max(_variance(mechanism, held, repeats) / _variance(mechanism, held, 1) for held in (True, False))


def _variance(mechanism: Memoized, held: bool, repeats: int) -> float:
    """F + r G: the share of one report in the variance of C_v, where its device holds v or not."""
    if type(repeats) is not int or repeats < 1:
        raise EstimationError("repeats must be a whole number from 1")
    one = float(mechanism.permanent_p if held else mechanism.permanent_q)
    p, q = float(mechanism.second_p), float(mechanism.second_q)
    fresh = one * p * (1 - p) + (1 - one) * q * (1 - q)
    return fresh + repeats * one * (1 - one) * (p - q) ** 2


def estimate_repeated(
    mechanism: Memoized, counters: ArrayLike, n: int, repeats: int, level: float = 0.95
) -> Estimates:
    """Estimate the share of every value among n memoised reports of which one device may have several.

    Target "reporters". The estimate is that of `estimate`; standard error, interval and presence are those of so
    many independent reports as these are worth at least.

    Args:
        mechanism: both rounds.
        counters: whole numbers of shape (mechanism.counters,), summed over the windows.
        n: number of reports in all windows.
        repeats: most reports of one device among them, from 1.
        level: of the intervals, in (0, 1).

    Raises:
        EstimationError: as `estimate`, or repeats below 1.
    """
    return widened(estimate(mechanism, counters, n, level, "reporters"), mechanism, repeats)


def widened(plain: Estimates, mechanism: Memoized, repeats: int) -> Estimates:
    """The same estimates where one device may have ``repeats`` of the reports.

    Raises:
        EstimationError: repeats below 1.
    """
    n, effect = plain.n, design_effect(mechanism, repeats)
    if n == 0 or repeats == 1:
        return plain
    worth = max(1, int(n / effect))
    fewer = np.rint(plain.supporters * (worth / n)).astype(np.int64)
    short = estimate_of_support(
        mechanism, fewer, worth, plain.level, plain.target, simultaneous=plain.simultaneous
    )
    shares = np.clip(plain.estimate, 0.0, 1.0)
    held, other = (_variance(mechanism, holds, repeats) for holds in (True, False))
    return replace(
        plain,
        std_error=np.sqrt((shares * held + (1 - shares) * other) / n) / mechanism.gap,
        # The rounding of the counts moves an interval by less than half a report; it still holds the estimate.
        lower=np.minimum(short.lower, plain.estimate),
        upper=np.maximum(short.upper, plain.estimate),
        present=short.present,
        method=short.method,
    )


def std_error_floor(mechanism: Memoized, devices: float, share: float) -> float:
    """What stays of the standard error, target "reporters", however many reports each device sends."""
    return math.sqrt(mechanism.n_floor(share) / devices)
