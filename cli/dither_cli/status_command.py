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
from dither_cli.tables import fitting_table, percent

_STYLES: Final = {"bad": "bold red", "warn": "yellow", "note": "dim"}
_URGENT: Final = ("bad", "warn")


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


def _ledger_row(row: Mapping[str, Any]) -> dict[str, str | Text]:
    latest = row["latest"] or {"window": "", "n": None}
    return {
        "metric": Text(row["metric"]),
        "received": f"{row['received']:,}",
        "counted": f"{row['counted']:,}",
        "duplicate": f"{row['duplicate']:,}",
        "rejected": f"{sum(row['rejected'].values()):,}",
        "dead": f"{row['dead']:,}",
        "in flight": f"{row['in_flight']:,}",
        "imbalance": Text(f"{row['imbalance']:,}", style="bold red" if row["imbalance"] else ""),
        "last window": Text(latest["window"]),
        "n": "" if latest["n"] is None else f"{latest['n']:,}",
    }


def _show_ledger(ledger: Mapping[str, Any], console: Console) -> None:
    rows = [
        _ledger_row(row) for row in [*ledger["metrics"], {"metric": "all", "latest": None} | ledger["total"]]
    ]
    optional = ("last window", "n", "dead", "in flight", "duplicate", "rejected")
    table = fitting_table(rows, console, left=("last window",), optional=optional)
    console.print(table)
    for partition in ledger["unsettled"]:
        console.print(Text(f"partition {partition} could not be measured in time", style="yellow"))
