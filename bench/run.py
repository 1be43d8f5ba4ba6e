"""``make bench``: measure, print, and write results.json beside this file."""

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

import counting
import ingest
import peers
import query
import sdk
import store
from harness import Row, machine

RESULTS = Path(__file__).parent / "results.json"


def main() -> None:
    """Run every benchmark in turn."""
    console = Console()
    measured: list[Row] = []
    table = Table("what", "measured", "unit", "target", "ratio", "met")
    for suite in (sdk, peers, counting, store, ingest, query):
        for row in suite.rows():
            measured.append(row)
            console.print(f"  {row.name}: {row.value:,.1f} {row.unit}")
            met = {True: "yes", False: "no", None: ""}[row.met]
            target = "" if row.target is None else f"{row.target:,.0f}"
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            table.add_row(row.name, f"{row.value:,.1f}", row.unit, target, ratio, met)
    console.print(table)
    result = {"machine": machine(), "rows": [row.as_json() for row in measured]}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    console.print(f"written to {RESULTS.name}")


if __name__ == "__main__":
    main()
