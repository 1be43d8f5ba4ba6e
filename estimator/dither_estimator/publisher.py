"""Publishing: the estimates of cells that changed, a little at a time, so that counting goes on meanwhile.

One round publishes all that is marked as changed when it begins, the longest marked first. It is a generator that
stops after each estimate and each slice of cells that was read, so a tick takes as many steps of it as it has time
for, and the next tick goes on from there.
"""

import logging
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from dither_estimator.cells import Counts, add, packed_size, unpack, zeros
from dither_estimator.definitions import Definitions
from dither_estimator.publication import Part, combined_document, encode_document, estimate_document
from dither_estimator.store import Store, StoreFullError
from dither_protocol.errors import RegistryError, StorageError
from dither_protocol.registry import Metric
from dither_protocol.registry.metric import Dimensions
from dither_protocol.storage import Cell, estimate_field, parse_cell
from dither_protocol.windows import Window

SLICE_BYTES: Final = 8 << 20
"""Of cells that are read at once, over all partitions; one cell may be larger."""
SLICE_CELLS: Final = 256
CLEAN_CELLS: Final = 16
"""A mark is taken off after at most this many more cells were published."""

Marks = Sequence[Mapping[str, bytes]]
"""By partition: the checkpoint of the last change of each unpublished cell, by name."""

WindowKey = tuple[str, int, str]
"""(metric, version, label of the window)."""

_log = logging.getLogger("dither_estimator")


class Publisher:
    """Publishes what changed.

    Args:
        store: where counts are read and estimates are written.
        definitions: gives the metrics.
    """

    def __init__(self, store: Store, definitions: Definitions) -> None:
        self._store = store
        self._definitions = definitions
        self._partitions = 0
        self._round: Iterator[None] | None = None
        self._refused = False

    def publish(self, partitions: int, budget_s: float, stop: threading.Event | None = None) -> bool:
        """Publish for at most about ``budget_s``, at least one step; whether to go on at once.

        A store without memory for estimates is no error: what was not published stays marked, and is tried again
        by the next call.

        Args:
            partitions: how many the store has.
            budget_s: after so long no further step is begun.
            stop: the same, as soon as it is set.
        """
        self._partitions = partitions
        try:
            return self._steps(time.monotonic() + budget_s, stop)
        except StoreFullError:
            if not self._refused:
                _log.warning("the store is full: estimates wait until it has room, counting goes on")
            self._refused, self._round = True, None
            return False

    def _steps(self, deadline: float, stop: threading.Event | None) -> bool:
        begun_before = self._round is not None
        while True:
            if self._round is None:
                self._round = self._publish_round()
            for _ in self._round:
                if time.monotonic() > deadline or (stop is not None and stop.is_set()):
                    return True
            self._round = None
            if not begun_before:
                return False
            begun_before = False  # the end of an older round: look for what changed since

    def _publish_round(self) -> Iterator[None]:
        marks = [self._store.dirty(partition) for partition in range(self._partitions)]
        for (name, version, window), cells in oldest_first(marks).items():
            yield from self._publish_window(self._definitions(name, version), window, cells, marks)
        if self._refused:
            _log.info("the store takes estimates again")
            self._refused = False

    def _publish_window(
        self, metric: Metric, label: str, changed: Sequence[Cell], marks: Marks
    ) -> Iterator[None]:
        """Publish a window over all dimensions, then its changed cells; only then is a cell's mark taken off."""
        window = metric.parse_window(label)
        n, counters = yield from self._total(metric, label)
        field = estimate_field(label, None)
        document = estimate_document(metric, window, None, counters, n)
        self._store.publish(metric, field, n, encode_document(document))
        yield
        yield from self._publish_combined(metric, window, {metric.version: (counters, metric, n)})
        for cells in self._slices(metric, changed, CLEAN_CELLS):
            if metric.dimensions:
                yield from self._publish_cells(metric, window, cells)
            for partition, dirty in enumerate(marks):
                names = (cell.name for cell in cells)
                self._store.clean(partition, [(name, dirty[name]) for name in names if name in dirty])

    def _publish_cells(self, metric: Metric, window: Window, cells: Sequence[Cell]) -> Iterator[None]:
        known = set(_combinations(metric))
        for cell, (n, counters) in zip(cells, self._read(metric, cells), strict=True):
            if cell.dimensions in known:
                document = estimate_document(metric, window, cell.dimensions, counters, n)
                field = estimate_field(window.label, cell.dimensions)
                self._store.publish(metric, field, n, encode_document(document))
                yield

    def _publish_combined(self, metric: Metric, window: Window, parts: dict[int, Part]) -> Iterator[None]:
        """Publish the estimate over all versions that have reports about the same window, where there are several.

        Args:
            metric: the version that was just published.
            window: its window.
            parts: that version's own part; the others are added.
        """
        for version in self._store.versions(metric.name):
            other = self._other_version(metric.name, version)
            if other is not None and version != metric.version and other.period == metric.period:
                n, counters = yield from self._total(other, window.label)
                if n:
                    parts[version] = (counters, other, n)
        document = combined_document(metric, window, parts) if len(parts) > 1 else None
        if document is not None:
            field = estimate_field(window.label, None)
            self._store.publish_combined(metric.name, field, document["n"], encode_document(document))
            yield

    def _other_version(self, name: str, version: int) -> Metric | None:
        """A version's definition, or None where this worker cannot read it: then it is left out, and said to be."""
        try:
            return self._definitions(name, version)
        except (RegistryError, StorageError) as error:
            _log.warning("version %d of metric '%s' is not combined with others: %s", version, name, error)
            return None

    def _total(self, metric: Metric, label: str) -> Generator[None, None, tuple[int, Counts]]:
        """(n, counters) of a window over all dimensions."""
        total = zeros(metric.mechanism.counters)
        cells = [Cell(metric.name, metric.version, label, each) for each in _combinations(metric)]
        for some in self._slices(metric, cells, SLICE_CELLS):
            for summed in self._read(metric, some):
                total = add(*total, *summed)
            yield
        return total

    def _slices(self, metric: Metric, cells: Sequence[Cell], most: int) -> Iterator[Sequence[Cell]]:
        size = packed_size(metric.mechanism.counters) * max(1, self._partitions)
        step = max(1, min(most, SLICE_BYTES // size))
        for start in range(0, len(cells), step):
            yield cells[start : start + step]

    def _read(self, metric: Metric, cells: Sequence[Cell]) -> list[tuple[int, Counts]]:
        """(n, counters) of each cell, summed over the partitions."""
        size = metric.mechanism.counters
        names = [cell.name for cell in cells]
        sums = [zeros(size) for _ in names]
        for partition in range(self._partitions):
            for place, packed in enumerate(self._store.cells(partition, names)):
                if packed is not None:
                    sums[place] = add(*sums[place], *unpack(packed, size))
        return sums


def oldest_first(marks: Marks) -> dict[WindowKey, list[Cell]]:
    """The cells that are marked, by window; windows and cells in the order of their oldest marks."""
    oldest: dict[str, tuple[int, ...]] = {}
    for dirty in marks:
        for name, mark in dirty.items():
            age = tuple(map(int, mark.split(b"-")))
            oldest[name] = min(age, oldest.get(name, age))
    windows: dict[WindowKey, list[Cell]] = {}
    for name in sorted(oldest, key=lambda name: (oldest[name], name)):
        cell = parse_cell(name)
        windows.setdefault((cell.metric, cell.version, cell.window), []).append(cell)
    return windows


def _combinations(metric: Metric) -> Iterator[Dimensions]:
    names = sorted(metric.dimensions)
    for values in product(*(metric.dimensions[name] for name in names)):
        yield tuple(zip(names, values, strict=True))
