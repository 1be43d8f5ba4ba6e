"""Counters of many devices at once, drawn from their exact joint law: what thousands of reports would add up to."""

import numpy as np
from numpy.typing import NDArray

from dither_estimator import local_hashing
from dither_protocol import Mechanism
from dither_protocol.mechanisms import LocalHashing, SubsetSelection, UnaryEncoding
from support.laws import index_law

Ints = NDArray[np.int64]


def draw_counters(made: Mechanism, holders: Ints, noise: np.random.Generator) -> Ints:
    """Counters of one round per repetition.

    Args:
        made: any mechanism.
        holders: how many devices hold each value, shape (repetitions, d).
        noise: source of randomness.

    Returns:
        Counters, shape (repetitions, made.counters).
    """
    if isinstance(made, UnaryEncoding):
        others = holders.sum(axis=1, keepdims=True) - holders
        ones: Ints = noise.binomial(holders, made.p) + noise.binomial(others, made.q)
        return ones
    if isinstance(made, SubsetSelection):
        return _subset(made, holders, noise)
    if isinstance(made, LocalHashing):
        return np.array([_hashing(made, row, noise) for row in holders])
    counters = np.zeros((len(holders), made.counters), dtype=np.int64)
    for v in np.flatnonzero(holders.any(axis=0)):
        counters += noise.multinomial(holders[:, v], index_law(made, int(v)))
    return counters


def _subset(made: SubsetSelection, holders: Ints, noise: np.random.Generator) -> Ints:
    """Column sums of uniform subsets, column by column.

    A row that still has to place k ones in m columns has one in the next with chance k/m, whatever came before:
    so it is enough to know, for the holders of each value, how many rows have k ones left.
    """
    repetitions, d = holders.shape
    inside = noise.binomial(holders, made.p)
    left = np.zeros((repetitions, d, made.w + 1), dtype=np.int64)
    left[:, :, made.w] = holders - inside
    left[:, :, made.w - 1] = inside
    counters = inside.copy()
    ones_left = np.arange(made.w + 1)
    held = np.arange(d)
    for step in range(d - 1):
        ones = noise.binomial(left, np.minimum(1.0, ones_left / (d - 1 - step)))
        left -= ones
        left[:, :, :-1] += ones[:, :, 1:]
        # The columns of the holders of v are all values but v, in order.
        placed = ones.sum(axis=2)
        counters[:, step] += placed[:, held > step].sum(axis=1)
        counters[:, step + 1] += placed[:, held <= step].sum(axis=1)
    return counters


def _hashing(made: LocalHashing, holders: Ints, noise: np.random.Generator) -> Ints:
    values = np.repeat(np.arange(made.d, dtype=np.uint64), holders)
    seeds = noise.integers(0, 1 << 32, size=values.size, dtype=np.uint64)
    kept = noise.random(values.size) < made.p
    steps = np.where(kept, 0, noise.integers(1, made.g, size=values.size)).astype(np.uint64)
    reported = (local_hashing.buckets(seeds, values, made.g) + steps) % np.uint64(made.g)
    return local_hashing.count_support(seeds, reported, made.g, made.d)
