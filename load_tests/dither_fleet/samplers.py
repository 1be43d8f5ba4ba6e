"""Vectorised samplers: the same law and the same wire form as the SDK's, for many devices at once.

They use the same integer weights and operating-system randomness, so a simulated report is as random as a
real one. A test holds both against the same exact law.
"""

import os
from collections.abc import Callable
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms import GeneralizedRandomizedResponse, Mechanism
from dither_protocol.mechanisms.forms import encode_base64url
from dither_protocol.mechanisms.unary import UnaryEncoding

_MAX_CHUNK_BYTES: Final = 64 << 20

Indexes = npt.NDArray[np.int64]


def randomize_many(mechanism: Mechanism, indexes: Indexes) -> list[int] | list[str]:
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


def _direct(mechanism: Mechanism, indexes: Indexes) -> list[int]:
    grr = cast(GeneralizedRandomizedResponse, mechanism)
    excess = np.uint64(grr.truth_weight - grr.lie_weight)
    draws = uniform_below(grr.total_weight, indexes.size)
    shifts = np.where(draws > excess, draws - excess, np.uint64(0)) // np.uint64(grr.lie_weight)
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
        packed = np.packbits(draws < thresholds, axis=1, bitorder="little")
        data += [encode_base64url(row.tobytes()) for row in packed]
    return data


_SAMPLERS: Final[dict[str, Callable[[Mechanism, Indexes], list[int] | list[str]]]] = {
    "rr": _direct,
    "grr": _direct,
    "sue": _unary,
    "oue": _unary,
}
