"""``dither estimate FILE.jsonl --registry R``: estimates from reports in a file, without any server."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console

from dither_cli.tables import estimate_table
from dither_estimator import EstimationError, count
from dither_estimator.publication import encode_document, estimate_document
from dither_protocol.errors import DitherError, RegistryError
from dither_protocol.registry import Registry, load_registry
from dither_protocol.registry.metric import Dimensions
from dither_protocol.wire import Report, decode_json, parse_envelope, parse_report

CellKey = tuple[str, str, Dimensions]


class ReportFileError(DitherError, ValueError):
    """A line of the file is not a report of this registry; the message names the line and the field."""


@click.command()
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option(
    "--registry", "registry_path", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--by-dimensions", is_flag=True, help="One estimate per combination of dimensions.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one document per line.")
def estimate(file: IO[str], registry_path: Path, by_dimensions: bool, as_json: bool) -> None:
    """Estimate frequencies from reports in FILE.

    Each line of FILE is one report, or one batch with its "reports", as design of the wire has it. "-" reads
    standard input.
    """
    try:
        registry = load_registry(registry_path)
        documents = list(estimates_of(file, registry, by_dimensions=by_dimensions))
    except (RegistryError, ReportFileError, EstimationError) as error:
        raise click.ClickException(str(error)) from None
    console = Console()
    for document in documents:
        if as_json:
            click.echo(encode_document(document))
        else:
            console.print(estimate_table(document))
    if not documents:
        raise click.ClickException("the file holds no reports")


def estimates_of(
    lines: Iterator[str] | IO[str], registry: Registry, *, by_dimensions: bool
) -> Iterator[dict[str, Any]]:
    """One estimate document per metric and window (and combination of dimensions) found in the lines.

    Raises:
        ReportFileError: a line is not a report of this registry; nothing is counted.
    """
    cells: dict[CellKey, list[object]] = defaultdict(list)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                for report in _reports(line):
                    key, data = _cell(report, registry, by_dimensions=by_dimensions)
                    cells[key].append(data)
            except DitherError as error:
                raise ReportFileError(f"line {number}: {error}") from None
    for (name, label, dimensions), data in sorted(cells.items()):
        metric = registry.metric(name)
        counters, n = count(metric.mechanism, data)
        window = metric.parse_window(label)
        shown = dimensions if by_dimensions else None
        yield estimate_document(metric, window, shown, counters, n)


def _reports(line: str) -> Iterator[Report]:
    document = decode_json(line)
    if isinstance(document, dict) and "reports" in document:
        for report in parse_envelope(document).reports:
            yield parse_report(report)
    else:
        yield parse_report(document)


def _cell(report: Report, registry: Registry, *, by_dimensions: bool) -> tuple[CellKey, object]:
    metric = registry.metric(report.metric)
    if report.version != metric.version or report.params != metric.params_hash:
        raise ReportFileError("the report was made for another version of the metric")
    dimensions = metric.check_dimensions(report.dimensions)
    metric.parse_window(report.window)
    metric.mechanism.pack(report.data)
    return (metric.name, report.window, dimensions if by_dimensions else ()), report.data
