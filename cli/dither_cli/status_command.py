"""``dither status``: how a running service is; its exit code is for programs that watch it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from dither_cli.api_place import api_errors, api_options, asked_api
from dither_cli.exit_codes import ExitCode
from dither_cli.store_tables import size_text, span_text
from dither_cli.tables import percent, plain_table

_STYLES: Final = {"bad": "bold red", "warn": "yellow", "note": "dim"}
_URGENT: Final = ("bad", "warn")
_TERMS: Final = ("received", "counted", "duplicate", "dead", "in_flight", "imbalance")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the answer of the server, JSON.")
@api_options
def status(*, as_json: bool, url: str | None, key: str | None, state_dir: Path | None) -> None:
    """Say how a running service is: alarms, reports, workers, store.

    Exits with 0 where all is well, with 1 where an alarm wants somebody to act, and with another code where the
    service cannot be asked (5: it does not answer). A note is no alarm.
    """
    with api_errors("status"):
        api = asked_api(url, key, state_dir)
        page = api.get("/v1/status")
        document = page.document()
    if as_json:
        click.echo(page.text)
    else:
        show_status(document, api.url, Console(highlight=False))
    if any(alarm["level"] in _URGENT for alarm in document["alarms"]):
        raise SystemExit(ExitCode.FAILED)


def show_status(document: Mapping[str, Any], url: str, console: Console) -> None:
    """Print it for people."""
    head = f"{document['project']} at {url}, Dither {document['version']}, {document['as_of']}"
    console.print(Text(head, style="bold"))
    _show_alarms(document["alarms"], console)
    if document["ledger"] is None:
        console.print(Text(f"store: cannot be read: {document['trouble']}", style="red"))
        return
    _show_counting(document["counting"], console)
    _show_ledger(document["ledger"], console)


def _show_alarms(alarms: Sequence[Mapping[str, Any]], console: Console) -> None:
    if not any(alarm["level"] in _URGENT for alarm in alarms):
        console.print(Text("no alarms", style="green"))
    for alarm in sorted(alarms, key=lambda alarm: list(_STYLES).index(alarm["level"])):
        about = f"{alarm['metric']}: " if alarm["metric"] else ""
        console.print(Text(f"{alarm['level']:<5}{about}{alarm['text']}", style=_STYLES[alarm["level"]]))


def _show_counting(counting: Mapping[str, Any], console: Console) -> None:
    workers = counting["workers"]
    living = sum(worker["lives"] for worker in workers)
    publishing = next((worker["name"] for worker in workers if worker["publishing"]), "nobody")
    lag = "none" if counting["waiting_s"] is None else span_text(counting["waiting_s"])
    backlog = max((each["backlog_bytes"] for each in counting["partitions"]), default=0)
    share = percent(backlog / counting["high_water_bytes"])
    dead = sum(each["dead_entries"] for each in counting["partitions"])
    console.print(Text(f"workers: {living:,} living, {publishing} publishes; lag {lag}"))
    console.print(
        Text(f"store: largest backlog {size_text(backlog)}, {share} of the mark; {dead:,} batches set aside")
    )


def _show_ledger(ledger: Mapping[str, Any], console: Console) -> None:
    columns = (
        "value",
        "received",
        "counted",
        "duplicate",
        "rejected",
        "dead",
        "in flight",
        "imbalance",
        "last",
        "n",
    )
    table = plain_table(columns, left=("value", "last"))
    table.columns[0].header = "metric"
    table.columns[-2].header = "last window"
    for row in [*ledger["metrics"], {"metric": "all", "latest": None} | ledger["total"]]:
        latest = row["latest"] or {"window": "", "n": None}
        imbalance = Text(f"{row['imbalance']:,}", style="bold red" if row["imbalance"] else "")
        numbers = {name: f"{row[name]:,}" for name in _TERMS}
        table.add_row(
            Text(row["metric"]),
            *(numbers[name] for name in ("received", "counted", "duplicate")),
            f"{sum(row['rejected'].values()):,}",
            numbers["dead"],
            numbers["in_flight"],
            imbalance,
            Text(latest["window"]),
            "" if latest["n"] is None else f"{latest['n']:,}",
        )
    console.print(table)
    for partition in ledger["unsettled"]:
        console.print(Text(f"partition {partition} could not be measured in time", style="yellow"))
