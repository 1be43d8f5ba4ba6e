"""From stream entries to counts per cell. Pure: no store, no clock.

Two stages. `decode` reads the headers and looks definitions up; it is pure Python on bytes of known length, so what
goes wrong in it is an exception. `tally` counts with numpy; before it the worker notes what it is about to do, since
an entry that ends the process ends it there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dither_estimator.cells import Counts, packed_size
from dither_estimator.counting import count_packed
from dither_protocol.errors import MechanismError, StorageError
from dither_protocol.registry import Metric
from dither_protocol.storage import Cell, cell_name, entry_reports, parse_cell, split_entry

MAX_ENTRY_CELL_BYTES: Final = 256 << 20
"""An entry whose cells take more than this is set aside: no store takes them in one apply in time."""

Entry = tuple[bytes, bytes]
"""A stream entry: its id and its payload."""

Outcome = tuple[str, str]
"""(metric, window), the key of an outcome."""


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """What a run of entries knows of one cell. There is one for each cell, so that it is compared by identity.

    Attributes:
        name: of the cell.
        metric: its metric.
        width: bytes of one packed report.
        cell_bytes: size of the cell in the store.
    """

    name: str
    metric: Metric
    width: int
    cell_bytes: int


Groups = list[tuple[Head, bytes]]
"""The reports of one entry: (their cell, packed reports)."""


class Decoded(NamedTuple):
    """A stream entry whose headers were read.

    Attributes:
        entry: its id and its payload.
        groups: its reports; none where there is a problem.
        problem: why it cannot be counted; empty where it can, as far as the headers tell.
    """

    entry: Entry
    groups: Groups
    problem: str = ""


@dataclass
class CellCount:
    """What a run of entries adds to one cell: n reports and an int64 array of the mechanism's counters."""

    metric: Metric
    cell: Cell
    n: int
    counters: Counts


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


def decode(entries: Iterable[Entry], definition: Callable[[str, int], Metric]) -> list[Decoded]:
    """Read the headers of stream entries.

    Args:
        entries: (id, payload) of each entry.
        definition: gives the metric of (name, version). A StorageError of it sets the entry aside, anything
            else that it raises is not caught.
    """
    heads: dict[bytes, Head] = {}  # by name of the cell, as the entries spell it
    decoded: list[Decoded] = []
    for entry in entries:
        try:
            decoded.append(Decoded(entry, _groups(entry[1], definition, heads)))
        except StorageError as error:
            decoded.append(Decoded(entry, [], str(error)))
    return decoded


def _groups(payload: bytes, definition: Callable[[str, int], Metric], heads: dict[bytes, Head]) -> Groups:
    groups: Groups = []
    cell_bytes = 0
    for raw, width, _, packed in split_entry(payload):
        head = heads.get(raw)
        if head is None:
            head = heads[raw] = _head(cell_name(raw), definition)
        if width != head.width:
            raise StorageError("a report has another size than its mechanism's")
        groups.append((head, packed))
        cell_bytes += head.cell_bytes  # at most: a cell may come twice
    if cell_bytes > MAX_ENTRY_CELL_BYTES and _cell_bytes(_heads(groups)) > MAX_ENTRY_CELL_BYTES:
        raise StorageError("its cells are larger than what one commit can carry")
    return groups


def _head(name: str, definition: Callable[[str, int], Metric]) -> Head:
    cell = parse_cell(name)
    metric = definition(cell.metric, cell.version)
    return Head(name, metric, metric.mechanism.packed_size, packed_size(metric.mechanism.counters))


def _heads(groups: Groups) -> set[Head]:
    return {head for head, _ in groups}


def _cell_bytes(heads: Iterable[Head]) -> int:
    return sum(head.cell_bytes for head in heads)


def fitting(decoded: Sequence[Decoded], limit: int) -> Sequence[Decoded]:
    """The first entries of a run, as many as have cells of at most ``limit`` bytes together; at least one entry.

    So a commit may be larger by what one entry needs: one cell, or the many cells of one batch.
    """
    if _cell_bytes({head for each in decoded for head, _ in each.groups}) <= limit:
        return decoded
    known: set[Head] = set()
    size = 0
    for position, each in enumerate(decoded):
        new = _heads(each.groups) - known
        size += _cell_bytes(new)
        if position and new and size > limit:
            return decoded[:position]
        known |= new
    return decoded


def tally(decoded: Iterable[Decoded]) -> Tally:
    """Count the reports of stream entries by cell.

    An entry that cannot be counted is set aside whole, with the reason: every accepted report is either
    counted or accounted for.
    """
    total = Tally()
    sound: list[Decoded] = []
    for each in decoded:
        if each.problem:
            _set_aside(total, each.entry, each.problem)
        else:
            sound.append(each)
    try:
        total.cells = _count(sound)
    except MechanismError:
        # Some report is nothing that its mechanism makes. Find the entries with such reports one by one.
        total.cells = _count([each for each in sound if _is_sound(total, each)])
    for count in total.cells.values():
        total.counted[count.cell.metric, count.cell.window] += count.n
    return total


def set_aside_undecoded(entries: Iterable[Entry]) -> Tally:
    """Set entries aside whose reports nobody may decode any more: decoding them has ended several workers.

    Only their headers are read, to know how many reports of what are given up.
    """
    total = Tally()
    for entry in entries:
        _set_aside(total, entry, "several workers ended while they decoded it")
    return total


def _count(entries: Iterable[Decoded]) -> dict[str, CellCount]:
    packed: dict[Head, list[bytes]] = defaultdict(list)
    for each in entries:
        for head, reports in each.groups:
            packed[head].append(reports)
    cells: dict[str, CellCount] = {}
    for head, all_reports in packed.items():
        counters, n = count_packed(head.metric.mechanism, b"".join(all_reports))
        cells[head.name] = CellCount(head.metric, parse_cell(head.name), n, counters)
    return cells


def _is_sound(total: Tally, decoded: Decoded) -> bool:
    try:
        _count([decoded])
    except MechanismError as error:
        _set_aside(total, decoded.entry, str(error))
        return False
    return True


def _set_aside(total: Tally, entry: Entry, reason: str) -> None:
    entry_id, payload = entry
    total.dead_entries.append((entry_id, reason, payload))
    for outcome, reports in entry_reports(payload).items():
        total.dead[outcome] += reports
