"""Vectorised samplers: the same law and the same wire form as the SDK's, for many devices at once.

They use the same integer weights and operating-system randomness, so a simulated report is as random as a
real one. A test holds both against the same exact law.
"""

import base64
import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from dither_estimator import geometry, local_hashing
from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms import (
    Data,
    GeneralizedRandomizedResponse,
    HadamardResponse,
    LocalHashing,
    Mechanism,
    Memoized,
    ProjectiveGeometryResponse,
    SubsetSelection,
    UnaryEncoding,
)
from dither_protocol.mechanisms import mechanism as named
from dither_protocol.mechanisms.forms import SEEDS

_MAX_CHUNK_BYTES: Final = 64 << 20
_HIGHEST: Final = (1 << 63) + 1

Indexes = npt.NDArray[np.int64]


def randomize_many(mechanism: Mechanism, indexes: Indexes) -> Sequence[Data]:
    """Randomise one answer of each device.

    Args:
        mechanism: the oracle.
        indexes: int64 array of true values, each in [0, d).

    Returns:
        The wire ``data`` of each device, in order.

    Raises:
        MechanismError: an index outside the domain, or no sampler of this name.
    """
    if indexes.size and not (indexes.min() >= 0 and indexes.max() < mechanism.d):
        raise MechanismError(f"indexes must be in [0, {mechanism.d})")
    if isinstance(
        mechanism, Memoized
    ):  # one report of a device that never reports again follows the base oracle's law
        mechanism = named(mechanism.name, mechanism.epsilon, mechanism.d)
    sampler = _SAMPLERS.get(mechanism.name)
    if sampler is None:
        raise MechanismError("there is no vectorised sampler for this mechanism")
    return sampler(mechanism, indexes)


def uniform_below(bound: int, count: int) -> npt.NDArray[np.uint64]:
    """``count`` uniform integers in [0, bound), exact, by rejection of 64-bit draws; bound <= 2^63."""
    limit = np.uint64((1 << 64) // bound * bound - 1)
    accepted = np.empty(0, dtype=np.uint64)
    while accepted.size < count:
        fresh = np.frombuffer(os.urandom(8 * (count - accepted.size)), dtype=np.uint64)
        accepted = np.concatenate([accepted, fresh[fresh <= limit]])
    return accepted % np.uint64(bound)


def _shifts(truth_weight: int, lie_weight: int, total_weight: int, count: int) -> npt.NDArray[np.uint64]:
    """Steps away from the truth: 0 with weight truth_weight, each other one with weight lie_weight."""
    excess = np.uint64(truth_weight - lie_weight)
    draws = uniform_below(total_weight, count)
    return np.where(draws > excess, draws - excess, np.uint64(0)) // np.uint64(lie_weight)


def _direct(mechanism: Mechanism, indexes: Indexes) -> list[int]:
    grr = cast(GeneralizedRandomizedResponse, mechanism)
    shifts = _shifts(grr.truth_weight, grr.lie_weight, grr.total_weight, indexes.size)
    return cast(list[int], ((indexes + shifts.astype(np.int64)) % grr.d).tolist())


def _unary(mechanism: Mechanism, indexes: Indexes) -> list[str]:
    unary = cast(UnaryEncoding, mechanism)
    chunk = max(1, _MAX_CHUNK_BYTES // (4 * unary.d))
    data: list[str] = []
    for start in range(0, indexes.size, chunk):
        part = indexes[start : start + chunk]
        draws = np.frombuffer(os.urandom(4 * part.size * unary.d), dtype=np.uint32).reshape(
            part.size, unary.d
        )
        thresholds = np.full((part.size, unary.d), unary.noise_threshold, dtype=np.uint64)
        thresholds[np.arange(part.size), part] = unary.keep_threshold
        data += _texts(draws < thresholds)
    return data


def _with_probability(p: Fraction, count: int) -> npt.NDArray[np.bool_]:
    """``count`` independent events of probability p, to within 2^-64: near enough for a simulation."""
    draws = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    return draws < np.uint64(p.numerator * (1 << 64) // p.denominator)


def _texts(bits: npt.NDArray[np.bool_]) -> list[str]:
    return base64url_rows(np.packbits(bits, axis=1, bitorder="little"))


def base64url_rows(rows: npt.NDArray[np.uint8]) -> list[str]:
    """Each row of bytes as unpadded base64url, all encoded at once; uint8 of shape (n, k)."""
    count, size = rows.shape
    whole = -(-size // 3) * 3  # zeros up to whole letters change no letter that is kept
    padded = np.zeros((count, whole), dtype=np.uint8)
    padded[:, :size] = rows
    letters = base64.urlsafe_b64encode(padded.tobytes()).decode("ascii")
    kept, step = (size * 4 + 2) // 3, whole // 3 * 4
    return [letters[at : at + kept] for at in range(0, len(letters), step)]


def _subset(mechanism: Mechanism, indexes: Indexes) -> list[str]:
    """The w values of the lowest random keys; the true value's key is lowest or highest, as it is in or out."""
    subset = cast(SubsetSelection, mechanism)
    chunk = max(1, _MAX_CHUNK_BYTES // (8 * subset.d))
    data: list[str] = []
    for start in range(0, indexes.size, chunk):
        part = indexes[start : start + chunk]
        rows = np.arange(part.size)
        keys = np.frombuffer(os.urandom(8 * part.size * subset.d), dtype=np.uint64)
        keys = keys.reshape(part.size, subset.d) >> np.uint64(1)
        inside = _with_probability(subset.p_exact, part.size)
        keys[rows, part] = np.where(inside, 0, _HIGHEST).astype(np.uint64)
        chosen = np.argpartition(keys, subset.w - 1, axis=1)[:, : subset.w]
        bits = np.zeros((part.size, subset.d), dtype=np.bool_)
        np.put_along_axis(bits, chosen, values=True, axis=1)
        data += _texts(bits)
    return data


def _local_hashing(mechanism: Mechanism, indexes: Indexes) -> list[list[int]]:
    hashing = cast(LocalHashing, mechanism)
    seeds = uniform_below(SEEDS, indexes.size)
    true = local_hashing.buckets(seeds, indexes.astype(np.uint64), hashing.g)
    shifts = _shifts(hashing.truth_weight, hashing.lie_weight, hashing.total_weight, indexes.size)
    reported = (true + shifts) % np.uint64(hashing.g)
    return cast(list[list[int]], np.stack([seeds, reported], axis=1).tolist())


def _hadamard(mechanism: Mechanism, indexes: Indexes) -> list[int]:
    hadamard = cast(HadamardResponse, mechanism)
    rows = indexes + 1
    outside = ~_with_probability(hadamard.p_exact, indexes.size)
    columns = uniform_below(hadamard.order, indexes.size).astype(np.int64)
    move = (np.bitwise_count(rows & columns) & 1).astype(np.bool_) ^ outside
    return cast(list[int], (columns ^ np.where(move, rows & -rows, 0)).tolist())


def _projective(mechanism: Mechanism, indexes: Indexes) -> list[int]:
    """As the SDK's sampler: the free coordinates are drawn, the one at the true point's leading 1 is solved for."""
    space = cast(ProjectiveGeometryResponse, mechanism)
    r, t = space.r, space.t
    orthogonal = _with_probability(space.p_exact, indexes.size)
    free = geometry.digits(uniform_below(r ** (t - 1), indexes.size).astype(np.int64), r, t - 1)
    lower = uniform_below(space.orthogonal, indexes.size).astype(np.int64)
    free[orthogonal] = geometry.coordinates(lower, r, t - 1)[orthogonal]
    true = geometry.coordinates(indexes, r, t)
    pivot = np.argmax(true != 0, axis=1)[:, None]
    places = np.arange(t - 1)[None, :]
    others = places + (places >= pivot)
    products = (np.take_along_axis(true, others, axis=1) * free).sum(axis=1)
    vectors = np.empty_like(true)
    np.put_along_axis(vectors, others, free, axis=1)
    np.put_along_axis(vectors, pivot, ((~orthogonal - products) % r)[:, None], axis=1)
    return cast(list[int], geometry.ranks(vectors, r, geometry.inverses(r)).tolist())


_SAMPLERS: Final[dict[str, Callable[[Mechanism, Indexes], Sequence[Data]]]] = {
    "rr": _direct,
    "grr": _direct,
    "sue": _unary,
    "oue": _unary,
    "subset": _subset,
    "olh": _local_hashing,
    "blh": _local_hashing,
    "hadamard": _hadamard,
    "projective": _projective,
}
