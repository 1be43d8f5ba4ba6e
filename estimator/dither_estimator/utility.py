"""How often the published intervals really cover: exactly, by the binomial distribution of the supporting reports.

The other figures of utility need no numpy and stand in `dither_protocol.utility`, where the server has them, too.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, gammaln, ndtri, xlog1py, xlogy

from dither_estimator.intervals import WILSON_FROM, clopper_pearson
from dither_protocol import Mechanism

Floats = NDArray[np.float64]


def exact_coverage(mechanism: Mechanism, shares: ArrayLike, n: int, level: float) -> Floats:
    """Probability that the default interval of a value holds its true share, target "population".

    The number of supporting reports is Binomial(n, pi), pi = q + f (p - q), and the debias is increasing: so it is the
    probability of those counts whose interval holds pi. A Wilson interval holds pi where
    abs(C - n pi) <= z sqrt(n pi (1 - pi)); the few counts with a Clopper-Pearson interval are looked at one by one.

    Args:
        mechanism: what makes the reports.
        shares: true shares, each in [0, 1], of any shape.
        n: number of reports, at least 1.
        level: of the intervals, in (0, 1).

    Returns:
        float64 of the same shape.

    Raises:
        EstimationError: the level is not between 0 and 1.
    """
    held = np.asarray(shares, dtype=np.float64)
    pi = mechanism.q + held * mechanism.gap
    found = np.array([_coverage(n, float(each), level) for each in pi.ravel()])
    return found.reshape(held.shape)


def _coverage(n: int, pi: float, level: float) -> float:
    ends = np.arange(min(WILSON_FROM, n + 1))
    few = np.unique(np.concatenate([ends, n - ends]))
    exact = clopper_pearson(few, n, level)
    covered = _probability(few[(exact.lower <= pi) & (pi <= exact.upper)], n, pi)
    spread = float(-ndtri((1 - level) / 2)) * np.sqrt(n * pi * (1 - pi))
    first = max(WILSON_FROM, int(np.ceil(n * pi - spread)))
    last = min(n - WILSON_FROM, int(np.floor(n * pi + spread)))
    if first <= last:
        covered += float(bdtr(last, n, pi) - bdtr(first - 1, n, pi))
    return min(1.0, covered)


def _probability(counts: NDArray[np.int64], n: int, pi: float) -> float:
    """Pr[Binomial(n, pi) is one of the counts]."""
    ways = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    return float(np.sum(np.exp(ways + xlogy(counts, pi) + xlog1py(n - counts, -pi))))
