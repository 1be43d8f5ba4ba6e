"""From counters to support counts where a report is a number with algebraic meaning.

`hadamard`: the fast Walsh-Hadamard transform. `projective`: C_v is the sum of a histogram over the points
orthogonal to v, a Radon transform over F_r, by Fourier transforms (both are exact: see below).
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither_estimator import geometry

Counts: TypeAlias = NDArray[np.int64]

_DIGIT_BITS: Final = 24
"""Histograms are transformed in digits of 24 bits. With at most 2^20 points, sums stay below 2^44, where the
rounding error of a double-precision transform is thousands of times smaller than one half."""


def walsh_hadamard(values: Counts) -> Counts:
    """Sum of (-1)^popcount(x & y) values[y] over y, for every x; int64 of a length that is a power of two."""
    out = values.copy()
    half = 1
    while half < out.size:
        pairs = out.reshape(-1, 2, half)
        upper = pairs[:, 0] + pairs[:, 1]
        pairs[:, 1] = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] = upper
        half *= 2
    return out


def orthogonal_sums(histogram: Counts, r: int, t: int, d: int) -> Counts:
    """Sum of the histogram over the points orthogonal to v, for the first d points v of PG(t-1, F_r).

    Args:
        histogram: int64 by point, not negative.
        r: the prime.
        t: number of coordinates, at least 2.
        d: how many points are asked for.
    """
    total = np.zeros(d, dtype=np.int64)
    shift = 0
    rest = histogram
    while rest.any():
        low = rest & ((1 << _DIGIT_BITS) - 1)
        total += _orthogonal_sums(low, r, t, d) << shift
        rest = rest >> _DIGIT_BITS
        shift += _DIGIT_BITS
    return total


def _orthogonal_sums(histogram: Counts, r: int, t: int, d: int) -> Counts:
    """For the first d points of PG(t-1, F_r), by recursion over the dimension.

    The first points have leading coordinate 0 and are those of PG(t-2, F_r); the others are (1, y) for all y of
    F_r^(t-1). Whether (s, v) and (1, y) are orthogonal depends on <v, y> = -s alone, and the sums over such y are
    found by Fourier transform. The part with leading 0 is the same problem with one coordinate less.
    """
    if t == 1:
        return np.zeros(d, dtype=np.int64)  # the one point (1) is not orthogonal to itself
    border = (r ** (t - 1) - 1) // (r - 1)
    flat, affine = histogram[:border], histogram[border:]
    below = _orthogonal_sums(flat, r, t - 1, border)
    spectrum = np.fft.fftn(affine.reshape((r,) * (t - 1))).ravel()
    heads = geometry.coordinates(np.arange(min(d, border), dtype=np.int64), r, t - 1)
    sums_flat = below[: len(heads)] + _plane_sums(spectrum, heads, 0, r)
    if d <= border:
        return sums_flat
    tails = geometry.digits(np.arange(d - border, dtype=np.int64), r, t - 1)
    sums_affine = _plane_sums(spectrum, tails, 1, r)
    # (1, v) and (0, y) are orthogonal where v and y are; every y is orthogonal to v = 0.
    sums_affine[0] += flat.sum()
    sums_affine[1:] += below[geometry.ranks(tails[1:], r, geometry.inverses(r))]
    return np.concatenate([sums_flat, sums_affine])


def _plane_sums(spectrum: NDArray[np.complex128], vectors: Counts, s: int, r: int) -> Counts:
    """Sum of the transformed function over all y with <v, y> = -s mod r, for every row v of ``vectors``.

    By the characters of F_r: (1/r) sum over c of w^(c s) times the transform at -c v (or at c v with the other sign;
    the terms of c and -c are conjugate, so half of them are enough).
    """
    powers = r ** np.arange(vectors.shape[1] - 1, -1, -1, dtype=np.int64)
    sums = np.full(len(vectors), spectrum[0].real)
    half = r // 2 if r > 2 else 1
    for c in range(1, half + 1):
        # numpy's transform has w = exp(-2 pi i / r): at c v it is the sum of f(y) exp(-2 pi i c <v, y> / r).
        values = spectrum[(c * vectors % r) @ powers] * np.exp(-2j * np.pi * (c * s % r) / r)
        sums += values.real if r == 2 else 2 * values.real
    return np.rint(sums / r).astype(np.int64)
