"""Points of PG(t-1, F_r) on arrays; numbered as in `dither_protocol.geometry`.

Coordinates are int64 arrays of shape (number of points, t); r < 2^21, so products of two fit easily.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]


def _offsets(r: int, t: int) -> Ints:
    """Number of the first point with k free coordinates, for k = 0 .. t - 1: (r^k - 1)/(r - 1)."""
    return np.array([(r**k - 1) // (r - 1) for k in range(t)], dtype=np.int64)


def digits(numbers: Ints, r: int, length: int) -> Ints:
    """The base-r digits of every number, most significant first: shape (numbers, length)."""
    powers = r ** np.arange(length - 1, -1, -1, dtype=np.int64)
    return numbers[:, None] // powers % r


def coordinates(numbers: Ints, r: int, t: int) -> Ints:
    """The points with these numbers."""
    offsets = _offsets(r, t)
    free = np.searchsorted(offsets, numbers, side="right") - 1
    vectors = digits(numbers - offsets[free], r, t)  # the digits fill the last `free` places, zeros the rest
    vectors[np.arange(numbers.size), t - 1 - free] = 1
    return vectors


def inverses(r: int) -> Ints:
    """The multiplicative inverse of every residue modulo the prime r; 0 for 0."""
    table = np.zeros(r, dtype=np.int64)
    table[1] = 1
    for value in range(2, r):
        table[value] = (r - r // value) * table[r % value] % r
    return table


def ranks(vectors: Ints, r: int, inverse: Ints) -> Ints:
    """The number of the point that each nonzero vector stands for.

    Args:
        vectors: residues modulo r, shape (n, t).
        r: the prime.
        inverse: from `inverses`.
    """
    t = vectors.shape[1]
    lead = np.argmax(vectors != 0, axis=1)
    scale = inverse[vectors[np.arange(len(vectors)), lead]]
    scaled = vectors * scale[:, None] % r
    scaled[np.arange(len(vectors)), lead] = 0
    powers = r ** np.arange(t - 1, -1, -1, dtype=np.int64)
    numbers: Ints = _offsets(r, t)[t - 1 - lead] + scaled @ powers
    return numbers
