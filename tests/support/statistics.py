"""Limits of statistical tests, and laws to compare samples with.

Every test of a sample accepts the truth and rejects a law nearby: a test that cannot fail says nothing
(the idea is that of Tumult Core's noise distribution tests).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, chdtri, ndtri, stdtrit

FALSE_ALARM = 1e-6
"""Chance that a right program fails one test. With some hundred tests, run a thousand times a year, one false
alarm in about ten years."""

SHIFT = 0.3
"""How far off a law is that must be rejected: 30 % of the rarer side of a probability."""

RARE_EVENTS = 2_500
"""Expected count of the rarest event. A shift of 30 % is then sqrt(2500) * 0.3 = 15 standard deviations, beyond
a limit of about 7 (chi-square, a million to one, 15 degrees of freedom) by more than any false alarm reaches."""


def sample_size(rarest: float, categories: int = 1) -> int:
    """Number of draws at which an event of this probability is expected RARE_EVENTS times.

    Twice as often where a chi-square test has 16 categories or more, and so on: its limit grows with them.
    """
    return math.ceil(RARE_EVENTS / rarest) * (1 + categories // 17)


def shifted(probability: float, shift: float) -> float:
    """The probability with its rarer side changed by the relative ``shift``."""
    rare = min(probability, 1 - probability) * (1 + shift)
    return rare if probability <= 0.5 else 1 - rare


def follows_law(counts: NDArray[np.int64], law: NDArray[np.float64], cases: int = 1) -> bool:
    """Pearson's chi-square test of independent draws against a law over the same categories.

    ``cases`` is the number of such comparisons that share the false alarm.
    """
    expected = counts.sum() * law
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return statistic <= float(chdtri(counts.size - 1, FALSE_ALARM / cases))


def follow_chances(counts: NDArray[np.int64], n: int, chances: NDArray[np.float64], cases: int = 1) -> bool:
    """Exact two-sided binomial tests of several counts of n draws, the false alarm shared among them."""
    tails = np.minimum(bdtr(counts, n, chances), bdtrc(counts - 1, n, chances))
    return bool((2 * tails >= FALSE_ALARM / cases / counts.size).all())


def mean_is(sample: NDArray[np.float64], expected: float, cases: int = 1) -> bool:
    """Whether the mean of many independent draws is as expected: a normal limit, by the draws' own spread.

    ``cases`` is the number of such comparisons that share the false alarm. Draws that do not spread at all must
    be as expected up to rounding.
    """
    spread = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    limit = -float(ndtri(FALSE_ALARM / cases / 2)) * spread + 1e-12 * abs(expected)
    return abs(float(sample.mean()) - expected) <= limit


def mean_of_few_is(sample: NDArray[np.float64], expected: float) -> bool:
    """`mean_is` for some dozen draws that are nearly normal: Student's limit, by the draws' own spread."""
    return abs(float(sample.mean()) - expected) <= limit_of_few(sample)


def limit_of_few(sample: NDArray[np.float64]) -> float:
    """How far the mean of some dozen nearly normal draws may lie from what is expected."""
    spread = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    return -float(stdtrit(sample.size - 1, FALSE_ALARM / 2)) * spread


def bit_rows(packed: Sequence[bytes], d: int) -> NDArray[np.int64]:
    """Packed bit reports as zeros and ones, shape (reports, d)."""
    raw = np.frombuffer(b"".join(packed), dtype=np.uint8).reshape(len(packed), -1)
    return np.unpackbits(raw, axis=1, count=d, bitorder="little").astype(np.int64)
