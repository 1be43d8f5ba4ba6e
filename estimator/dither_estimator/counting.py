"""From reports to counters, and from counters to support counts.

Counting has two inputs: wire ``data``, as a program holds it, and the packed form, as the store holds it. The
first is brought into the second in bulk, so that there is one tally per shape of report. Only where the bulk
fails are reports packed one by one, to name the offender.

A later mechanism adds one entry to `_COUNTERS`, with what it does differently in a file of its own.
"""

import binascii
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dither_estimator import local_hashing, transforms
from dither_estimator.errors import EstimationError
from dither_protocol import Mechanism, MechanismError
from dither_protocol.mechanisms import LocalHashing, ProjectiveGeometryResponse, SubsetSelection

Counts: TypeAlias = NDArray[np.int64]
Packed: TypeAlias = bytes | bytearray | memoryview

_INT64_MAX: Final = 2**63 - 1
_CHUNK_REPORTS: Final = 65_536
_CHUNK_BYTES: Final = 8 << 20  # of packed reports; the copies on the way are a few times as much
_ROWS_PER_BYTE: Final = 255  # so many ones add up in a uint8 without a carry

# Base64url to the alphabet that binascii knows; what is foreign to base64url becomes foreign to it as well.
_ALPHABET: Final = bytes(
    ord({"-": "+", "_": "/"}.get(c, c)) if c in string.ascii_letters + string.digits + "-_" else ord("!")
    for c in map(chr, range(256))
)


@dataclass(frozen=True, slots=True)
class _Counter:
    """What counting must know about a mechanism.

    Attributes:
        pack: wire data of many reports to their packed form, one after the other. It may give up with a
            ValueError or OverflowError without saying where.
        tally: packed reports to counters; a MechanismError where a report is nothing the mechanism produces.
        support: counters to the number of reports whose support contains each value.
    """

    pack: Callable[[Mechanism, Sequence[object]], bytes]
    tally: Callable[[Mechanism, Packed], Counts]
    support: Callable[[Mechanism, Counts], Counts]


def _pack_indices(_: Mechanism, reports: Sequence[object]) -> bytes:
    if set(map(type, reports)) != {int}:  # numpy would take True for 1
        raise MechanismError("not all reports are whole numbers")
    return np.array(reports, dtype="<u4").tobytes()  # OverflowError below 0 or from 2^32


def _tally_indices(mechanism: Mechanism, packed: Packed) -> Counts:
    indices = np.frombuffer(packed, dtype="<u4")
    if indices.size and int(indices.max()) >= mechanism.counters:
        raise MechanismError(f"an index is not in [0, {mechanism.counters})")
    return np.bincount(indices, minlength=mechanism.counters).astype(np.int64, copy=False)


def _pack_bits(mechanism: Mechanism, reports: Sequence[object]) -> bytes:
    """Decode all base64url texts at once.

    Each text is filled up with "A", six zero bits, to whole groups of four characters. What these decode to
    beyond the report is zero in the canonical spelling, and only there.
    """
    if set(map(type, reports)) != {str}:
        raise MechanismError("not all reports are strings")
    texts = cast(Sequence[str], reports)
    size = mechanism.packed_size
    length = (size * 4 + 2) // 3
    if set(map(len, texts)) != {length}:
        raise MechanismError("not all reports have the length of the mechanism")
    fill = "A" * (-length % 4)
    joined = fill.join(texts) + fill
    raw = binascii.a2b_base64(joined.encode("ascii").translate(_ALPHABET), strict_mode=True)
    rows = np.frombuffer(raw, dtype=np.uint8).reshape(len(texts), -1)
    if rows[:, size:].any():
        raise MechanismError("not all reports are canonical base64url")
    return rows[:, :size].tobytes()


def _tally_bits(mechanism: Mechanism, packed: Packed) -> Counts:
    """Column sums. Blocks of 255 rows are unpacked to bytes and added up in bytes: that stays in the cache."""
    raw = np.frombuffer(packed, dtype=np.uint8)
    columns = 8 * mechanism.packed_size
    step = _ROWS_PER_BYTE * mechanism.packed_size
    totals = np.zeros(columns, dtype=np.int64)
    for start in range(0, raw.size, step):
        bits = np.unpackbits(raw[start : start + step], bitorder="little").reshape(-1, columns)
        totals += bits.sum(axis=0, dtype=np.uint8)
    if totals[mechanism.d :].any():
        raise MechanismError("the padding bits must be zero")
    return totals[: mechanism.d].copy()


def _tally_subsets(mechanism: Mechanism, packed: Packed) -> Counts:
    """Column sums, after a check that every report has exactly w ones."""
    w = cast(SubsetSelection, mechanism).w
    rows = np.frombuffer(packed, dtype=np.uint8).reshape(-1, mechanism.packed_size)
    if (np.bitwise_count(rows).sum(axis=1, dtype=np.int64) != w).any():
        raise MechanismError(f"exactly {w} bits must be set")
    return _tally_bits(mechanism, packed)


def _pack_pairs(_: Mechanism, reports: Sequence[object]) -> bytes:
    if set(map(type, reports)) != {list}:
        raise MechanismError("not all reports are lists")
    pairs = cast(Sequence[list[object]], reports)
    flat = list(chain.from_iterable(pairs))
    if set(map(len, pairs)) != {2} or set(map(type, flat)) != {int}:
        raise MechanismError("not all reports are pairs of whole numbers")
    return np.array(flat, dtype="<u4").tobytes()  # OverflowError below 0 or from 2^32


def _tally_pairs(mechanism: Mechanism, packed: Packed) -> Counts:
    """Support is counted on arrival: which values hash to the reported bucket."""
    g = cast(LocalHashing, mechanism).g
    pairs = np.frombuffer(packed, dtype="<u4").reshape(-1, 2)
    if pairs.size and int(pairs[:, 1].max()) >= g:
        raise MechanismError(f"a value is not in [0, {g})")
    seeds, reported = pairs[:, 0].astype(np.uint64), pairs[:, 1].astype(np.uint64)
    return local_hashing.count_support(seeds, reported, g, mechanism.d)


def total(counters: Counts) -> int:
    """The sum of counters, exact also where int64 would wrap."""
    low_half = (1 << 32) - 1
    return (int((counters >> 32).sum()) << 32) + int((counters & low_half).sum())


def _refuse_overflow(counters: Counts) -> None:
    if total(counters) > _INT64_MAX:
        raise EstimationError("the counters must add up to less than 2^63")


def _hadamard_support(mechanism: Mechanism, counters: Counts) -> Counts:
    """Row v+1 of the transform is supporting minus other reports; row 0 is all reports.

    Half their sum is taken half by half, which stays below 2^63; both are odd or both even.
    """
    _refuse_overflow(counters)
    rows = transforms.walsh_hadamard(counters)
    supporting: Counts = (rows[0] >> 1) + (rows[1 : mechanism.d + 1] >> 1) + (rows[0] & 1)
    return supporting


def _projective_support(mechanism: Mechanism, counters: Counts) -> Counts:
    _refuse_overflow(counters)
    space = cast(ProjectiveGeometryResponse, mechanism)
    return transforms.orthogonal_sums(counters, space.r, space.t, space.d)


def _identity(_: Mechanism, counters: Counts) -> Counts:
    return counters


_DIRECT: Final = _Counter(_pack_indices, _tally_indices, _identity)
_UNARY: Final = _Counter(_pack_bits, _tally_bits, _identity)
_HASHING: Final = _Counter(_pack_pairs, _tally_pairs, _identity)

_COUNTERS: Final[dict[str, _Counter]] = {
    "rr": _DIRECT,
    "grr": _DIRECT,
    "sue": _UNARY,
    "oue": _UNARY,
    "subset": _Counter(_pack_bits, _tally_subsets, _identity),
    "olh": _HASHING,
    "blh": _HASHING,
    "hadamard": _Counter(_pack_indices, _tally_indices, _hadamard_support),
    "projective": _Counter(_pack_indices, _tally_indices, _projective_support),
}


def _counter(mechanism: Mechanism) -> _Counter:
    found = _COUNTERS.get(mechanism.name)
    if found is None:
        raise MechanismError("reports of this mechanism cannot be counted")
    return found


def count(mechanism: Mechanism, reports: Iterable[object]) -> tuple[Counts, int]:
    """Count reports as they come from `dither_client.randomize` or from the wire.

    Args:
        mechanism: the one that made the reports.
        reports: the wire ``data`` of each: int, unpadded base64url, or [seed, value].

    Returns:
        The counters, int64 of shape (mechanism.counters,), and the number of reports.

    Raises:
        MechanismError: a report is nothing that this mechanism produces. The message begins with its
            position, ``reports[17]: ...``, and does not repeat it. Nothing is counted then.
    """
    counter = _counter(mechanism)
    size = max(1, min(_CHUNK_REPORTS, _CHUNK_BYTES // mechanism.packed_size))
    totals = np.zeros(mechanism.counters, dtype=np.int64)
    n = 0
    source = iter(reports)
    while chunk := list(islice(source, size)):
        try:
            counters = counter.tally(mechanism, counter.pack(mechanism, chunk))
        except (ValueError, OverflowError):
            counters = counter.tally(mechanism, _pack_each(mechanism, chunk, n))
        totals += counters
        n += len(chunk)
    return totals, n


def _pack_each(mechanism: Mechanism, reports: Sequence[object], offset: int) -> bytes:
    """The slow way to the packed form; ``offset`` is the position of the first report."""
    packed = []
    for position, data in enumerate(reports, offset):
        try:
            packed.append(mechanism.pack(data))
        except MechanismError as error:
            raise MechanismError(f"reports[{position}]: {error}") from None
    return b"".join(packed)


def count_packed(mechanism: Mechanism, packed: Packed) -> tuple[Counts, int]:
    """Count reports in the packed form of the store.

    Args:
        mechanism: the one that made the reports.
        packed: ``mechanism.packed_size`` bytes per report, one after the other, as ``mechanism.pack`` gives
            them: an index as four little-endian bytes, ceil(d/8) bytes with item v at bit v % 8 of byte v // 8,
            or seed and value as four little-endian bytes each.

    Returns:
        The counters, int64 of shape (mechanism.counters,), and the number of reports.

    Raises:
        MechanismError: not a whole number of reports, or one that the mechanism cannot produce.
    """
    size = memoryview(packed).nbytes
    if size % mechanism.packed_size:
        raise MechanismError(f"packed reports must be a multiple of {mechanism.packed_size} bytes")
    return _counter(mechanism).tally(mechanism, packed), size // mechanism.packed_size


def support(mechanism: Mechanism, counters: ArrayLike) -> Counts:
    """C_v, the number of reports whose support contains v, for every value v of the domain.

    Args:
        mechanism: the one whose reports were counted.
        counters: whole numbers of shape (mechanism.counters,).

    Returns:
        int64 of shape (mechanism.d,).

    Raises:
        EstimationError: the counters have another shape, are no whole numbers, or are outside [0, 2^63); where
            they are transformed, their sum is outside it.
        MechanismError: reports of this mechanism cannot be counted.
    """
    return _counter(mechanism).support(mechanism, _checked(mechanism, counters))


def _checked(mechanism: Mechanism, counters: ArrayLike) -> Counts:
    try:
        array: NDArray[Any] = np.asarray(counters)
    except (ValueError, OverflowError):  # nested lists of unequal lengths
        raise EstimationError("the counters must be one row of whole numbers") from None
    if array.shape != (mechanism.counters,):
        raise EstimationError(f"the counters must have shape ({mechanism.counters},), not {array.shape}")
    if array.dtype.kind not in "iu":
        raise EstimationError("the counters must be whole numbers below 2^63")
    if int(array.min()) < 0 or int(array.max()) > _INT64_MAX:
        raise EstimationError("the counters must be in [0, 2^63)")
    return array.astype(np.int64)
