"""Reports in the archive of a worker: Parquet, counted as the store counted them. Needs pyarrow."""

from collections.abc import Iterable
from pathlib import Path

from dither_cli.files import naming
from dither_cli.report_file import Counted, Metrics, ReportFileError, add_counted, cell_of, named
from dither_estimator.archive_file import Part, read
from dither_estimator.counting import count_packed
from dither_protocol.errors import DitherError, MechanismError
from dither_protocol.wire import Report


def count_archive(paths: Iterable[Path], metrics: Metrics, *, by_dimensions: bool) -> Counted:
    """Count the reports in files of an archive.

    Args:
        paths: the files.
        metrics: those that the reports may be about.
        by_dimensions: whether combinations of dimensions are kept apart.

    Raises:
        OSError: a file cannot be read; it is named.
        ReportFileError: a file holds what is no report about these metrics; it is named.
    """
    total: Counted = {}
    for path in paths:
        try:
            with naming(path):
                for part in read(path):
                    add_counted(total, _count(part, metrics, by_dimensions=by_dimensions))
        except DitherError as error:
            raise ReportFileError(f"{path.name}: {error}") from None
    return total


def _count(part: Part, metrics: Metrics, *, by_dimensions: bool) -> Counted:
    key = part.key
    about = Report(key.metric, key.version, key.params, key.window, part.dimensions, data=0)
    cell = cell_of(about, metrics, by_dimensions=by_dimensions)
    mechanism = metrics[cell.metric, cell.version].mechanism
    with named("data", MechanismError):
        return {cell: count_packed(mechanism, part.packed(mechanism))}
