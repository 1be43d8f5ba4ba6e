"""``make bench-check``: measure the guarded rows, and fail where one is more than 25 % worse than committed.

Exit status: 0 where every row held; 1 where one is worse, missing or over another yardstick; 2 where there is nothing
to compare with.
"""

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from comparison import FAILING, LIMIT, Figure, Finding, Verdict, compare, figures, settle
from harness import ANY_MACHINE, Case, Skipped, machine
from suites import SUITES, as_json, cases

RESULTS = Path(__file__).parent / "results.json"
_FILE_WIDTH = 160


def main() -> int:
    """Run the check; gives the exit status."""
    parser = argparse.ArgumentParser(description="Hold the guarded rows against the committed results.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file to compare with")
    parser.add_argument(
        "--only", action="append", choices=list(SUITES), default=[], help="a part; again for more"
    )
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    document = json.loads(given.results.read_text(encoding="utf-8"))
    only = tuple(given.only) or tuple(SUITES)
    committed = {name: figure for name, figure in figures(document["rows"]).items() if figure.suite in only}
    if not committed:
        console.print(f"{given.results.name} has no guarded row to compare with: run `make bench` first")
        return 2
    _note_machine(console, document["machine"])
    measured, skipped = _measure(console, only, committed)
    findings = compare(committed, measured, skipped)
    console.print(_table(findings))
    failed = [finding for finding in findings if finding.verdict in FAILING]
    for finding in failed:
        console.print(_sentence(finding), style="bold", soft_wrap=True)
    console.print(f"{len(failed)} of {len(findings)} rows failed; the limit is {LIMIT:.0%}")
    return 1 if failed else 0


def _note_machine(console: Console, committed: dict[str, Any]) -> None:
    """Yardsticks carry figures over to another machine, but not exactly; and a busy one delays whatever waits."""
    here = machine()
    other = [f"{key} {committed[key]}, here {here[key]}" for key in here if committed.get(key) != here[key]]
    if other:
        console.print("the committed figures are of another machine: " + "; ".join(other))
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        console.print(
            f"this machine is busy (load {load:.1f} on {cores} cores): rows may fail for that alone"
        )


def _measure(
    console: Console, only: tuple[str, ...], committed: dict[str, Figure]
) -> tuple[dict[str, Figure], dict[str, str]]:
    measured: dict[str, Figure] = {}
    skipped: dict[str, str] = {}
    for case in cases(only):
        if not case.guarded:
            continue
        try:
            measured |= settle(partial(_once, console, case), committed)
        except Skipped as reason:
            skipped[case.suite] = str(reason)
    return measured, skipped


def _once(console: Console, case: Case) -> dict[str, Figure]:
    found = figures(as_json(case, row) for row in case.rows())
    for figure in found.values():
        over = "" if figure.yardstick == ANY_MACHINE else f" over {figure.yardstick}"
        console.print(f"  {figure.name}: {figure.relative:.4g}{over}", soft_wrap=True)
    return found


def _table(findings: list[Finding]) -> Table:
    table = Table("what", "committed ratio", "ratio now", "worse by", "verdict", "reason")
    for found in findings:
        share = "" if found.worse_by is None else f"{found.worse_by:+.1%}"
        style = "bold red" if found.verdict in FAILING else None
        table.add_row(
            found.name,
            _ratio(found.committed),
            _ratio(found.measured),
            share,
            found.verdict,
            found.reason,
            style=style,
        )
    return table


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _sentence(found: Finding) -> str:
    if found.verdict is Verdict.WORSE:
        return (
            f"{found.name}: {_ratio(found.measured)}, committed {_ratio(found.committed)}: "
            f"worse by {found.worse_by:.1%}"
        )
    return f"{found.name}: {found.verdict}, {found.reason} (if that is meant, run `make bench` and commit)"


if __name__ == "__main__":
    sys.exit(main())
