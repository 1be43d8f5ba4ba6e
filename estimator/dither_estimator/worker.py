"""The estimator worker: reads the partitions, counts, commits, publishes.

    python -m dither_estimator.worker        (DITHER_STORE_URL names the store)

Order inside a partition: checkpoint first, then the entries after it, then the cells, then one apply that goes
through only if the checkpoint has not moved. A kill at any instant loses nothing and counts nothing twice; a
cell is marked as unpublished in the same apply, so a kill before publishing is made up for by the next start.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from dither_estimator.poison import Attempt, next_step
from dither_estimator.publication import Part, combined_document, encode_document, estimate_document
from dither_estimator.store import Commit, Entry, Store, StoreUnavailableError
from dither_estimator.tally import CellCount, Tally, set_aside_undecoded, tally
from dither_protocol.errors import DitherError, RegistryError, StorageError
from dither_protocol.registry import Metric
from dither_protocol.registry.metric import Dimensions
from dither_protocol.storage import Cell, decode_cell, encode_cell, estimate_field, parse_cell
from dither_protocol.windows import Window

COMMIT_INTERVAL_S: Final = 1.0
MAX_COMMIT_REPORT_BYTES: Final = 8 << 20
READ_BATCHES: Final = 500
MAX_COMMIT_BATCHES: Final = 5_000
RETRY_CAP_S: Final = 10.0
DEFINITIONS_AGE_S: Final = 30.0
DRAIN_LIMIT_S: Final = 10.0

EXIT_OK: Final = 0
EXIT_CONFIG: Final = 78  # EX_CONFIG of sysexits.h: restarting will not help

_log = logging.getLogger("dither_estimator")


class Worker:
    """Counts and publishes what a store holds.

    Args:
        store: the store; partitions are found in it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._partitions = 0
        self._definitions: dict[tuple[str, int], Metric] = {}
        self._definitions_until = 0.0
        self._attempts: dict[int, Attempt] = {}

    def tick(self) -> bool:
        """One round over all partitions, then publish what changed; whether there is more to do at once.

        Raises:
            StoreUnavailableError: the store does not answer; nothing is lost, try again later.
            StorageError: the store has another layout.
            RegistryError: a metric was announced by a version of Dither that this one does not understand.
        """
        if not self._partitions:
            self._partitions = self._store.open() or 0
        if time.monotonic() > self._definitions_until:
            self._definitions.clear()  # a server may have announced another min_reports or late_days
            self._definitions_until = time.monotonic() + DEFINITIONS_AGE_S
        more = False
        for partition in range(self._partitions):
            more |= self._advance(partition)
        self._publish_changes()
        return more

    def _definition(self, metric: str, version: int) -> Metric:
        known = self._definitions.get((metric, version))
        if known is None:
            known = self._definitions[metric, version] = self._store.definition(metric, version)
        return known

    def _read(self, partition: int, checkpoint: bytes, most: int) -> tuple[list[Entry], bool]:
        """At most ``most`` entries after the checkpoint within one commit's limits, and whether more may wait."""
        entries: list[Entry] = []
        size = 0
        while len(entries) < most and size <= MAX_COMMIT_REPORT_BYTES:
            last = entries[-1][0] if entries else checkpoint
            wanted = min(READ_BATCHES, most - len(entries))
            page = self._store.entries(partition, last, wanted)
            entries += page
            size += sum(len(payload) for _, payload in page)
            if len(page) < wanted:
                return entries, False
        return entries, True

    def _advance(self, partition: int) -> bool:
        """Count one run of entries of a partition and commit it; whether more may be waiting."""
        checkpoint = self._store.checkpoint(partition)
        start = checkpoint.decode("ascii")
        entries, more = self._read(partition, checkpoint, MAX_COMMIT_BATCHES)
        if not entries:
            return False
        step = next_step(self._last_attempt(partition), start)
        if step.most_entries is not None and step.most_entries < len(entries):
            entries, more = entries[: step.most_entries], True
        if step.set_aside:
            counts = set_aside_undecoded(entries)
        else:
            attempt = Attempt(start, len(entries), step.tries + 1)
            self._store.note_attempt(partition, attempt.text)
            self._attempts[partition] = attempt
            counts = tally(entries, self._definition)
        return self._commit(partition, checkpoint, entries, counts) or more

    def _last_attempt(self, partition: int) -> Attempt | None:
        """What was tried last. A try of this very process did not end it (the store was away), and does not count."""
        last = Attempt.parse(self._store.attempt(partition))
        if last is not None and last == self._attempts.get(partition):
            return replace(last, tries=last.tries - 1)
        return last

    def _commit(self, partition: int, checkpoint: bytes, entries: list[Entry], counts: Tally) -> bool:
        """Write what was counted; whether to look at the partition again at once, since somebody else was faster."""
        commit = Commit(
            started_from=checkpoint,
            checkpoint=entries[-1][0],
            payload_bytes=sum(len(payload) for _, payload in entries),
            cells=self._new_cells(partition, counts.cells),
            counted=counts.counted,
            dead=counts.dead,
            dead_entries=counts.dead_entries,
        )
        for entry_id, reason, _ in counts.dead_entries:
            _log.error("entry %s cannot be counted and was set aside: %s", entry_id.decode(), reason)
        if self._store.apply(partition, commit):
            return False
        _log.info("partition %d: another worker was faster, nothing written", partition)
        return True

    def _new_cells(self, partition: int, counts: Mapping[str, CellCount]) -> dict[str, bytes]:
        """The packed values of all cells that change: what they hold now plus what was counted."""
        names = list(counts)
        cells: dict[str, bytes] = {}
        for name, packed in zip(names, self._store.cells(partition, names), strict=True):
            count = counts[name]
            n, counters = _unpack(packed, len(count.counters))
            # Python integers: an int64 that overflows would wrap silently.
            summed = (int(old) + int(new) for old, new in zip(counters, count.counters.tolist(), strict=True))
            cells[name] = encode_cell(n + count.n, summed)
        return cells

    def _publish_changes(self) -> None:
        marks = [self._store.dirty(partition) for partition in range(self._partitions)]
        changed: dict[tuple[str, int, str], set[Dimensions]] = {}
        for cell in map(parse_cell, sorted(set().union(*marks))):
            changed.setdefault((cell.metric, cell.version, cell.window), set()).add(cell.dimensions)
        for (name, version, window), dimensions in changed.items():
            self._publish_window(self._definition(name, version), window, dimensions)
        for partition, dirty in enumerate(marks):
            self._store.clean(partition, dirty.items())

    def _publish_window(self, metric: Metric, label: str, changed: set[Dimensions]) -> None:
        """Publish the changed cells of one window, and their sum over all dimensions."""
        window = metric.parse_window(label)
        cells = list(self._window_cells(metric, label))
        for dimensions, (n, counters) in cells:
            if metric.dimensions and dimensions in changed:
                document = estimate_document(metric, window, dimensions, counters, n)
                field = estimate_field(label, dimensions)
                self._store.publish(metric, field, n, encode_document(document))
        total_n, total = _sum(metric, cells)
        document = estimate_document(metric, window, None, total, total_n)
        self._store.publish(metric, estimate_field(label, None), total_n, encode_document(document))
        self._publish_combined(metric, window, {metric.version: (total, metric, total_n)})

    def _publish_combined(self, metric: Metric, window: Window, parts: dict[int, Part]) -> None:
        """Publish the estimate over all versions that have reports about the same window, where there are several.

        Args:
            metric: the version that was just published.
            window: its window.
            parts: that version's own part; the others are added.
        """
        for version in self._store.versions(metric.name):
            other = self._other_version(metric.name, version)
            if other is not None and version != metric.version and other.period == metric.period:
                n, counters = _sum(other, self._window_cells(other, window.label))
                if n:
                    parts[version] = (counters, other, n)
        document = combined_document(metric, window, parts) if len(parts) > 1 else None
        if document is not None:
            field = estimate_field(window.label, None)
            self._store.publish_combined(metric.name, field, document["n"], encode_document(document))

    def _other_version(self, name: str, version: int) -> Metric | None:
        """A version's definition, or None where this worker cannot read it: then it is left out, and said to be."""
        try:
            return self._definition(name, version)
        except (RegistryError, StorageError) as error:
            _log.warning("version %d of metric '%s' is not combined with others: %s", version, name, error)
            return None

    def _window_cells(
        self, metric: Metric, label: str
    ) -> Iterator[tuple[Dimensions, tuple[int, npt.NDArray[np.int64]]]]:
        """Each combination of dimensions with (n, counters) summed over the partitions."""
        combinations = list(_combinations(metric))
        names = [Cell(metric.name, metric.version, label, each).name for each in combinations]
        parts = [self._store.cells(partition, names) for partition in range(self._partitions)]
        size = metric.mechanism.counters
        for position, dimensions in enumerate(combinations):
            n = 0
            counters = np.zeros(size, dtype=np.int64)
            for part in parts:
                part_n, part_counters = _unpack(part[position], size)
                n += part_n
                counters += part_counters
            yield dimensions, (n, counters)


def _combinations(metric: Metric) -> Iterator[Dimensions]:
    names = sorted(metric.dimensions)
    for values in product(*(metric.dimensions[name] for name in names)):
        yield tuple(zip(names, values, strict=True))


def _sum(
    metric: Metric, cells: Iterable[tuple[Dimensions, tuple[int, npt.NDArray[np.int64]]]]
) -> tuple[int, npt.NDArray[np.int64]]:
    """(n, counters) over all dimensions."""
    total_n, total = 0, np.zeros(metric.mechanism.counters, dtype=np.int64)
    for _, (n, counters) in cells:
        total_n += n
        total += counters
    return total_n, total


def _unpack(packed: bytes | None, size: int) -> tuple[int, npt.NDArray[np.int64]]:
    """(n, counters) of a stored cell; zeros for one that does not exist yet."""
    if packed is None:
        return 0, np.zeros(size, dtype=np.int64)
    if len(packed) != 8 * (size + 1):
        raise StorageError("a cell has another number of counters than its mechanism")
    n, counters = decode_cell(packed)
    return n, np.array(counters, dtype=np.int64)


def run(worker: Worker, stop: threading.Event) -> None:
    """Tick until ``stop`` is set, then drain what is left for at most DRAIN_LIMIT_S.

    A store that does not answer is waited for, with growing pauses; it is said once, not at every try.
    """
    failures = 0
    while not stop.is_set():
        began = time.monotonic()
        try:
            more = worker.tick()
        except StoreUnavailableError as error:
            failures += 1
            if failures == 1:
                _log.warning("the store is not available, waiting for it (%s)", error)
            stop.wait(min(RETRY_CAP_S, 0.25 * 2 ** min(failures, 6)))
            continue
        if failures:
            _log.info("the store is back after %d tries", failures)
            failures = 0
        if not more:
            stop.wait(max(0.0, began + COMMIT_INTERVAL_S - time.monotonic()))
    _drain(worker)


def _drain(worker: Worker) -> None:
    deadline = time.monotonic() + DRAIN_LIMIT_S
    try:
        while worker.tick() and time.monotonic() < deadline:
            pass
    except StoreUnavailableError as error:
        _log.warning("stopped without draining, nothing is lost (%s)", error)


def main() -> int:
    """Entry point: run until SIGTERM or SIGINT. Returns the exit code."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    url = os.environ.get("DITHER_STORE_URL", "")
    if not url:
        _log.error("DITHER_STORE_URL is not set")
        return EXIT_CONFIG
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        store = Store(url)
    except ValueError as error:
        _log.error("DITHER_STORE_URL: %s", error)
        return EXIT_CONFIG
    try:
        run(Worker(store), stop)
    except (StorageError, RegistryError) as error:
        _log.error("cannot go on: %s", error)
        return EXIT_CONFIG
    except DitherError:
        _log.exception("stopped by an error")
        return 1
    finally:
        store.close()
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
