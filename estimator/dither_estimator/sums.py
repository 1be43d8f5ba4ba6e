"""Stored cells, summed over the partitions that each of them is spread over."""

from collections.abc import Generator, Iterator, Sequence
from itertools import product
from typing import Final

from dither_estimator.cells import Counts, add, packed_size, unpack, zeros
from dither_estimator.store import Store
from dither_protocol.errors import StorageError
from dither_protocol.registry import Metric
from dither_protocol.registry.metric import Dimensions
from dither_protocol.storage import Cell

SLICE_BYTES: Final = 8 << 20
"""Of cells that are read at once, over all partitions; one cell may be larger."""
SLICE_CELLS: Final = 256

Packed = Sequence[bytes | None]
"""One cell by partition, None where it has no reports."""


class Sums:
    """Reads cells of all partitions.

    Args:
        store: where they are.
        partitions: how many it has.
    """

    def __init__(self, store: Store, partitions: int) -> None:
        self._store = store
        self._partitions = partitions

    def total(self, metric: Metric, label: str) -> Generator[None, None, tuple[int, Counts]]:
        """(n, counters) of a window over all dimensions; stops after each slice of cells.

        Raises:
            StorageError: a cell is damaged; its name is in the message.
        """
        total = zeros(metric.mechanism.counters)
        cells = [Cell(metric.name, metric.version, label, each) for each in combinations(metric)]
        for some in self.slices(metric, cells, SLICE_CELLS):
            for cell, packed in zip(some, self.read(some), strict=True):
                try:
                    total = add(*total, *summed(metric, packed))
                except StorageError as error:
                    raise StorageError(f"cell {cell.name}, {error}") from None
            yield
        return total

    def slices(self, metric: Metric, cells: Sequence[Cell], most: int) -> Iterator[Sequence[Cell]]:
        """The cells, at most so many together, and of at most SLICE_BYTES."""
        size = packed_size(metric.mechanism.counters) * max(1, self._partitions)
        step = max(1, min(most, SLICE_BYTES // size))
        for start in range(0, len(cells), step):
            yield cells[start : start + step]

    def read(self, cells: Sequence[Cell]) -> list[Packed]:
        """The stored values of each cell."""
        by_partition = self._store.cells_by_partition([cell.name for cell in cells])
        return list(zip(*by_partition, strict=True))


def summed(metric: Metric, packed: Packed) -> tuple[int, Counts]:
    """(n, counters) of a cell over its partitions.

    Raises:
        StorageError: it is damaged; the partition is in the message.
    """
    size = metric.mechanism.counters
    total = zeros(size)
    for partition, each in enumerate(packed):
        if each is not None:
            try:
                total = add(*total, *unpack(each, size))
            except StorageError as error:
                raise StorageError(f"partition {partition}: {error}") from None
    return total


def combinations(metric: Metric) -> Iterator[Dimensions]:
    """All that the dimensions of a report may be."""
    names = sorted(metric.dimensions)
    for values in product(*(metric.dimensions[name] for name in names)):
        yield tuple(zip(names, values, strict=True))
