"""``make bench-peers``: the research libraries of the field beside Dither, into results-peers.json beside this file."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from harness import Row, Skipped, machine
from ldp_peers import NAMES, Facts, facts, installed, own_facts, rows

RESULTS = Path(__file__).parent / "results-peers.json"
_FILE_WIDTH = 160


def main() -> None:
    """Measure every library in turn."""
    parser = argparse.ArgumentParser(description="Measure the research libraries of the field beside Dither.")
    parser.add_argument("--python", default="python3", help="makes the environments of the libraries")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument(
        "--only", action="append", choices=NAMES, default=[], help="a library; again for more"
    )
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    speed = Table("epsilon = 1", "theirs, 1/s", "Dither, 1/s", "Dither over theirs")
    traits = Table("library", "version", "noise from", "repeats when seeded", "intervals")
    peers = [_peer(console, traits, "dither", own_facts(), None)]
    measured: list[Row] = []
    for name in given.only or NAMES:
        found, skipped = None, None
        try:
            python = installed(name, given.python)
            found = facts(name, python)
            for row in rows(name, python):
                measured.append(row)
                console.print(f"  {row.name}: {row.relative:,.2f}")
                speed.add_row(row.name, f"{row.over:,.0f}", f"{row.value:,.0f}", f"{row.relative:,.2f}")
        except Skipped as reason:
            skipped = str(reason)
        peers.append(_peer(console, traits, name, found, skipped))
    console.print(speed)
    console.print(traits)
    result = {"machine": machine(), "peers": peers, "rows": [row.as_json() for row in measured]}
    given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    console.print(f"written to {given.output.name}")


def _peer(
    console: Console, traits: Table, name: str, found: Facts | None, skipped: str | None
) -> dict[str, Any]:
    """A library as it stands in the results, and as a line of the table."""
    if skipped is not None:
        console.print(f"  {name} is not measured: {skipped}", soft_wrap=True)
    if found is not None:
        again = "yes" if found.repeats_when_seeded else "no"
        traits.add_row(name, found.version, found.random, again, found.intervals)
    return {"name": name, "skipped": skipped} | (asdict(found) if found is not None else {})


if __name__ == "__main__":
    main()
