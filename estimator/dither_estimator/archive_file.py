"""Reports as Parquet: the one module that knows pyarrow. Imported only where there is an archive to write or to read.

One row for each counted report, sorted by cell, and inside a cell by the report itself. So a file tells nothing about
the order in which reports came in, nor which of them came together.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dither_protocol.errors import MechanismError, StorageError
from dither_protocol.mechanisms import Form, Mechanism
from dither_protocol.registry import Metric
from dither_protocol.storage import parse_cell

METADATA: Final = b"dither"
"""Key of what a file says about itself, as JSON: its layout, and its rows by metric and window."""
LAYOUT: Final = 1
ROW_GROUP_ROWS: Final = 1 << 17
MAX_RUNS: Final = 4_096
"""Cells that a row group of an archive holds at most, or nearly; more runs of rows mean that they are not sorted."""

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
SCHEMA: Final = pa.schema(
    [
        pa.field("metric", _TEXT, nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("params", _TEXT, nullable=False),
        pa.field("window_label", _TEXT, nullable=False),
        pa.field("dimensions", _TEXT, nullable=False),
        pa.field("seed", pa.uint32()),
        pa.field("value", pa.uint32()),
        pa.field("bits", pa.binary()),
    ]
)
_CELL: Final = ("metric", "version", "params", "window_label", "dimensions")  # `window` is a keyword of SQL
_OPTIONS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": [*_CELL, "value"],
    "column_encoding": {"bits": "DELTA_LENGTH_BYTE_ARRAY"},
}

Group = tuple[str, Metric, bytes]
"""Reports of one cell: its name, its metric, the packed reports."""


class Content(NamedTuple):
    """How many rows of a file are about a metric and a window."""

    metric: str
    window: str
    rows: int


class Key(NamedTuple):
    """What the rows of one cell have in common."""

    metric: str
    version: int
    params: str
    window: str
    dimensions: str


@dataclass(frozen=True)
class Part:
    """The reports of one cell in one row group.

    Attributes:
        key: of the cell.
        rows: its columns ``seed``, ``value`` and ``bits``.
    """

    key: Key
    rows: pa.Table

    @property
    def dimensions(self) -> dict[str, str]:
        """The dimensions of the cell.

        Raises:
            StorageError: they are no JSON object of strings.
        """
        try:
            found = json.loads(self.key.dimensions)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise StorageError("the dimensions of a report are no object of strings")
        return found

    def packed(self, mechanism: Mechanism) -> bytes:
        """The reports in the packed form of the store.

        Raises:
            MechanismError: they have not the shape of this mechanism's reports.
        """
        if mechanism.form is Form.BITS:
            return _joined(self.rows.column("bits"), mechanism.packed_size)
        names = ("seed", "value") if mechanism.form is Form.HASH else ("value",)
        columns = [self.rows.column(name) for name in names]
        if any(column.null_count for column in columns):
            raise MechanismError("a report has not the shape of its mechanism's")
        return np.stack([column.to_numpy() for column in columns], axis=1).astype("<u4").tobytes()


def _joined(column: pa.ChunkedArray, size: int) -> bytes:
    lengths = pc.binary_length(column)
    if column.null_count or not pc.all(pc.equal(lengths, size)).as_py():
        raise MechanismError("a report has not the size of its mechanism's")
    parts = []
    for chunk in column.chunks:
        _, offsets, data = chunk.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        parts.append(memoryview(data)[ends[0] : ends[-1]] if len(chunk) else b"")
    return b"".join(parts)


# writing


def write(groups: Iterable[Group], file: IO[bytes]) -> None:
    """Write reports as one file.

    Args:
        groups: the reports, those of one cell in any number of groups.
        file: open for writing bytes.
    """
    cells: dict[str, tuple[Metric, list[bytes]]] = {}
    for name, metric, packed in groups:
        cells.setdefault(name, (metric, []))[1].append(packed)
    with _writer(file, _contents(cells)) as writer:
        for rows in _gathered(_parts(name, *cells[name]) for name in sorted(cells)):
            writer.write_table(rows)


def _contents(cells: Mapping[str, tuple[Metric, Sequence[bytes]]]) -> list[Content]:
    """How many reports there are, by metric and window."""
    rows: dict[tuple[str, str], int] = {}
    for name, (metric, groups) in cells.items():
        cell = parse_cell(name)
        key = cell.metric, cell.window
        rows[key] = rows.get(key, 0) + sum(map(len, groups)) // metric.mechanism.packed_size
    return [Content(*key, number) for key, number in sorted(rows.items())]


def _writer(file: IO[bytes], found: Sequence[Content]) -> pq.ParquetWriter:
    about = {"layout": LAYOUT, "contents": found}
    schema = SCHEMA.with_metadata({METADATA: json.dumps(about, separators=(",", ":")).encode("ascii")})
    return pq.ParquetWriter(file, schema, **_OPTIONS)


def _gathered(cells: Iterable[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """The rows of all cells in tables of about one row group each."""
    waiting: list[pa.Table] = []
    for cell in cells:
        for rows in cell:
            waiting.append(rows)
            if sum(map(len, waiting)) >= ROW_GROUP_ROWS:
                yield pa.concat_tables(waiting).unify_dictionaries()
                waiting = []
    if waiting:
        yield pa.concat_tables(waiting).unify_dictionaries()


def _parts(name: str, metric: Metric, groups: Sequence[bytes]) -> Iterator[pa.Table]:
    """The rows of one cell, sorted, at most ROW_GROUP_ROWS in each table."""
    cell = parse_cell(name)
    key = Key(cell.metric, cell.version, metric.params_hash, cell.window, json.dumps(dict(cell.dimensions)))
    reports = _sorted(metric.mechanism, b"".join(groups))
    for start in range(0, len(reports), ROW_GROUP_ROWS):
        some = reports[start : start + ROW_GROUP_ROWS]
        yield pa.table([*_repeated(key, len(some)), *_columns(metric.mechanism, some)], schema=SCHEMA)


def _sorted(mechanism: Mechanism, packed: bytes) -> npt.NDArray[Any]:
    """The reports in the order of their bytes: bits as rows of bytes, the others as rows of 32-bit words."""
    if mechanism.form is Form.BITS:
        return np.sort(np.frombuffer(packed, dtype=f"S{mechanism.packed_size}"))
    words = np.frombuffer(packed, dtype="<u4").reshape(-1, mechanism.packed_size // 4)
    return words[np.lexsort(words.T)]


def _repeated(key: Key, rows: int) -> Iterator[pa.Array]:
    for value in key:
        if isinstance(value, int):
            yield pa.array(np.full(rows, value, dtype=np.int32))
        else:
            yield pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array([value]))


def _columns(mechanism: Mechanism, reports: npt.NDArray[Any]) -> list[pa.Array]:
    """The columns ``seed``, ``value`` and ``bits``; null where a report of this shape has none."""
    rows = len(reports)
    if mechanism.form is Form.BITS:
        offsets = np.arange(rows + 1, dtype=np.int32) * mechanism.packed_size
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(reports))]
        bits = pa.Array.from_buffers(pa.binary(), rows, buffers)
        return [pa.nulls(rows, pa.uint32()), pa.nulls(rows, pa.uint32()), bits]
    words = [pa.array(np.ascontiguousarray(column), type=pa.uint32()) for column in reports.T]
    seed = words[0] if mechanism.form is Form.HASH else pa.nulls(rows, pa.uint32())
    return [seed, words[-1], pa.nulls(rows, pa.binary())]


# reading


def describe(path: Path) -> list[Content]:
    """What a file says it holds; its rows are not read.

    Raises:
        OSError: it cannot be read.
        StorageError: it is no file of an archive.
    """
    try:
        about = json.loads((pq.read_metadata(path).metadata or {})[METADATA])
        layout, found = about["layout"], [Content(*each) for each in about["contents"]]
    except (pa.ArrowInvalid, KeyError, ValueError, TypeError):
        raise StorageError(f"{path.name} is no file of an archive") from None
    if layout != LAYOUT:
        raise StorageError(f"{path.name} was written by another version of Dither")
    return found


def rewrite(path: Path, gone: Callable[[str, str], bool], file: IO[bytes]) -> None:
    """Write what a file holds once more, without the windows that are ``gone``."""
    kept = [content for content in describe(path) if not gone(content.metric, content.window)]
    pairs = {(content.metric, content.window) for content in kept}
    with _writer(file, kept) as writer, pq.ParquetFile(path) as source:
        for rows in _row_groups(source):
            columns = (rows.column(name).to_pylist() for name in ("metric", "window_label"))
            mask = pa.array([pair in pairs for pair in zip(*columns, strict=True)], pa.bool_())
            some = rows.filter(mask)
            if len(some):
                writer.write_table(some)


def read(path: Path) -> Iterator[Part]:
    """The reports of a file, by cell; a cell may come several times.

    The rows may stand in any order, so that what another program chose from an archive can be read as well.

    Raises:
        OSError: it cannot be read.
        StorageError: it has not the columns of an archive.
    """
    try:
        with pq.ParquetFile(path) as source:
            for rows in _row_groups(source):
                yield from _by_cell(rows)
    except pa.ArrowException as error:
        raise StorageError(f"{path.name} is not what an archive holds") from error


def _row_groups(source: pq.ParquetFile) -> Iterator[pa.Table]:
    names = source.schema_arrow.names
    if not set(SCHEMA.names) <= set(names):
        raise StorageError("these are not the columns of an archive")
    for number in range(source.num_row_groups):
        rows = source.read_row_group(number, columns=SCHEMA.names).select(SCHEMA.names)
        yield rows.cast(SCHEMA.remove_metadata()).combine_chunks()


def _by_cell(rows: pa.Table) -> Iterator[Part]:
    """One part for each run of rows of one cell; rows in no order are put into one first."""
    codes = np.stack([_codes(rows.column(name)) for name in _CELL])
    ends = _run_ends(codes)
    if len(ends) > MAX_RUNS:
        order = np.lexsort(codes)
        rows, ends = rows.take(pa.array(order)), _run_ends(codes[:, order])
    start = 0
    for end in ends:
        some = rows.slice(start, end - start)
        key = Key(*(some.column(name)[0].as_py() for name in _CELL))
        yield Part(key, some.select(["seed", "value", "bits"]))
        start = end


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Equal numbers for equal values."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.combine_chunks().indices.to_numpy(zero_copy_only=False)
    return np.asarray(codes, dtype=np.int64)


def _run_ends(codes: npt.NDArray[np.int64]) -> list[int]:
    """Where runs of equal columns end."""
    changes = (codes[:, 1:] != codes[:, :-1]).any(axis=0)
    return [*(np.flatnonzero(changes) + 1).tolist(), codes.shape[1]] if codes.shape[1] else []
