"""``auto``: which mechanism serves (epsilon, d) best, by the rule of design section 6."""

from collections.abc import Iterable
from typing import Final, TypeVar

from dither_protocol.mechanisms.base import Mechanism

MAX_AUTO_REPORT_BITS: Final = 8_192
MAX_AUTO_COUNTERS: Final = 1 << 20
TOLERANCE: Final = 1.05
"""Mechanisms whose variance is within 5 % of the best are as good as it: what is cheaper on the wire wins."""


_Oracle = TypeVar("_Oracle", bound=Mechanism)


def best(candidates: Iterable[_Oracle]) -> _Oracle:
    """The mechanism that ``auto`` stands for.

    The variance of every candidate at f = 1/d; none above 8,192 report bits or 2^20 counters; those within 5 % of
    the best; of these the fewest report bits, then the fewest counters, then the first.

    Args:
        candidates: all for one (epsilon, d), in the order of the table in design section 6; at least one within
            the limits.
    """
    allowed = [
        each
        for each in candidates
        if each.report_bits <= MAX_AUTO_REPORT_BITS and each.counters <= MAX_AUTO_COUNTERS
    ]
    variance = [each.n_variance(1 / each.d) for each in allowed]
    limit = min(variance) * TOLERANCE
    good = [each for each, noise in zip(allowed, variance, strict=True) if noise <= limit]
    return min(good, key=lambda each: (each.report_bits, each.counters))
