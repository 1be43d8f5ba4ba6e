"""Local hashing on arrays: the family of `dither_protocol.hashing`, and counting by it.

Counting asks for every report and every value whether the value's hash is the reported bucket. With
x_v = a v + b mod 2^64 that is one comparison: the bucket is an interval of x, so shifting b by the interval's
start makes it x_v < width. Walking over the values costs one addition and one comparison per report and value,
on blocks of reports that stay in the cache. Where a block is short the calls of numpy would cost more than what they
do, so there many values are taken at once.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither_protocol.hashing import DROPPED_BITS, GOLDEN, HASH_BITS, MIX_1, MIX_2

Words: TypeAlias = NDArray[np.uint64]

_BLOCK_REPORTS: Final = 4_096
_FEW_REPORTS: Final = 1_024
"""In blocks of fewer, several values are taken at once; from here on that would only leave the cache."""
_TILE: Final = 16_384  # numbers x in one step over several values: 128 KiB


def _mix(z: Words) -> Words:
    z = (z ^ z >> np.uint64(30)) * np.uint64(MIX_1)
    z = (z ^ z >> np.uint64(27)) * np.uint64(MIX_2)
    return z ^ z >> np.uint64(31)


def coefficients(seeds: Words) -> tuple[Words, Words]:
    """The numbers (a, b) of every seed, uint64 arrays of the same shape; arithmetic wraps as it should."""
    doubled = seeds * np.uint64(2)
    return _mix((doubled + np.uint64(1)) * np.uint64(GOLDEN)), _mix(
        (doubled + np.uint64(2)) * np.uint64(GOLDEN)
    )


def buckets(seeds: Words, values: Words, g: int) -> Words:
    """H_seed(value) for every pair of a seed and a value, uint64 in [0, g)."""
    a, b = coefficients(seeds)
    high_part = np.uint64(24)  # 49 bits times g would not fit: multiply the 25 high and the 24 low bits apart
    hashed = (a * values + b) >> np.uint64(DROPPED_BITS)
    high, low = hashed >> high_part, hashed & np.uint64((1 << 24) - 1)
    factor = np.uint64(g)
    return (high * factor + (low * factor >> high_part)) >> np.uint64(HASH_BITS - 24)


def _bucket_starts(numbers: Words, g: int) -> Words:
    """ceil(number 2^49 / g) 2^15 for every bucket number in [0, g]: where the bucket's interval of x begins.

    The division is done in two steps of 35 and 14 bits, since number 2^49 does not fit. For number = g the
    result is 2^64, which wraps to 0, as interval ends may.
    """
    divisor = np.uint64(g)
    first = numbers << np.uint64(35)  # numbers < 2^29 where epsilon <= 20
    quotient, rest = first // divisor, first % divisor
    second = rest << np.uint64(14)
    quotient = (quotient << np.uint64(14)) + second // divisor
    quotient += (second % divisor > 0).astype(np.uint64)
    return quotient << np.uint64(DROPPED_BITS)


def count_support(seeds: Words, reported: Words, g: int, d: int) -> NDArray[np.int64]:
    """How many reports each value supports, int64 of shape (d,).

    Args:
        seeds: uint64, 32 bits each.
        reported: uint64, the bucket of each report, in [0, g).
        g: number of buckets.
        d: number of values.
    """
    a, b = coefficients(seeds)
    starts = _bucket_starts(reported, g)
    widths = _bucket_starts(reported + np.uint64(1), g) - starts
    offsets = b - starts
    totals = np.zeros(d, dtype=np.int64)
    for begin in range(0, seeds.size, _BLOCK_REPORTS):
        block = slice(begin, begin + _BLOCK_REPORTS)
        add = _add_few if offsets[block].size < _FEW_REPORTS else _add_many
        add(totals, offsets[block], a[block], widths[block])
    return totals


def _add_many(totals: NDArray[np.int64], start: Words, step: Words, width: Words) -> None:
    """Add to every value v the reports with start + v step < width, value by value."""
    x = start.copy()
    inside = np.empty(x.size, dtype=np.bool_)
    for value in range(totals.size):
        np.less(x, width, out=inside)
        totals[value] += np.count_nonzero(inside)
        np.add(x, step, out=x)


def _add_few(totals: NDArray[np.int64], start: Words, step: Words, width: Words) -> None:
    """The same as `_add_many`, many values at once: one row of x for each. Fewer than 2^16 reports."""
    rows = min(totals.size, _TILE // start.size)
    x = start + step * np.arange(rows, dtype=np.uint64)[:, np.newaxis]
    jump = step * np.uint64(rows)
    inside = np.empty(x.shape, dtype=np.bool_)
    for value in range(0, totals.size, rows):
        np.less(x, width, out=inside)
        found = inside.view(np.uint8).sum(axis=1, dtype=np.uint16)
        totals[value : value + rows] += found[: totals.size - value]
        np.add(x, jump, out=x)
