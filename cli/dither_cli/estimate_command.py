"""``dither estimate FILE... --registry R``: estimates from reports in files or in an archive, without any server."""

import csv
import io
from collections.abc import Sequence
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from dither_cli.charts import ChartError, check_file
from dither_cli.estimate_output import draw_estimates, show_estimates
from dither_cli.files import naming, read_registry
from dither_cli.report_file import (
    Batches,
    Counted,
    Document,
    ReportFileError,
    add_counted,
    count_lines,
    estimates_of,
    metrics_of,
)
from dither_estimator import EstimationError
from dither_estimator.publication import encode_document
from dither_protocol.errors import RegistryError, StorageError

_PARQUET: Final = ".parquet"
CSV_COLUMNS: Final = (
    "metric", "versions", "window_start", "window_end", "dimensions", "status", "n", "mechanism", "epsilon", "target",
    "level", "value", "estimate", "std_error", "lower", "upper", "interval_method", "norm_sub", "present",
)  # fmt: skip


@click.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, allow_dash=True)
)
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
    files: tuple[Path, ...],
    registries: tuple[Path, ...],
    by_dimensions: bool,
    as_json: bool,
    as_csv: bool,
    plot: Path | None,
) -> None:
    """Estimate frequencies from the reports in FILE...

    Each line of a FILE is one report as it goes over the wire, or one batch with its "reports"; a batch that stands
    there again is counted once, as the server does. "-" reads standard input. A FILE that ends in .parquet is one of
    a worker's archive; a folder, or a pattern in quotes, stands for all such files in it.
    """
    try:
        if plot:
            check_file(plot)
        documents = _estimates(files, registries, by_dimensions=by_dimensions)
        if plot:
            draw_estimates(plot, documents)
    except (RegistryError, ReportFileError, EstimationError, ChartError, StorageError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        for document in documents:
            click.echo(encode_document(document))
    elif as_csv:
        _write_csv(documents)
    else:
        show_estimates(documents, Console())


def _estimates(
    files: tuple[Path, ...], registries: tuple[Path, ...], *, by_dimensions: bool
) -> list[Document]:
    metrics = metrics_of(read_registry(path) for path in registries)
    batches = Batches()
    counted: Counted = {}
    archive: list[Path] = []
    for file in files:
        found = archive_files(file)
        archive += found
        if not found:
            with click.open_file(str(file), "rb") as lines, naming(file):
                add_counted(counted, count_lines(lines, metrics, batches, by_dimensions=by_dimensions))
    if archive:
        reports = import_module("dither_cli.archive_reports")  # pyarrow, for an archive only
        add_counted(counted, reports.count_archive(archive, metrics, by_dimensions=by_dimensions))
    if not counted:
        raise ReportFileError(f"the {'file holds' if len(files) == 1 else 'files hold'} no reports")
    if batches.repeated:
        what = "batch" if batches.repeated == 1 else "batches"
        click.echo(f"skipped {batches.skipped:,} reports of {batches.repeated:,} repeated {what}", err=True)
    return list(estimates_of(counted, metrics, by_dimensions=by_dimensions))


def archive_files(name: Path) -> list[Path]:
    """The files of an archive that a name stands for; none where it is the name of a file of another kind.

    Raises:
        BadParameter: there is nothing of this name.
    """
    if name.is_dir():
        found = sorted(name.glob(f"*{_PARQUET}"))
        if not found:
            raise click.BadParameter(f"the folder {str(name)!r} holds no {_PARQUET} files", param_hint="FILE")
        return found
    if name.exists() or str(name) == "-":
        return [name] if name.suffix == _PARQUET else []
    found = sorted(map(Path, glob(str(name), recursive=True)))
    if not found or any(path.suffix != _PARQUET for path in found):
        raise click.BadParameter(f"there is no file {str(name)!r}", param_hint="FILE")
    return found


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
