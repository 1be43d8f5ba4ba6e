"""Reports in a file: read strictly, counted by metric, version, window and dimensions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dither_estimator import count
from dither_estimator.publication import Part, combined_document, estimate_document
from dither_protocol.errors import DitherError
from dither_protocol.registry import Metric, Registry
from dither_protocol.registry.metric import Dimensions
from dither_protocol.wire import Report, decode_json, parse_envelope, parse_report


class ReportFileError(DitherError, ValueError):
    """A line of the file is not a report of these registries; the message names the line and the field."""


class _Cell(NamedTuple):
    metric: str
    window: str
    version: int
    dimensions: Dimensions


def estimates_of(
    lines: Iterable[str], registries: Sequence[Registry], *, by_dimensions: bool
) -> Iterator[dict[str, Any]]:
    """One estimate document per metric, window and version (and combination of dimensions) found in the lines.

    Where several versions of a metric report about one window, their combination follows, if they have one
    domain; else they stand side by side, and nothing is mixed.

    Args:
        lines: a report, or a batch with its reports, in each; empty ones are skipped.
        registries: each brings one version of its metrics.
        by_dimensions: whether combinations of dimensions are kept apart.

    Raises:
        ReportFileError: a line is not a report of these registries; nothing is counted.
    """
    metrics = {(metric.name, metric.version): metric for registry in registries for metric in registry}
    cells: dict[_Cell, list[object]] = defaultdict(list)
    for number, line in enumerate(lines, start=1):
        try:
            for report in _reports(line) if line.strip() else ():
                cells[_cell_of(report, metrics, by_dimensions=by_dimensions)].append(report.data)
        except DitherError as error:
            raise ReportFileError(f"line {number}: {error}") from None
    parts: dict[tuple[str, str], dict[int, Part]] = defaultdict(dict)
    for cell, data in sorted(cells.items()):
        metric = metrics[cell.metric, cell.version]
        counters, n = count(metric.mechanism, data)
        parts[cell.metric, cell.window][cell.version] = (counters, metric, n)
        dimensions = cell.dimensions if by_dimensions else None
        yield estimate_document(metric, metric.parse_window(cell.window), dimensions, counters, n)
    if not by_dimensions:
        yield from _combined(parts)


def _combined(parts: dict[tuple[str, str], dict[int, Part]]) -> Iterator[dict[str, Any]]:
    for (_, window), versions in parts.items():
        if len(versions) > 1:
            metric = versions[max(versions)][1]
            document = combined_document(metric, metric.parse_window(window), versions)
            if document is not None:
                yield document


def _reports(line: str) -> Iterator[Report]:
    document = decode_json(line)
    if isinstance(document, dict) and "reports" in document:
        for report in parse_envelope(document).reports:
            yield parse_report(report)
    else:
        yield parse_report(document)


def _cell_of(report: Report, metrics: dict[tuple[str, int], Metric], *, by_dimensions: bool) -> _Cell:
    metric = metrics.get((report.metric, report.version))
    if metric is None:
        raise ReportFileError("the registry has no metric of this name and version")
    if report.params != metric.params_hash:
        raise ReportFileError("params: the report was made for another meaning of the metric")
    dimensions = metric.check_dimensions(report.dimensions)
    metric.parse_window(report.window)
    metric.mechanism.pack(report.data)
    return _Cell(metric.name, report.window, metric.version, dimensions if by_dimensions else ())
