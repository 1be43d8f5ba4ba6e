"""``make bench-growth``: time and memory against reports, values, metrics and cells, with exponents and knees.

Writes growth.json and the tables of GROWTH.md beside this file, and the plots as one page into the folder ``out``.
Ends with status 1 where a cost grows faster than its size.
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from growth_cost import Point
from growth_curves import SUITES, Curve, Suite, curves
from growth_page import page
from growth_words import cost_text, exponent_text, with_tables
from harness import machine

FOLDER: Final = Path(__file__).parent
OUT: Final = FOLDER / "out"


def main() -> int:
    """Measure, write, and say what was found."""
    given = _arguments()
    console = Console()
    suites = [suite for suite in SUITES if not given.only or suite.key in given.only]
    found = list(curves(_measure(suites, console, quick=given.quick)))
    document: dict[str, Any] = {"machine": machine(), "curves": [curve.as_json() for curve in found]}
    whole = not given.quick and not given.only
    _write(document, whole=whole)
    console.print(_table(found))
    console.print(f"plots: {_shown(OUT / 'growth.html')}")
    if not whole:
        console.print("a part or a quick run: growth.json and GROWTH.md stay as they are")
    fast = [curve["title"] for curve in document["curves"] if curve["faster_than_linear"]]
    for title in fast:
        console.print(f"[bold red]faster than linear:[/] {title}")
    return 1 if fast else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how costs grow.")
    parser.add_argument("--quick", action="store_true", help="few sizes, in about a minute")
    parser.add_argument(
        "--only",
        action="append",
        choices=[suite.key for suite in SUITES],
        default=[],
        help="a part; again for more",
    )
    return parser.parse_args()


def _measure(suites: Sequence[Suite], console: Console, *, quick: bool) -> list[Point]:
    """All points of some suites; each size in a process of its own, one after the other."""
    tasks = [(suite, size) for suite in suites for size in (suite.quick if quick else suite.sizes)]
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    found: list[Point] = []
    context = multiprocessing.get_context("spawn")
    with Progress(*columns, console=console) as bars:
        bar = bars.add_task("", total=len(tasks))
        with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
            for suite, size in tasks:
                bars.update(bar, description=f"{size:,} {suite.what}")
                found += pool.submit(_points, suite.key, size).result()
                bars.advance(bar)
    return found


def _points(key: str, size: int) -> list[Point]:
    """In a process of its own: the points of one size."""
    suite = next(suite for suite in SUITES if suite.key == key)
    return list(suite.measure(size))


def _write(document: dict[str, Any], *, whole: bool) -> None:
    OUT.mkdir(exist_ok=True)
    (OUT / "growth.html").write_text(page(document), encoding="utf-8")
    text = json.dumps(document, indent=1) + "\n"
    if not whole:
        (OUT / "growth-part.json").write_text(text, encoding="utf-8")
        return
    (FOLDER / "growth.json").write_text(text, encoding="utf-8")
    notes = FOLDER / "GROWTH.md"
    notes.write_text(with_tables(notes.read_text("utf-8"), document), encoding="utf-8")


def _table(found: Sequence[Curve]) -> Table:
    table = Table("cost", "smallest", "largest", "exponent", "knee")
    for curve in found:
        shown = curve.as_json()
        points, unit = shown["points"], shown["unit"]
        table.add_row(
            shown["title"],
            cost_text(points[0][1], unit),
            cost_text(points[-1][1], unit),
            exponent_text(shown),
            shown["knee"],
        )
    return table


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    sys.exit(main())
