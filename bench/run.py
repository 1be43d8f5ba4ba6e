"""``make bench``: measure, print, and write results.json beside this file."""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from harness import Row, Skipped, machine
from suites import SUITES, as_json, cases

RESULTS = Path(__file__).parent / "results.json"


def main() -> None:
    """Run every benchmark in turn."""
    parser = argparse.ArgumentParser(description="Measure, as ratios in one run.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument(
        "--only", action="append", choices=list(SUITES), default=[], help="a part; again for more"
    )
    given = parser.parse_args()
    if given.only and given.output == RESULTS:
        parser.error("parts alone do not make the committed results: name another file with --output")
    console = Console()
    measured = []
    table = Table("what", "measured", "unit", "target", "ratio", "met")
    for case in cases(tuple(given.only)):
        try:
            for row in case.rows():
                measured.append(as_json(case, row))
                console.print(f"  {row.name}: {row.value:,.1f} {row.unit}")
                table.add_row(*_cells(row))
        except Skipped as reason:
            console.print(f"  {case.suite} is not measured: {reason}")
    console.print(table)
    result = {"machine": machine(), "rows": measured}
    given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    console.print(f"written to {given.output.name}")


def _cells(row: Row) -> list[str]:
    met = {True: "yes", False: "no", None: ""}[row.met]
    target = "" if row.target is None else f"{row.target:,.0f}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return [row.name, f"{row.value:,.1f}", row.unit, target, ratio, met]


if __name__ == "__main__":
    main()
