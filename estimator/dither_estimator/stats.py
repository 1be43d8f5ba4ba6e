"""What a store holds, in numbers: for operators.

Bounded, however large the store: there is no scan over its keys. Names come from its own indices, sizes of sets, hashes
and streams from the server's own estimate (MEMORY USAGE, which samples), and of cells and estimates at most so many are
looked at, evenly spread; what is shown is scaled then, and said to be.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from dither_estimator.expiry import Calendar
from dither_estimator.presence import WorkerState, workers
from dither_estimator.pruning import oldest_uncounted
from dither_estimator.store import Store
from dither_protocol import storage
from dither_protocol.storage import COMBINED, PartitionKeys, partition_tags
from dither_protocol.windows import MAX_UNTIL_DAYS

MAX_CELLS: Final = 20_000
"""Cells of a metric that are looked at."""
MAX_WINDOWS: Final = 200
"""Windows of a metric whose estimates are looked at."""
MAX_DEAD: Final = 100
"""Entries of a partition, the latest that were set aside, whose reasons are read ..."""
MAX_DEAD_BYTES: Final = 8 << 20
"""... or as many as come with so many bytes."""
_DEAD_PAGE: Final = 10
_MEASURED_CELLS: Final = 10
_SEEN_MARGIN_DAYS: Final = 3  # ids outlive the last day of their batch by two, and clocks differ

_T = TypeVar("_T")


@dataclass(frozen=True)
class NodeStats:
    """One server of the store.

    Attributes:
        used_bytes: memory that it uses.
        limit_bytes: its maxmemory; 0 for none.
        policy: what it does at the limit; must be ``noeviction``.
    """

    used_bytes: int
    limit_bytes: int
    policy: str


@dataclass(frozen=True)
class PartitionStats:
    """One partition.

    Attributes:
        number: from 0.
        backlog_bytes: payloads in its stream, as ingest sees them.
        entries: in its stream; with an archive, counted ones among them.
        lag_s: age of the oldest entry that is not counted, seconds; 0 where all are.
        checkpoint: id of the last counted entry; empty for none.
        archived: id of the last archived entry; None where there is no archive.
        dead: entries that were set aside and are kept.
        dead_reasons: how many of them, by reason, among the latest `MAX_DEAD`.
        counted_by: the worker that holds its lease; None for nobody.
    """

    number: int
    backlog_bytes: int
    entries: int
    lag_s: float
    checkpoint: str
    archived: str | None
    dead: int
    dead_reasons: dict[str, int]
    counted_by: str | None


@dataclass(frozen=True)
class SeenStats:
    """Batch ids that are remembered until one date.

    Attributes:
        until: the last day on which their batches are accepted.
        ids: how many.
        bytes: of memory.
    """

    until: str
    ids: int
    bytes: int


@dataclass(frozen=True)
class MetricStats:
    """What is kept about one metric.

    Attributes:
        metric: its name.
        windows: that have reports.
        cells: counters, over all partitions.
        cell_bytes: of memory.
        estimates: published documents, rollups included.
        estimate_bytes: of memory, with what rollups are made of.
        open: published windows that are not final.
        final: published windows that are.
        sampled: cells or estimates are scaled from a sample.
    """

    metric: str
    windows: int
    cells: int
    cell_bytes: int
    estimates: int
    estimate_bytes: int
    open: int
    final: int
    sampled: bool


@dataclass(frozen=True)
class StoreStats:
    """A store.

    Attributes:
        as_of: by its own clock.
        nodes: its servers, replicas left out.
        partitions: in order.
        seen: by date; dates without ids left out.
        metrics: in the order of their names.
        workers: that count and publish.
    """

    as_of: datetime
    nodes: list[NodeStats]
    partitions: list[PartitionStats]
    seen: list[SeenStats]
    metrics: list[MetricStats]
    workers: list[WorkerState] = field(default_factory=list)


def read_stats(store: Store, calendar: Calendar) -> StoreStats:
    """Look at a store.

    Raises:
        StorageError: it has another layout.
        StoreUnavailableError: it does not answer.
    """
    keys = [PartitionKeys(tag) for tag in partition_tags(store.open() or 0)]
    now = store.now()
    labels = _labels(store, keys)
    return StoreStats(
        as_of=now,
        nodes=[_node(found) for found in store.information("memory")],
        partitions=[_partition(store, number, each, now) for number, each in enumerate(keys)],
        seen=_seen(store, keys, now),
        metrics=[_metric(store, calendar, metric, labels[metric]) for metric in calendar.metrics()],
        workers=workers(store),
    )


def _node(found: dict[str, Any]) -> NodeStats:
    return NodeStats(
        int(found["used_memory"]),
        int(found.get("maxmemory", 0)),
        str(found.get("maxmemory_policy", "unknown")),
    )


def _partition(store: Store, number: int, keys: PartitionKeys, now: datetime) -> PartitionStats:
    asked = [("GET", keys.backlog), ("GET", keys.checkpoint), ("GET", keys.archived), ("GET", keys.lease)]
    backlog, checkpoint, archived, lease = store.commands(asked)
    entries, dead = store.commands([("XLEN", keys.stream), ("XLEN", keys.dead)])
    oldest = oldest_uncounted(store, keys)
    return PartitionStats(
        number=number,
        backlog_bytes=int(backlog or 0),
        entries=entries,
        lag_s=0.0 if oldest is None else round(max(0.0, (now - oldest).total_seconds()), 3),
        checkpoint=(checkpoint or b"").decode("ascii"),
        archived=None if archived is None else archived.split(b" ")[0].decode("ascii"),
        dead=dead,
        dead_reasons=_dead_reasons(store, keys) if dead else {},
        counted_by=None if lease is None else lease.decode("utf-8").rpartition("/")[0],
    )


def _dead_reasons(store: Store, keys: PartitionKeys) -> dict[str, int]:
    reasons: dict[str, int] = defaultdict(int)
    end, read, size = "+", 0, 0
    while read < MAX_DEAD and size < MAX_DEAD_BYTES:
        (page,) = store.commands([("XREVRANGE", keys.dead, end, "-", "COUNT", _DEAD_PAGE)])
        for entry_id, fields in page:
            reasons[fields.get(b"reason", b"unknown").decode("utf-8", "replace")] += 1
            size += sum(map(len, fields.values()))
            end = f"({entry_id.decode('ascii')}"
        read += len(page)
        if len(page) < _DEAD_PAGE:
            break
    return dict(sorted(reasons.items(), key=lambda item: -item[1]))


def _seen(store: Store, keys: Sequence[PartitionKeys], now: datetime) -> list[SeenStats]:
    days = range(-_SEEN_MARGIN_DAYS, MAX_UNTIL_DAYS + 2)
    dates = [(now + timedelta(days=each)).date().isoformat() for each in days]
    places = [(date, each.seen(date)) for date in dates for each in keys]
    ids = store.commands([("SCARD", key) for _, key in places])
    held = [(date, key, number) for (date, key), number in zip(places, ids, strict=True) if number]
    sizes = _memory(store, [key for _, key, _ in held])
    totals: dict[str, tuple[int, int]] = {}
    for (date, _, number), size in zip(held, sizes, strict=True):
        before = totals.get(date, (0, 0))
        totals[date] = before[0] + number, before[1] + size
    return [SeenStats(date, *total) for date, total in sorted(totals.items())]


def _labels(store: Store, keys: Sequence[PartitionKeys]) -> dict[str, list[tuple[PartitionKeys, str]]]:
    """By metric: (partition, label) of every window that has an account there."""
    found: dict[str, list[tuple[PartitionKeys, str]]] = defaultdict(list)
    for each in keys:
        (members,) = store.commands([("SMEMBERS", each.outcomes)])
        for member in sorted(members):
            metric, _, label = member.decode("utf-8").partition(":")
            found[metric].append((each, label))
    return found


def _metric(
    store: Store, calendar: Calendar, metric: str, places: Sequence[tuple[PartitionKeys, str]]
) -> MetricStats:
    cells, cell_bytes, some_cells = _cells(store, calendar, metric, places)
    estimates, estimate_bytes, some_windows = _estimates(store, calendar, metric)
    asked = [("ZCARD", storage.published_key(metric)), ("ZCARD", storage.open_key(metric))]
    published, still_open = store.commands(asked)
    return MetricStats(
        metric=metric,
        windows=len({label for _, label in places}),
        cells=cells,
        cell_bytes=cell_bytes,
        estimates=estimates,
        estimate_bytes=estimate_bytes,
        open=still_open,
        final=max(0, published - still_open),
        sampled=some_cells or some_windows,
    )


def _cells(
    store: Store, calendar: Calendar, metric: str, places: Sequence[tuple[PartitionKeys, str]]
) -> tuple[int, int, bool]:
    """(number, bytes, whether both are scaled from a sample) of a metric's cells."""
    names = {label: calendar.cells(metric, label) for label in {label for _, label in places}}
    possible = sum(len(names[label]) for _, label in places)
    chosen = _spread(places, -(-possible // MAX_CELLS))
    keys = [each.cell(name) for each, label in chosen for name in names[label]]
    lengths = store.commands([("STRLEN", key) for key in keys])
    present = [(key, length) for key, length in zip(keys, lengths, strict=True) if length]
    if not present:
        return 0, 0, len(chosen) < len(places)
    measured = _spread(present, -(-len(present) // _MEASURED_CELLS))
    overhead = sum(_memory(store, [key for key, _ in measured])) / sum(length for _, length in measured)
    scale = len(places) / len(chosen)
    size = sum(length for _, length in present) * overhead
    return round(len(present) * scale), round(size * scale), len(chosen) < len(places)


def _estimates(store: Store, calendar: Calendar, metric: str) -> tuple[int, int, bool]:
    """(number, bytes, whether both are scaled from a sample) of what is published about a metric."""
    (members,) = store.commands([("ZRANGE", storage.published_key(metric), 0, -1)])
    texts = [storage.parse_published_member(member.decode("utf-8")) for member in members]
    chosen = _spread(texts, -(-len(texts) // MAX_WINDOWS))
    keys = [storage.estimates_key(metric, version, label) for version, label in chosen]
    scale = len(texts) / len(chosen) if chosen else 1.0
    whole = [*_rollup_keys(calendar, metric)]
    fields = store.commands([("HLEN", key) for key in [*keys, *whole]])
    sizes = _memory(store, [*keys, *whole])
    number = sum(fields[: len(keys)]) / 2 * scale + sum(fields[len(keys) :]) / 2  # each has a companion
    versions = [each.version for each in calendar.versions(metric)]
    totals = sum(_memory(store, [storage.totals_key(metric, version) for version in versions]))
    size = sum(sizes[: len(keys)]) * scale + sum(sizes[len(keys) :]) + totals
    return round(number), round(size), len(chosen) < len(texts)


def _rollup_keys(calendar: Calendar, metric: str) -> Iterator[str]:
    versions: list[int | str] = [each.version for each in calendar.versions(metric)]
    for version in [*versions, COMBINED]:
        for windows in storage.ROLLUPS:
            yield storage.rollups_key(metric, version, windows)


def _memory(store: Store, keys: Sequence[str]) -> list[int]:
    return [size or 0 for size in store.commands([("MEMORY USAGE", key) for key in keys])]


def _spread(items: Sequence[_T], step: int) -> Sequence[_T]:
    """Every so manieth of the items."""
    return items[:: max(1, step)]
