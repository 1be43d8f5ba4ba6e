"""`dither registry`: check a registry, compare two, and sign what is published."""

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dither_cli.exit_codes import ExitCode
from dither_cli.files import read_registry
from dither_cli.registry_lint import findings
from dither_cli.signing_commands import keygen, sign, verify
from dither_cli.statement_command import statement_command
from dither_protocol.errors import RegistryError
from dither_protocol.registry.diff import diff_registries, verdict_of
from dither_protocol.registry.difference import Difference, Verdict

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_COLORS: Final = {Verdict.BREAKING: "red", Verdict.NOTICE: "yellow", Verdict.COMPATIBLE: "green"}


@click.group(short_help="Check, compare and sign registries of metrics.")
def registry() -> None:
    """Check, compare and sign registries of metrics. A FILE is TOML, or the signed form."""


for _command in (keygen, sign, verify, statement_command):
    registry.add_command(_command)


@registry.command()
@click.argument("file", type=_FILE)
@click.option(
    "--devices", type=click.IntRange(1), help="Expected devices.  [default: expected_devices in FILE]"
)
@click.option("--strict", is_flag=True, help="Exit 1 for a warning, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def check(file: Path, *, devices: int | None, strict: bool, as_json: bool) -> None:
    """Check FILE and show its metrics. Exits 0 if it is fine, 1 if it is refused."""
    try:
        checked = read_registry(file)
    except RegistryError as error:
        refused = {"path": error.path, "problem": error.problem}
        result: dict[str, Any] = {
            "project": None, "metrics": [], "warnings": [], "notices": [], "refused": refused
        }  # fmt: skip
    else:
        result = findings(checked, datetime.now(UTC).date(), devices)
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        show(result, Console(highlight=False), strict=strict)
    if result["refused"] or (strict and result["warnings"]):
        raise SystemExit(ExitCode.FAILED)


@registry.command()
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
@click.option("--strict", is_flag=True, help="Take a notice for breaking.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff(old: Path, new: Path, *, strict: bool, as_json: bool) -> None:
    """Say what changes from OLD to NEW, and whether devices, reports and promises survive it.

    Exits 0 if it is compatible, notices included; 1 if something is breaking, or a file is refused.
    """
    differences: list[Difference] = []
    refused = None
    try:
        file = old
        before = read_registry(old)
        file = new
        differences = diff_registries(before, read_registry(new), datetime.now(UTC))
    except RegistryError as error:
        refused = {"file": str(file), "path": error.path, "problem": error.problem}
    verdict = Verdict.BREAKING if refused else verdict_of(differences, strict=strict)
    if as_json:
        found = [difference.document() for difference in differences]
        click.echo(json.dumps({"verdict": verdict, "differences": found, "refused": refused}, indent=2))
    else:
        _show_differences(differences, verdict, refused, Console(highlight=False, soft_wrap=True))
    if verdict is Verdict.BREAKING:
        raise SystemExit(ExitCode.FAILED)


def _show_differences(
    differences: list[Difference], verdict: Verdict, refused: dict[str, str] | None, console: Console
) -> None:
    for found in differences:
        color = _COLORS[found.verdict]
        console.print(f"[{color}]{found.verdict}[/] {escape(found.path)}: {escape(found.reason)}")
        if found.move:
            console.print(f"    -> {escape(found.move)}")
    if refused:
        where = f"{refused['file']}: {refused['path']}: {refused['problem']}"
        console.print(f"[red]refused[/] {escape(where)}")
    elif not differences:
        console.print("[green]no difference[/]")
    else:
        console.print(
            f"[{_COLORS[verdict]}]{verdict}[/]: {len(differences)} difference{'s' * (len(differences) != 1)}"
        )


def show(result: dict[str, Any], console: Console, *, strict: bool = False) -> None:
    """Print the findings of `check` for people."""
    if result["metrics"]:
        console.print(_table(result))
    # Nothing below is wrapped: whoever searches a log for a sentence must find it on one line.
    say = partial(console.print, soft_wrap=True)
    if result["metrics"]:
        for span, key in (("and day", "per_day"), ("for life", "lifetime")):
            worst, limit = result[f"worst_case_epsilon_{key}"], result[f"max_epsilon_{key}"]
            spent = "without end, since a metric does not expire" if worst is None else f"{worst:g}"
            against = "no limit is set in [privacy]" if limit is None else f"limit {limit:g}"
            if key == "lifetime" and limit is not None and result["delta"] is not None:
                against = (
                    f"limit {limit:g} but for a probability of {result['delta']:g}, which allows larger sums"
                )
            say(escape(f"Worst case per device {span}: epsilon {spent} ({against})."))
    for warning in result["warnings"]:
        say(f"[yellow]warning[/] {escape(warning['path'])}: {escape(warning['problem'])}")
    for notice in result["notices"]:
        say(f"notice {escape(notice['path'])}: {escape(notice['problem'])}")
    if result["refused"]:
        path, problem = result["refused"]["path"], result["refused"]["problem"]
        say(f"[red]refused[/] {escape(path)}: {escape(problem)}")
    elif strict and result["warnings"]:
        say("[red]refused[/] for its warnings (--strict)")
    else:
        say("[green]ok[/]")


def _table(result: dict[str, Any]) -> Table:
    table = Table(
        title=f"Registry of {escape(result['project'])}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 0),
        show_edge=False,
    )
    for column in ("name", "version", "type", "d", "mechanism", "epsilon", "period", "dimensions", "bits"):
        left = column in ("name", "type", "mechanism", "period", "dimensions")
        table.add_column(
            column, justify="left" if left else "right", no_wrap=column != "name", overflow="fold"
        )
    for row in result["metrics"]:
        dimensions = f"{row['dimensions']} ({row['cells_per_window']})" if row["dimensions"] else "0"
        shown = row | {"dimensions": dimensions, "epsilon": f"{row['epsilon']:g}", "bits": row["report_bits"]}
        table.add_row(*(escape(str(shown[column.header])) for column in table.columns))
    table.caption = "dimensions: how many (cells per window); bits: of one report"
    return table
