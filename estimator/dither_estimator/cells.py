"""Packed cells as arrays. Pure: no store, no clock.

The layout is that of `dither_protocol.storage.encode_cell`; here it is read and written in bulk.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from dither_protocol.errors import StorageError

Counts = npt.NDArray[np.int64]

_INT64_MAX: Final = 2**63 - 1


def packed_size(counters: int) -> int:
    """Bytes of a cell with that many counters."""
    return 8 * (counters + 1)


def zeros(counters: int) -> tuple[int, Counts]:
    """(n, counters) of a cell without reports."""
    return 0, np.zeros(counters, dtype=np.int64)


def unpack(packed: bytes | None, counters: int) -> tuple[int, Counts]:
    """(n, counters) of a stored cell; zeros for one that does not exist yet.

    Raises:
        StorageError: it has another number of counters, or a negative one.
    """
    if packed is None:
        return zeros(counters)
    if len(packed) != packed_size(counters):
        raise StorageError("a cell has another number of counters than its mechanism")
    numbers = np.frombuffer(packed, dtype="<i8").astype(np.int64, copy=False)
    if int(numbers.min()) < 0:
        raise StorageError("a counter is outside int64")
    return int(numbers[0]), numbers[1:]


def add(n: int, counters: Counts, more_n: int, more: Counts) -> tuple[int, Counts]:
    """The sum of two cells.

    Raises:
        StorageError: a sum is beyond int64: overflow is an error, never a wrap.
    """
    summed = counters + more  # both at least 0, so a sum that wrapped is negative
    if n + more_n > _INT64_MAX or (summed.size and int(summed.min()) < 0):
        raise StorageError("a counter is outside int64")
    return n + more_n, summed


def pack(n: int, counters: Counts) -> bytes:
    """A cell in the form of the store."""
    return n.to_bytes(8, "little", signed=True) + counters.astype("<i8", copy=False).tobytes()
