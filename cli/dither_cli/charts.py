"""Charts as PNG or SVG files. matplotlib is imported when the first one is drawn: it takes half a second."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dither_cli.files import naming, write_problem
from dither_protocol.errors import DitherError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES: Final = (".png", ".svg")
MAX_BARS: Final = 60

_STYLES: Final = ("-", (0, (6, 2)), (2, (6, 2)), (4, (6, 2)), ":", "-.")


class ChartError(DitherError):
    """A chart cannot be drawn; the message says why."""


def check_file(path: Path) -> None:
    """Refuse a file that would not become a chart, before any work is done.

    Raises:
        ChartError: another ending than .png or .svg, or a place that cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ChartError("a chart is a .png or .svg file")
    if problem := write_problem(path):
        raise ChartError(problem)


def _figure(width: float, height: float) -> tuple["Figure", "Axes"]:
    from matplotlib.figure import Figure  # noqa: PLC0415  see the module's docstring

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _save(figure: "Figure", path: Path) -> None:
    with naming(path):
        figure.savefig(path, dpi=120)


def error_chart(path: Path, title: str, n: Sequence[int], lines: Mapping[str, Sequence[float]]) -> None:
    """Standard error against the number of reports, a line per mechanism, both axes logarithmic."""
    check_file(path)
    figure, axes = _figure(8, 5)
    best = min(errors[0] for errors in lines.values())
    for (name, errors), style in zip(lines.items(), cycle(_STYLES)):  # many lines all but coincide
        label = f"{name}, {errors[0] / best:.2f} times the best"
        axes.loglog(n, errors, label=label, linestyle=style, linewidth=1.6)
    axes.set_xlabel("reports")
    axes.set_ylabel("standard error of a share")
    axes.set_title(title)
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend()
    _save(figure, path)


def estimate_chart(path: Path, title: str, values: Sequence[Mapping[str, Any]]) -> None:
    """Estimates as bars with their intervals as whiskers, and the true zero as a line; the MAX_BARS largest."""
    check_file(path)
    shown = sorted(values, key=lambda row: -row["estimate"])[:MAX_BARS]
    figure, axes = _figure(8, max(2.5, 0.28 * len(shown) + 1.2))
    places = range(len(shown))
    shares = [row["estimate"] for row in shown]
    whiskers = [
        [row["estimate"] - row["interval"][0] for row in shown],
        [row["interval"][1] - row["estimate"] for row in shown],
    ]
    axes.barh(places, shares, xerr=whiskers, capsize=3, color="#4c78a8", ecolor="#333333")
    # A dollar sign would begin a formula, and labels are what anybody wrote.
    axes.set_yticks(places, labels=[row["value"].replace("$", r"\$") for row in shown])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel("share, with its interval")
    left_out = len(values) - len(shown)
    axes.set_title(title + (f"\n{left_out} smaller values are not shown" if left_out else ""), fontsize=10)
    _save(figure, path)
