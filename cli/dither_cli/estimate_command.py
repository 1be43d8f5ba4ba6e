"""``dither estimate FILE.jsonl --registry R``: estimates from reports in a file, without any server."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

import click
from rich.console import Console

from dither_cli.charts import ChartError, check_file, estimate_chart
from dither_cli.files import naming, read_registry
from dither_cli.report_file import Batches, Document, ReportFileError, estimates_of
from dither_cli.tables import estimate_table, heading
from dither_estimator import EstimationError
from dither_estimator.publication import encode_document
from dither_protocol.errors import RegistryError

CSV_COLUMNS: Final = (
    "metric", "versions", "window_start", "window_end", "dimensions", "status", "n", "mechanism", "epsilon", "target",
    "level", "value", "estimate", "std_error", "lower", "upper", "interval_method", "norm_sub", "present",
)  # fmt: skip


@click.command()
@click.argument("file", type=click.File("rb"))
@click.option(
    "--registry",
    "registries",
    required=True,
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The registry of the reports; repeat it for older versions.",
)
@click.option("--by-dimensions", is_flag=True, help="One estimate per combination of dimensions.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one document per line.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one row per value.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the estimate: .png or .svg."
)
def estimate(
    *,
    file: IO[bytes],
    registries: tuple[Path, ...],
    by_dimensions: bool,
    as_json: bool,
    as_csv: bool,
    plot: Path | None,
) -> None:
    """Estimate frequencies from reports in FILE.

    Each line of FILE is one report as it goes over the wire, or one batch with its "reports"; a batch that stands
    there again is counted once, as the server does. "-" reads standard input.
    """
    try:
        if plot:
            check_file(plot)
        documents = _estimates(file, registries, by_dimensions=by_dimensions)
        if plot:
            _plot(plot, documents)
    except (RegistryError, ReportFileError, EstimationError, ChartError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        for document in documents:
            click.echo(encode_document(document))
    elif as_csv:
        _write_csv(documents)
    else:
        _show(documents)


def _estimates(file: IO[bytes], registries: tuple[Path, ...], *, by_dimensions: bool) -> list[Document]:
    known = [read_registry(path) for path in registries]
    batches = Batches()
    with naming(file.name):
        documents = list(estimates_of(file, known, by_dimensions=by_dimensions, batches=batches))
    if not documents:
        raise ReportFileError("the file holds no reports")
    if batches.repeated:
        what = "batch" if batches.repeated == 1 else "batches"
        click.echo(f"skipped {batches.skipped:,} reports of {batches.repeated:,} repeated {what}", err=True)
    return documents


def _show(documents: Sequence[Document]) -> None:
    console = Console()
    for document in documents:
        console.print(estimate_table(document, console))


def _write_csv(documents: Sequence[Document]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, CSV_COLUMNS)
    writer.writeheader()
    for document in documents:
        parts = document.get("parts") or [document]
        common = {
            "metric": document["metric"],
            "versions": " ".join(str(part["version"]) for part in parts),
            "window_start": document["window"]["start"],
            "window_end": document["window"]["end"],
            "dimensions": ",".join(f"{k}={v}" for k, v in (document["dimensions"] or {}).items()),
            "mechanism": " ".join(part["mechanism"] for part in parts),
            "epsilon": " ".join(str(part["epsilon"]) for part in parts),
        } | {key: document[key] for key in ("status", "n", "target", "level")}
        for row in document["values"] or [{}]:  # a suppressed estimate has one row without values
            lower, upper = row.get("interval", ("", ""))
            columns = {key: row[key] for key in CSV_COLUMNS if key in row}
            writer.writerow(common | columns | {"lower": lower, "upper": upper})
    click.echo(text.getvalue(), nl=False)


def _plot(path: Path, documents: Sequence[Document]) -> None:
    """One chart per file: with several estimates, each file gets its number before the ending."""
    shown = [document for document in documents if document["values"]]
    if not shown:
        raise ChartError("every estimate is suppressed: there is nothing to draw")
    for number, document in enumerate(shown, start=1):
        target = path if len(shown) == 1 else path.with_stem(f"{path.stem}-{number}")
        estimate_chart(target, heading(document), document["values"])
