"""Whether the estimates of a calibration metric are what its truth lets them be. Pure.

A count of supporting reports is Binomial(n, pi) with pi = q + f (p - q) exactly, over several windows together, too:
each device draws answer and noise anew for every report. So one limit, without any approximation, says when chance is
no explanation: then devices, counting or debias are broken, or reports are made up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dither_protocol.registry import Metric
from dither_server.documents import Estimate

FALSE_ALARM: Final = 1e-6
"""How often a faultless service may be blamed, each time that it is looked at by reports of its own."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The estimates of a calibration metric beside its truth.

    Attributes:
        windows: labels of the windows, as the estimates came.
        covered: how many of their intervals hold the true share ...
        values: ... of so many.
        missed: labels of the metric whose estimates, of all windows together, chance does not explain.
    """

    windows: Sequence[str]
    covered: int
    values: int
    missed: Sequence[str]


def calibration_of(metric: Metric, estimates: Sequence[Estimate]) -> Calibration | None:
    """Judge the estimates of one version of a metric.

    Args:
        metric: it.
        estimates: of any versions and windows, over all dimensions; others than those of this version, and suppressed
            ones, are left out.

    Returns:
        None where it is no calibration metric, or nothing is left.
    """
    truth = metric.true_shares
    fitting = [each for each in estimates if _fits(metric, each)]
    if truth is None or not fitting:
        return None
    covers = [
        row.interval[0] <= share <= row.interval[1]
        for each in fitting
        for row, share in zip(each.values, truth, strict=True)
    ]
    n = sum(each.n for each in fitting)
    return Calibration(
        windows=[each.key for each in fitting],
        covered=sum(covers),
        values=len(covers),
        missed=[
            label
            for index, (label, share) in enumerate(zip(metric.labels, truth, strict=True))
            if _explained(metric, _supporters(metric, fitting, index), n, share) < FALSE_ALARM / len(truth)
        ],
    )


def _fits(metric: Metric, each: Estimate) -> bool:
    return (
        not each.suppressed
        and each.version == metric.version
        and each.rollup is None
        and [row.value for row in each.values] == list(metric.labels)
    )


def _supporters(metric: Metric, estimates: Sequence[Estimate], index: int) -> int:
    """How many reports would give these estimates of one value: so that a wrong debias shows as a wrong count does."""
    oracle = metric.mechanism
    return sum(
        min(each.n, max(0, round(each.n * (oracle.q + each.values[index].estimate * oracle.gap))))
        for each in estimates
    )


def _explained(metric: Metric, count: int, n: int, share: float) -> float:
    """Upper bound of the probability of a count at least so far off on either side."""
    pi = metric.mechanism.q + share * metric.mechanism.gap
    return min(1.0, 2 * binomial_tail_bound(count, n, pi))


def binomial_tail_bound(count: int, n: int, pi: float) -> float:
    """Upper bound of Pr[X >= count] above the mean of X ~ Binomial(n, pi), of Pr[X <= count] below it.

    Beyond the mean each probability is at most r times the one before, r the ratio at the count itself: the tail is at
    most that of a geometric series (Klar, Probability in the Engineering and Informational Sciences 14, 2000). Close
    where it matters: a few per cent above the exact value at one in a million.

    Args:
        count: in [0, n].
        n: at least 1.
        pi: in (0, 1).
    """
    above = count > n * pi
    more, less = (n - count) * pi, count * (1 - pi)
    ratio = more / ((count + 1) * (1 - pi)) if above else less / ((n - count + 1) * pi)
    if ratio >= 1 or count == n * pi:
        return 1.0
    ways = math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1)
    probability = math.exp(ways + count * math.log(pi) + (n - count) * math.log1p(-pi))
    return min(1.0, probability / (1 - ratio))
