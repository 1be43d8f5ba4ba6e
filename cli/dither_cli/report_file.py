"""Reports in files: read strictly, counted by metric, version, window and dimensions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple, TypeAlias

from dither_estimator import count
from dither_estimator.cells import Counts, add
from dither_estimator.publication import Part, Scope, combined_document, estimate_document, window_scope
from dither_protocol.errors import DimensionError, DitherError, MechanismError, WindowError
from dither_protocol.registry import Metric, Registry
from dither_protocol.registry.metric import Dimensions
from dither_protocol.wire import Envelope, Report, decode_json, parse_envelope, parse_report

Document: TypeAlias = dict[str, Any]


class ReportFileError(DitherError, ValueError):
    """A report of the file is none about these metrics; the message names its place and the field."""


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


class Key(NamedTuple):
    """A cell, in the order in which estimates are shown; without dimensions where they are not kept apart."""

    metric: str
    window: str
    version: int
    dimensions: Dimensions


Metrics: TypeAlias = dict[tuple[str, int], Metric]
"""By name and version."""

Counted: TypeAlias = dict[Key, tuple[Counts, int]]
"""Counters and n of each cell."""


def metrics_of(registries: Iterable[Registry]) -> Metrics:
    """The metrics of several registries: each brings one version of its own."""
    return {(metric.name, metric.version): metric for registry in registries for metric in registry}


def estimates_of(counted: Counted, metrics: Metrics, *, by_dimensions: bool) -> Iterator[Document]:
    """One estimate document per metric, window and version (and combination of dimensions).

    Where several versions of a metric report about one window, their combination follows, if they have one
    domain; else they stand side by side, and nothing is mixed.

    Args:
        counted: what reports add up to.
        metrics: at least those of the cells.
        by_dimensions: whether combinations of dimensions are kept apart.
    """
    parts: dict[tuple[str, str], dict[int, Part]] = defaultdict(dict)
    for cell, (counters, n) in sorted(counted.items(), key=lambda item: item[0]):
        metric = metrics[cell.metric, cell.version]
        parts[cell.metric, cell.window][cell.version] = (counters, metric, n)
        dimensions = cell.dimensions if by_dimensions else None
        yield estimate_document(metric, _scope(metric, cell.window), dimensions, counters, n)
    if not by_dimensions:
        yield from _combined(parts)


def count_lines(
    lines: Iterable[bytes], metrics: Metrics, batches: Batches, *, by_dimensions: bool
) -> Counted:
    """Count the reports in lines of JSON.

    Args:
        lines: a report, or a batch with its reports, in each; empty ones are skipped.
        metrics: those that the reports may be about.
        batches: notes what was left out.
        by_dimensions: whether combinations of dimensions are kept apart.

    Raises:
        ReportFileError: a line is not a report about these metrics; nothing is counted.
    """
    cells: dict[Key, list[object]] = defaultdict(list)
    for number, line in enumerate(lines, start=1):
        try:
            for report in _reports(line.decode("utf-8"), batches) if line.strip() else ():
                cell = cell_of(report, metrics, by_dimensions=by_dimensions)
                with named("data", MechanismError):
                    metrics[cell.metric, cell.version].mechanism.pack(report.data)
                cells[cell].append(report.data)
        except UnicodeDecodeError:
            raise ReportFileError(f"line {number}: is not UTF-8") from None
        except DitherError as error:
            raise ReportFileError(f"line {number}: {error}") from None
    return {cell: count(metrics[cell.metric, cell.version].mechanism, data) for cell, data in cells.items()}


def add_counted(total: Counted, more: Counted) -> None:
    """Add the counts of another file.

    Raises:
        StorageError: a counter is beyond int64.
    """
    for cell, (counters, n) in more.items():
        if cell in total:
            before, before_n = total[cell]
            n_both, both = add(before_n, before, n, counters)
            total[cell] = both, n_both
        else:
            total[cell] = counters, n


def _combined(parts: dict[tuple[str, str], dict[int, Part]]) -> Iterator[Document]:
    for (_, window), versions in parts.items():
        if len(versions) > 1:
            document = combined_document(_scope(versions[max(versions)][1], window), versions)
            if document is not None:
                yield document


def _scope(metric: Metric, label: str) -> Scope:
    """A window that is open still, for all that a file can tell."""
    window = metric.parse_window(label)
    return window_scope(window, metric.closes_at(window), final=False)


def _reports(line: str, batches: Batches) -> Iterator[Report]:
    document = decode_json(line)
    if not isinstance(document, dict) or "reports" not in document:
        yield parse_report(document)
        return
    batch = parse_envelope(document)
    for report in batch.reports if batches.first(batch) else ():
        yield parse_report(report)


def cell_of(report: Report, metrics: Metrics, *, by_dimensions: bool) -> Key:
    """The cell of a report; its data is not looked at.

    Raises:
        ReportFileError: it is about none of the metrics, or not in their terms; begins with the key that is wrong.
    """
    metric = metrics.get((report.metric, report.version))
    if metric is None:
        known = any(name == report.metric for name, _ in metrics)
        place = "version" if known else "metric"
        raise ReportFileError(f"{place}: the registry has no metric of this name and version")
    if report.params != metric.params_hash:
        raise ReportFileError("params: the report was made for another meaning of the metric")
    with named("dimensions", DimensionError):
        dimensions = metric.check_dimensions(report.dimensions)
    with named("window", WindowError):
        metric.parse_window(report.window)
    return Key(metric.name, report.window, metric.version, dimensions if by_dimensions else ())


@contextmanager
def named(place: str, kind: type[DitherError]) -> Iterator[None]:
    """Let an error begin with the key of the report that it is about."""
    try:
        yield
    except kind as error:
        raise ReportFileError(f"{place}: {str(error).removeprefix(place + ' ')}") from None
