"""What server and worker agree on about the store: key names, and codecs of stream entries and cells.

The client may not import this module (an import-linter contract): a device knows nothing of the store.
"""

import binascii
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from dither_protocol.errors import StorageError
from dither_protocol.registry.metric import Dimensions

DEFAULT_PARTITIONS: Final = 8
MAX_PARTITIONS: Final = 1_024
CLUSTER_SLOTS: Final = 16_384

LAYOUT: Final = 2
"""Version of this module's layout; written into the store at creation, another one is refused."""

META_KEY: Final = "dither:meta"
METRICS_KEY: Final = "dither:metrics"
"""Set of the names of all metrics that were ever announced."""
WORKERS_KEY: Final = "dither:workers"
"""Sorted set of the estimator workers by the time, Unix milliseconds, at which each was seen last."""
PRUNED_KEY: Final = "dither:pruned"
"""Hash: by the store's clock, when the workers pruned last, and since when they hold back (Unix milliseconds)."""
PUBLISHER_KEY: Final = "dither:publisher"
"""Name of the worker that publishes estimates now; expires, like the lease of a partition."""
SESSIONS_KEY: Final = "dither:sessions"
"""Random secret, 64 hex digits, that signs the sessions of the dashboard; without it all of them are over."""
ENTRY_FIELD: Final = b"b"
UNKNOWN: Final = "_unknown"
"""Stands for metric and window of reports whose own are not acceptable: hostile labels make no keys."""

_ENTRY_VERSION: Final = 1
_GROUP_HEAD: Final = struct.Struct("<HHI")  # length of the cell's name, bytes per report, number of reports
_INT64_MAX: Final = 2**63 - 1


@lru_cache(maxsize=4)
def partition_tags(partitions: int) -> tuple[str, ...]:
    """One hash tag per partition, its cluster slot in the middle of the partition's equal share of slots.

    So any number of nodes that hold even ranges of slots hold even numbers of partitions. The slot of a tag
    is CRC-16/XMODEM mod 16,384, as Redis Cluster defines it.
    """
    wanted = {(2 * i + 1) * CLUSTER_SLOTS // (2 * partitions): i for i in range(partitions)}
    tags: dict[int, str] = {}
    candidate = 0
    while len(tags) < partitions:
        tag = f"p{candidate:x}"
        index = wanted.get(binascii.crc_hqx(tag.encode("ascii"), 0) % CLUSTER_SLOTS)
        if index is not None:
            tags.setdefault(index, tag)
        candidate += 1
    return tuple(tags[i] for i in range(partitions))


def partition_of(batch_id: bytes, partitions: int) -> int:
    """The partition that a batch lives in: a function of its id alone, so a retry finds its first try."""
    return binascii.crc32(batch_id) % partitions


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """The keys of one partition; all carry its hash tag, so every script touches one cluster slot."""

    tag: str

    @property
    def stream(self) -> str:
        """Stream of accepted batches, in arrival order."""
        return f"dither:{{{self.tag}}}:stream"

    @property
    def backlog(self) -> str:
        """Bytes of the entries in the stream, kept by the admit and apply scripts."""
        return f"dither:{{{self.tag}}}:backlog"

    @property
    def checkpoint(self) -> str:
        """Id of the last stream entry that the counters contain."""
        return f"dither:{{{self.tag}}}:checkpoint"

    @property
    def attempt(self) -> str:
        """The run of entries that a worker began to count last, and how often: for finding poison."""
        return f"dither:{{{self.tag}}}:attempt"

    @property
    def lease(self) -> str:
        """Name of the worker that counts this partition now; expires. It saves work, correctness does not need it."""
        return f"dither:{{{self.tag}}}:lease"

    @property
    def archived(self) -> str:
        """Up to where the archive contains the stream, and who writes it; exists exactly while there is an archive."""
        return f"dither:{{{self.tag}}}:archived"

    @property
    def dead(self) -> str:
        """Stream of entries that could not be counted."""
        return f"dither:{{{self.tag}}}:dead"

    @property
    def dirty(self) -> str:
        """Hash of cells that changed since they were published last, with a mark of the change."""
        return f"dither:{{{self.tag}}}:dirty"

    def seen(self, until: str) -> str:
        """Set of the batch ids to be remembered until that date."""
        return f"dither:{{{self.tag}}}:seen:{until}"

    def cell(self, cell: str) -> str:
        """Packed counters of one cell."""
        return f"dither:{{{self.tag}}}:cell:{cell}"

    @property
    def outcomes(self) -> str:
        """Set of the ``metric:window`` that have an outcome hash here."""
        return f"dither:{{{self.tag}}}:outcomes"

    @property
    def audit(self) -> str:
        """Hash of how far the server's looks at the accounts came; kept by them alone."""
        return f"dither:{{{self.tag}}}:audit"

    @property
    def suspects(self) -> str:
        """Set of the ``metric:window`` whose accounts such a look found out of balance."""
        return f"dither:{{{self.tag}}}:suspects"

    def outcome(self, metric: str, window: str) -> str:
        """Hash of what became of the reports of a metric and window."""
        return f"dither:{{{self.tag}}}:outcome:{metric}:{window}"

    def ever(self, metric: str) -> str:
        """Hash of what ever became of the reports of a metric, whatever was forgotten since: it only grows."""
        return f"dither:{{{self.tag}}}:ever:{metric}"

    @property
    def refused(self) -> str:
        """Hash of how many reports were ever refused, by ``metric:version:reason``, of known versions alone."""
        return f"dither:{{{self.tag}}}:refused"


def quota_key(key_id: str, period: str) -> str:
    """Hash of how much of an ingest key's quota the servers have taken in this period; expires with it."""
    return f"dither:quota:{{{key_id}}}:{period}"


# What belongs to a metric rather than to a partition carries the metric's name as its hash tag, so that one script may
# touch several keys of a metric, and the metrics spread over the nodes of a cluster.


def metric_key(metric: str, version: int) -> str:
    """JSON definition of one version of a metric, as the server that accepts it knows it."""
    return f"dither:metric:{{{metric}}}:{version}"


def versions_key(metric: str) -> str:
    """Set of the versions of a metric that were ever announced."""
    return f"dither:versions:{{{metric}}}"


COMBINED: Final = "combined"
"""Stands in the place of a version for what was published over several of them."""


def estimates_key(metric: str, version: int | str, window: str) -> str:
    """Hash of what is published about one window of one version (or `COMBINED`), by `estimate_field`."""
    return f"dither:estimate:{{{metric}}}:{version}:{window}"


ROLLUPS: Final = (7, 28, 90)
"""Over so many consecutive windows estimates are published too."""


def rollups_key(metric: str, version: int | str, windows: int) -> str:
    """Hash of the published estimates over so many consecutive windows, by the label of the last one."""
    return f"dither:rollup:{{{metric}}}:{version}:{windows}"


def totals_key(metric: str, version: int) -> str:
    """Hash of a closed window's cell summed over partitions and dimensions, by label: what rollups are made of."""
    return f"dither:totals:{{{metric}}}:{version}"


def published_key(metric: str) -> str:
    """Sorted set of the published ``version:window`` by the window's start, Unix seconds."""
    return f"dither:published:{{{metric}}}"


def open_key(metric: str) -> str:
    """Sorted set of the ``version:window`` whose published estimates are not final, by closing time, Unix seconds."""
    return f"dither:open:{{{metric}}}"


def dimensions_text(dimensions: Dimensions) -> str:
    """``os=linux,channel=beta`` with sorted names and percent-encoded values; empty without dimensions."""
    return ",".join(f"{name}={quote(value, safe='')}" for name, value in dimensions)


def parse_dimensions_text(text: str) -> Dimensions:
    """The inverse of `dimensions_text`."""
    if not text:
        return ()
    pairs = (item.split("=", 1) for item in text.split(","))
    return tuple((name, unquote(value)) for name, value in pairs)


@dataclass(frozen=True, slots=True)
class Cell:
    """The unit of counting: (metric, version, window, dimensions)."""

    metric: str
    version: int
    window: str
    dimensions: Dimensions

    @property
    def name(self) -> str:
        """The cell as text, used in keys and stream entries."""
        return f"{self.metric}:{self.version}:{self.window}:{dimensions_text(self.dimensions)}"


def parse_cell(name: str) -> Cell:
    """The inverse of `Cell.name`.

    Raises:
        StorageError: it is no cell's name.
    """
    try:
        metric, version, window, dimensions = name.split(":", 3)
        cell = Cell(metric, int(version), window, parse_dimensions_text(dimensions))
    except ValueError:
        raise StorageError("not the name of a cell") from None
    if cell.name != name:
        raise StorageError("not the name of a cell as `Cell.name` writes it")
    return cell


def estimate_field(dimensions: Dimensions | None) -> str:
    """Field of a published estimate in the hash of its window: ``os=linux``; ``*`` over all dimensions."""
    return "*" if dimensions is None else dimensions_text(dimensions)


def companion_field(field: str) -> str:
    """Field beside a published estimate, for the publishing script alone: its n, whether it is final, its revision."""
    return f"n|{field}"


def published_member(version: int | str, window: str) -> str:
    """Member of `published_key` and `open_key`: the window of a version, or of `COMBINED`."""
    return f"{version}:{window}"


def parse_published_member(member: str) -> tuple[str, str]:
    """The inverse of `published_member`: (version as text, window)."""
    version, _, window = member.partition(":")
    return version, window


def encode_entry(groups: Iterable[tuple[str, list[bytes]]]) -> bytes:
    """A stream entry: the accepted reports of one batch, grouped by cell.

    Layout, little-endian: version byte; then per group u16 length of the cell's name, u16 bytes per report,
    u32 number of reports, the name in UTF-8, the packed reports one after the other.

    Args:
        groups: (name of the cell, its packed reports, all of one size, at least one).
    """
    parts = [bytes([_ENTRY_VERSION])]
    for name, reports in groups:
        raw = name.encode("utf-8")
        parts.append(_GROUP_HEAD.pack(len(raw), len(reports[0]), len(reports)))
        parts.append(raw)
        parts.extend(reports)
    return b"".join(parts)


def split_entry(entry: bytes) -> Iterator[tuple[bytes, int, int, bytes]]:
    """The groups of a stream entry: (raw name of the cell, bytes per report, number of reports, packed reports).

    The name is left undecoded, since whoever reads many entries has met it before.

    Raises:
        StorageError: it is not what `encode_entry` writes.
    """
    end = len(entry)
    if not end or entry[0] != _ENTRY_VERSION:
        raise StorageError("unknown version of a stream entry")
    head_size, unpack_head = _GROUP_HEAD.size, _GROUP_HEAD.unpack_from
    at = 1
    while at < end:
        start = at + head_size
        if start > end:
            raise StorageError("a stream entry ends inside a group")
        name_size, width, count = unpack_head(entry, at)
        body = start + name_size
        at = body + width * count
        if at > end or not width or not count:
            raise StorageError("a stream entry ends inside a group")
        yield entry[start:body], width, count, entry[body:at]


def cell_name(raw: bytes) -> str:
    """The name of a cell as a stream entry holds it, decoded.

    Raises:
        StorageError: it is not UTF-8.
    """
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        raise StorageError("the name of a cell is not UTF-8") from None


def decode_entry(entry: bytes) -> Iterator[tuple[str, int, int, bytes]]:
    """The groups of a stream entry: (name of the cell, bytes per report, number of reports, packed reports).

    Raises:
        StorageError: it is not what `encode_entry` writes.
    """
    for raw, width, count, packed in split_entry(entry):
        yield cell_name(raw), width, count, packed


@lru_cache(maxsize=4_096)
def _bucket_of(cell: str) -> tuple[str, str]:
    found = parse_cell(cell)
    return found.metric, found.window


def entry_reports(entry: bytes) -> dict[tuple[str, str], int]:
    """How many reports of each (metric, window) a stream entry holds, by its headers.

    What a damaged entry does not tell is one, under `UNKNOWN`: it is accounted for all the same.
    """
    found: dict[tuple[str, str], int] = {}
    try:
        for name, _, reports, _ in decode_entry(entry):
            bucket = _bucket_of(name)
            found[bucket] = found.get(bucket, 0) + reports
    except StorageError:
        found[UNKNOWN, UNKNOWN] = found.get((UNKNOWN, UNKNOWN), 0) + 1
    return found


def entry_position(entry_id: bytes) -> tuple[int, int]:
    """A stream id as (milliseconds, number), which sort as the entries do. A checkpoint's mark ``.n`` is left out.

    Raises:
        StorageError: it is no stream id.
    """
    milliseconds, dash, number = entry_id.partition(b".")[0].partition(b"-")
    if not (dash and milliseconds.isdigit() and number.isdigit()):
        raise StorageError("not the id of a stream entry")
    return int(milliseconds), int(number)


def encode_cell(n: int, counters: Iterable[int]) -> bytes:
    """A cell: n and its counters, as little-endian int64.

    Raises:
        StorageError: a number is negative or beyond int64: overflow is an error, never a wrap.
    """
    numbers = [n, *counters]
    if not all(0 <= number <= _INT64_MAX for number in numbers):
        raise StorageError("a counter is outside int64")
    return struct.pack(f"<{len(numbers)}q", *numbers)


def decode_cell(packed: bytes) -> tuple[int, tuple[int, ...]]:
    """The inverse of `encode_cell`.

    Raises:
        StorageError: not a whole number of int64, or none.
    """
    if not packed or len(packed) % 8:
        raise StorageError("a cell is not a list of int64")
    n, *counters = struct.unpack(f"<{len(packed) // 8}q", packed)
    return n, tuple(counters)
