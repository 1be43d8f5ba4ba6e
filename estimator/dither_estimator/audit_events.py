"""What an onlooker sees of packed reports: which values they support, and cells of like reports. Pure."""

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dither_estimator import geometry, local_hashing
from dither_protocol import Mechanism, MechanismError
from dither_protocol.mechanisms import Form, HadamardResponse, LocalHashing, ProjectiveGeometryResponse

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]

_WHOLE_REPORTS: Final = 4_096
"""Up to so many different reports each one is a cell of its own."""

_PLACES: Final = 8
"""Places in a list are told apart up to this one."""


def supporters(mechanism: Mechanism, packed: bytes, value: int) -> Bools:
    """Whether each packed report supports the value.

    Args:
        mechanism: the one that made the reports.
        packed: ``mechanism.packed_size`` bytes per report, as ``mechanism.pack`` gives them.
        value: index in the domain.

    Raises:
        MechanismError: the supports of this mechanism are not known here.
    """
    found: Bools
    match mechanism.form:
        case Form.BITS:
            rows = np.frombuffer(packed, dtype=np.uint8).reshape(-1, mechanism.packed_size)
            found = (rows[:, value // 8] >> (value % 8) & 1).astype(np.bool_)
        case Form.HASH:
            seeds, reported = _pairs(packed)
            found = _buckets(mechanism, seeds, value) == reported
        case _:
            found = _index_supporters(mechanism, _indices(packed), value)
    return found


def _index_supporters(mechanism: Mechanism, indices: Ints, value: int) -> Bools:
    found: Bools
    if isinstance(mechanism, HadamardResponse):
        found = np.bitwise_count(indices & (value + 1)) % 2 == 0
    elif isinstance(mechanism, ProjectiveGeometryResponse):
        r, t = mechanism.r, mechanism.t
        mine = geometry.coordinates(np.array([value], dtype=np.int64), r, t)[0]
        found = geometry.coordinates(indices, r, t) @ mine % r == 0
    elif mechanism.name in ("rr", "grr"):
        found = indices == value
    else:
        raise MechanismError("reports of this mechanism cannot be audited")
    return found


def seeds_of(packed: bytes) -> Ints:
    """The seed of each report of local hashing."""
    return _pairs(packed)[0]


def cells(mechanism: Mechanism, packed: bytes, pair: tuple[int, int]) -> dict[str, Ints]:
    """Ways to sort reports into cells, by what the cells are made of: all that a learnt rule may look at.

    Args:
        mechanism: the one that made the reports.
        packed: the reports.
        pair: the two values that devices held.
    """
    match mechanism.form:
        case Form.BITS:
            return {"bits": _bit_cells(mechanism, packed, pair)}
        case Form.HASH:
            seeds, reported = _pairs(packed)
            g = min(cast(LocalHashing, mechanism).g, 16)
            first, second = (_buckets(mechanism, seeds, value) % g for value in pair)
            return {
                "buckets under the seed": (first * g + second) * g + reported % g,
                "seeds": seeds % 32 + 32 * (seeds >> 27),
            }
    indices = _indices(packed)
    if mechanism.counters <= _WHOLE_REPORTS:
        return {"reports": indices}
    flags = supporters(mechanism, packed, pair[0]) * 2 + supporters(mechanism, packed, pair[1])
    return {"reports": indices % (_WHOLE_REPORTS // 4) * 4 + flags}


def place_cells(lists: Sequence[Sequence[int]], pair: tuple[int, int]) -> Ints:
    """Cells of reports that came as lists of values: where the two stand, and which of them comes first.

    Sorted lists, and lists in an order that was drawn by itself, tell no more by this than by what they hold.
    """
    found = np.empty(len(lists), dtype=np.int64)
    for number, items in enumerate(lists):
        first, second = (items.index(value) if value in items else -1 for value in pair)
        before = 1 if first < second else 0
        found[number] = (_place(first) * (_PLACES + 1) + _place(second)) * 2 + before
    return found


def _place(place: int) -> int:
    """0 for nowhere, and places from 1 on."""
    return min(place + 1, _PLACES)


def _bit_cells(mechanism: Mechanism, packed: bytes, pair: tuple[int, int]) -> Ints:
    """Whole reports of a small domain; of a large one the two bits with how many others are set."""
    rows = np.frombuffer(packed, dtype=np.uint8).reshape(-1, mechanism.packed_size)
    if 1 << mechanism.d <= _WHOLE_REPORTS:
        whole = np.zeros(len(rows), dtype=np.int64)
        for byte in range(mechanism.packed_size):
            whole += rows[:, byte].astype(np.int64) << (8 * byte)
        return whole
    flags = supporters(mechanism, packed, pair[0]) * 2 + supporters(mechanism, packed, pair[1])
    found: Ints = np.bitwise_count(rows).sum(axis=1, dtype=np.int64) * 4 + flags
    return found


def _indices(packed: bytes) -> Ints:
    return np.frombuffer(packed, dtype="<u4").astype(np.int64)


def _pairs(packed: bytes) -> tuple[Ints, Ints]:
    both = np.frombuffer(packed, dtype="<u4").reshape(-1, 2).astype(np.int64)
    return both[:, 0], both[:, 1]


def _buckets(mechanism: Mechanism, seeds: Ints, value: int) -> Ints:
    g = cast(LocalHashing, mechanism).g
    values = np.full(seeds.size, value, dtype=np.uint64)
    return local_hashing.buckets(seeds.astype(np.uint64), values, g).astype(np.int64)
