"""Reports in a file: read strictly, counted by metric, version, window and dimensions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple, TypeAlias

from dither_estimator import count
from dither_estimator.publication import Part, combined_document, estimate_document
from dither_protocol.errors import DimensionError, DitherError, MechanismError, WindowError
from dither_protocol.registry import Metric, Registry
from dither_protocol.registry.metric import Dimensions
from dither_protocol.wire import Envelope, Report, decode_json, parse_envelope, parse_report

Document: TypeAlias = dict[str, Any]


class ReportFileError(DitherError, ValueError):
    """A line of the file is not a report of these registries; the message names the line and the field."""


@dataclass
class Batches:
    """The batches of a file, each counted once: a device sends one again whose answer was lost.

    Attributes:
        repeated: how many came again.
        skipped: how many reports were in those.
    """

    repeated: int = 0
    skipped: int = 0
    _seen: set[tuple[bytes, date]] = field(default_factory=set, repr=False)

    def first(self, batch: Envelope) -> bool:
        """Whether it has not come before, by the server's rule: the same id and the same last day."""
        key = (batch.batch_id, batch.until)
        if key in self._seen:
            self.repeated += 1
            self.skipped += len(batch.reports)
            return False
        self._seen.add(key)
        return True


class _Cell(NamedTuple):
    metric: str
    window: str
    version: int
    dimensions: Dimensions


_Metrics: TypeAlias = dict[tuple[str, int], Metric]


def estimates_of(
    lines: Iterable[bytes], registries: Sequence[Registry], *, by_dimensions: bool, batches: Batches
) -> Iterator[Document]:
    """One estimate document per metric, window and version (and combination of dimensions) found in the lines.

    Where several versions of a metric report about one window, their combination follows, if they have one
    domain; else they stand side by side, and nothing is mixed.

    Args:
        lines: a report, or a batch with its reports, in each; empty ones are skipped.
        registries: each brings one version of its metrics.
        by_dimensions: whether combinations of dimensions are kept apart.
        batches: notes what was left out.

    Raises:
        ReportFileError: a line is not a report of these registries; nothing is counted.
    """
    metrics = {(metric.name, metric.version): metric for registry in registries for metric in registry}
    cells = _read(lines, metrics, batches, by_dimensions=by_dimensions)
    parts: dict[tuple[str, str], dict[int, Part]] = defaultdict(dict)
    for cell, data in sorted(cells.items()):
        metric = metrics[cell.metric, cell.version]
        counters, n = count(metric.mechanism, data)
        parts[cell.metric, cell.window][cell.version] = (counters, metric, n)
        dimensions = cell.dimensions if by_dimensions else None
        yield estimate_document(metric, metric.parse_window(cell.window), dimensions, counters, n)
    if not by_dimensions:
        yield from _combined(parts)


def _read(
    lines: Iterable[bytes], metrics: _Metrics, batches: Batches, *, by_dimensions: bool
) -> dict[_Cell, list[object]]:
    cells: dict[_Cell, list[object]] = defaultdict(list)
    for number, line in enumerate(lines, start=1):
        try:
            for report in _reports(line.decode("utf-8"), batches) if line.strip() else ():
                cells[_cell_of(report, metrics, by_dimensions=by_dimensions)].append(report.data)
        except UnicodeDecodeError:
            raise ReportFileError(f"line {number}: is not UTF-8") from None
        except DitherError as error:
            raise ReportFileError(f"line {number}: {error}") from None
    return cells


def _combined(parts: dict[tuple[str, str], dict[int, Part]]) -> Iterator[Document]:
    for (_, window), versions in parts.items():
        if len(versions) > 1:
            metric = versions[max(versions)][1]
            document = combined_document(metric, metric.parse_window(window), versions)
            if document is not None:
                yield document


def _reports(line: str, batches: Batches) -> Iterator[Report]:
    document = decode_json(line)
    if not isinstance(document, dict) or "reports" not in document:
        yield parse_report(document)
        return
    batch = parse_envelope(document)
    for report in batch.reports if batches.first(batch) else ():
        yield parse_report(report)


def _cell_of(report: Report, metrics: _Metrics, *, by_dimensions: bool) -> _Cell:
    metric = metrics.get((report.metric, report.version))
    if metric is None:
        known = any(name == report.metric for name, _ in metrics)
        place = "version" if known else "metric"
        raise ReportFileError(f"{place}: the registry has no metric of this name and version")
    if report.params != metric.params_hash:
        raise ReportFileError("params: the report was made for another meaning of the metric")
    with _named("dimensions", DimensionError):
        dimensions = metric.check_dimensions(report.dimensions)
    with _named("window", WindowError):
        metric.parse_window(report.window)
    with _named("data", MechanismError):
        metric.mechanism.pack(report.data)
    return _Cell(metric.name, report.window, metric.version, dimensions if by_dimensions else ())


@contextmanager
def _named(place: str, kind: type[DitherError]) -> Iterator[None]:
    """Let an error begin with the key of the report that it is about."""
    try:
        yield
    except kind as error:
        raise ReportFileError(f"{place}: {str(error).removeprefix(place + ' ')}") from None
