"""Packed cells as arrays."""

import numpy as np
import pytest

from dither_estimator.cells import add, pack, packed_size, unpack
from dither_protocol.errors import StorageError
from dither_protocol.storage import decode_cell, encode_cell

INT64_MAX = 2**63 - 1


@pytest.mark.parametrize(("n", "counters"), [(0, [0]), (7, [1, 2, 3]), (INT64_MAX, [INT64_MAX, 2**53 + 1])])
def test_the_layout_is_the_protocols(n: int, counters: list[int]) -> None:
    """What is packed here is read there, and the other way round."""
    packed = pack(n, np.array(counters, dtype=np.int64))
    assert packed == encode_cell(n, counters)
    assert len(packed) == packed_size(len(counters))
    again_n, again = unpack(packed, len(counters))
    assert (again_n, tuple(again.tolist())) == decode_cell(packed)


def test_a_cell_that_does_not_exist_is_zero() -> None:
    """The first reports of a cell find none."""
    n, counters = unpack(None, 3)
    assert (n, counters.tolist()) == (0, [0, 0, 0])


@pytest.mark.parametrize("packed", [b"", b"\0" * 8, b"\0" * 23, b"\0" * 32, b"\0" * 16 + b"\xff" * 8])
def test_a_damaged_cell_is_an_error(packed: bytes) -> None:
    """Another size, or a counter below zero."""
    with pytest.raises(StorageError):
        unpack(packed, 2)


@pytest.mark.parametrize(("n", "counters"), [(1, [0, 0]), (0, [1, 0]), (0, [0, INT64_MAX])])
def test_a_sum_beyond_int64_is_an_error(n: int, counters: list[int]) -> None:
    """The total or any counter: an error, never a wrap."""
    full = np.array([INT64_MAX, 1], dtype=np.int64)
    with pytest.raises(StorageError, match="int64"):
        add(INT64_MAX, full, n, np.array(counters, dtype=np.int64))


def test_sums_are_exact() -> None:
    """Up to the last number that int64 has."""
    n, counters = add(5, np.array([INT64_MAX - 2, 1]), 3, np.array([2, 0]))
    assert (n, counters.tolist()) == (8, [INT64_MAX, 1])
