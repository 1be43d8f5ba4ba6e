"""From stream entries to counts per cell. Pure: no store, no clock."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dither_estimator.counting import count_packed
from dither_protocol.errors import MechanismError, StorageError
from dither_protocol.registry import Metric
from dither_protocol.storage import UNKNOWN, Cell, decode_entry, parse_cell

Entry = tuple[bytes, bytes]
"""A stream entry: its id and its payload."""

Outcome = tuple[str, str]
"""(metric, window), the key of an outcome."""


@dataclass
class CellCount:
    """What a run of entries adds to one cell: n reports and an int64 array of the mechanism's counters."""

    metric: Metric
    cell: Cell
    n: int
    counters: npt.NDArray[np.int64]


@dataclass
class Tally:
    """What a run of entries adds up to.

    Attributes:
        cells: counts by name of the cell.
        counted: reports counted, by (metric, window).
        dead: reports given up, by (metric, window).
        dead_entries: (id, reason, payload) of entries that could not be counted.
    """

    cells: dict[str, CellCount] = field(default_factory=dict)
    counted: dict[Outcome, int] = field(default_factory=lambda: defaultdict(int))
    dead: dict[Outcome, int] = field(default_factory=lambda: defaultdict(int))
    dead_entries: list[tuple[bytes, str, bytes]] = field(default_factory=list)


Groups = list[tuple[str, Metric, memoryview]]
"""The reports of one entry: (name of the cell, its metric, packed reports)."""


def tally(entries: Iterable[Entry], definition: Callable[[str, int], Metric]) -> Tally:
    """Count the reports of stream entries by cell.

    An entry that cannot be counted is set aside whole, with the reason: every accepted report is either
    counted or accounted for.

    Args:
        entries: (id, payload) of each entry.
        definition: gives the metric of (name, version). A StorageError of it sets the entry aside, anything
            else that it raises is not caught.
    """
    total = Tally()
    readable: list[tuple[Entry, Groups]] = []
    for entry in entries:
        try:
            readable.append((entry, _groups(entry[1], definition)))
        except StorageError as error:
            _set_aside(total, entry, [], str(error))
    try:
        total.cells = _count(groups for _, groups in readable)
    except MechanismError:
        # Some report is nothing that its mechanism makes. Find the entries with such reports one by one.
        sound = [groups for entry, groups in readable if _is_sound(total, entry, groups)]
        total.cells = _count(sound)
    for count in total.cells.values():
        total.counted[count.cell.metric, count.cell.window] += count.n
    return total


def set_aside_undecoded(entries: Iterable[Entry]) -> Tally:
    """Set entries aside that nobody may decode any more: decoding them has ended several workers."""
    total = Tally()
    for entry in entries:
        _set_aside(total, entry, [], "several workers ended while they decoded it")
    return total


def _groups(payload: bytes, definition: Callable[[str, int], Metric]) -> Groups:
    groups: Groups = []
    for name, width, _, view in decode_entry(payload):
        cell = parse_cell(name)
        metric = definition(cell.metric, cell.version)
        if width != metric.mechanism.packed_size:
            raise StorageError("a report has another size than its mechanism's")
        groups.append((name, metric, view))
    return groups


def _count(entries: Iterable[Groups]) -> dict[str, CellCount]:
    packed: dict[str, tuple[Metric, list[memoryview]]] = {}
    for groups in entries:
        for name, metric, view in groups:
            packed.setdefault(name, (metric, []))[1].append(view)
    cells: dict[str, CellCount] = {}
    for name, (metric, views) in packed.items():
        counters, n = count_packed(metric.mechanism, b"".join(views))
        cells[name] = CellCount(metric, parse_cell(name), n, counters)
    return cells


def _is_sound(total: Tally, entry: Entry, groups: Groups) -> bool:
    try:
        _count([groups])
    except MechanismError as error:
        _set_aside(total, entry, groups, str(error))
        return False
    return True


def _set_aside(total: Tally, entry: Entry, groups: Groups, reason: str) -> None:
    entry_id, payload = entry
    total.dead_entries.append((entry_id, reason, payload))
    if not groups:
        total.dead[UNKNOWN, UNKNOWN] += 1  # an entry, since nobody can tell how many reports it holds
    for name, metric, view in groups:
        cell = parse_cell(name)
        total.dead[cell.metric, cell.window] += len(view) // metric.mechanism.packed_size
