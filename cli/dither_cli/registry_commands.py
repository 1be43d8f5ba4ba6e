"""`dither registry check`: read a registry as the server would, and add up what it asks of a device."""

import json
from datetime import UTC, date, datetime, timedelta
from math import prod
from pathlib import Path
from typing import Any, Final

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dither_cli.exit_codes import ExitCode
from dither_cli.files import read_registry
from dither_protocol.errors import RegistryError
from dither_protocol.registry import Metric, Registry
from dither_protocol.registry.fields import USE_CASES

EXPIRES_SOON: Final = timedelta(days=30)


@click.group(short_help="Check a registry of metrics.")
def registry() -> None:
    """Check a registry of metrics."""


@registry.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def check(file: Path, *, as_json: bool) -> None:
    """Check FILE and show its metrics. Exits 0 if it is fine, 1 if it is refused."""
    try:
        checked = read_registry(file)
    except RegistryError as error:
        refused = {"path": error.path, "problem": error.problem}
        result: dict[str, Any] = {"project": None, "metrics": [], "warnings": [], "refused": refused}
    else:
        result = findings(checked, datetime.now(UTC).date())
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        show(result, Console(highlight=False))
    if result["refused"]:
        raise SystemExit(ExitCode.FAILED)


def findings(checked: Registry, today: date) -> dict[str, Any]:
    """Everything that `check` says, in JSON's types.

    The worst case is an upper bound: a device that answers every metric, in every window that begins on one UTC
    day, for every combination of its dimensions.
    """
    worst, limit = checked.worst_case_per_day(), checked.privacy.max_epsilon_per_day
    over = limit is not None and worst > limit * (1 + 1e-12)  # the sum of decimals may be off by a rounding
    problem = f"is {limit}, but the metrics add up to {worst:g} in the worst case"
    return {
        "project": checked.project,
        "metrics": [_row(metric) for metric in checked],
        "worst_case_epsilon_per_day": worst,
        "max_epsilon_per_day": limit,
        "warnings": [warning for metric in checked for warning in warnings_about(metric, today)],
        "refused": {"path": "privacy.max_epsilon_per_day", "problem": problem} if over else None,
    }


def warnings_about(metric: Metric, today: date) -> list[dict[str, str]]:
    """What is allowed but should be looked at."""
    found = []
    path = f"metrics.{metric.name}"
    if metric.use_case is not None:
        low, high = USE_CASES[metric.use_case]
        if not low <= metric.epsilon <= high:
            problem = f"{metric.epsilon:g} is outside the usual {low:g} to {high:g} for {metric.use_case}"
            found.append({"path": f"{path}.epsilon", "problem": problem})
    if metric.expires is not None and metric.expires < today:
        found.append({"path": f"{path}.expires", "problem": f"it expired on {metric.expires}"})
    elif metric.expires is not None and metric.expires - today <= EXPIRES_SOON:
        days = (metric.expires - today).days
        found.append(
            {"path": f"{path}.expires", "problem": f"it expires on {metric.expires}, in {days} days"}
        )
    return found


def _row(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "version": metric.version,
        "type": metric.type,
        "d": metric.mechanism.d,
        "mechanism": metric.mechanism.name,
        "epsilon": metric.epsilon,
        "period": metric.period,
        "dimensions": len(metric.dimensions),
        "cells_per_window": prod(len(values) for values in metric.dimensions.values()),
        "report_bits": metric.mechanism.report_bits,
        "params": metric.params_hash,
    }


def show(result: dict[str, Any], console: Console) -> None:
    """Print the findings for people."""
    if result["metrics"]:
        console.print(_table(result))
        limit = result["max_epsilon_per_day"]
        against = "no limit is set in [privacy]" if limit is None else f"limit {limit:g}"
        worst = result["worst_case_epsilon_per_day"]
        console.print(escape(f"Worst case per device and day: epsilon {worst:g} ({against})."))
    for warning in result["warnings"]:
        console.print(f"[yellow]warning[/] {escape(warning['path'])}: {escape(warning['problem'])}")
    if result["refused"]:
        path, problem = result["refused"]["path"], result["refused"]["problem"]
        console.print(f"[red]refused[/] {escape(path)}: {escape(problem)}")
    else:
        console.print("[green]ok[/]")


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
