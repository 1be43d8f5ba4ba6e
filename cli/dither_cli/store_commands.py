"""``dither store``: what the store holds, and forgetting."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from dither_cli.exit_codes import ExitCode
from dither_cli.state_dir import default_state_dir
from dither_cli.store_place import fail, opened_store
from dither_cli.store_tables import show_stats
from dither_estimator.archive_folder import Folder
from dither_estimator.definitions import Definitions
from dither_estimator.expiry import Calendar
from dither_estimator.pruning import Choice, Pruned, Pruner
from dither_estimator.retention import DEAD_DAYS, MAX_APART
from dither_estimator.stats import read_stats
from dither_estimator.store import Store
from dither_protocol.storage import PartitionKeys, partition_tags

_WORDS: Final = {
    "cells": ("cell", "cells"),
    "accounts": ("account of a window", "accounts of windows"),
    "estimates": ("estimate", "estimates"),
    "archived": ("archived report", "archived reports"),
    "dead": ("entry that was set aside", "entries that were set aside"),
}
PUBLISHER_PAUSE_S: Final = 2.0
"""A worker may be publishing what it has read before it was forgotten: so long after, what it published goes too."""


@click.group(short_help="Look at the store, and let it forget.")
def store() -> None:
    """Look at the store, and let it forget."""


def _place(command: Callable[..., None]) -> Callable[..., None]:
    url = click.option(
        "--store",
        "url",
        envvar="DITHER_STORE_URL",
        help="URL of the store.  [env: DITHER_STORE_URL; default: that of the dither serve on this machine]",
    )
    state_dir = click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="State directory of that dither serve.  [default: $DITHER_HOME, or the user's state folder]",
    )
    return url(state_dir(command))


def _state_dir(given: Path | None) -> Path:
    return given or default_state_dir(os.environ, Path.home())


@store.command()
@_place
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stats(*, url: str | None, state_dir: Path | None, as_json: bool) -> None:
    """Show what the store holds: backlog, lag, entries set aside, memory by kind, workers.

    Of a large store cells and estimates are counted in a sample, and said to be ("about").
    """
    with opened_store(url, _state_dir(state_dir)) as opened:
        found = read_stats(opened, Calendar(opened, Definitions(opened)))
    if as_json:
        click.echo(json.dumps(asdict(found), default=_instant))
    else:
        show_stats(found, Console(highlight=False))


def _instant(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    raise TypeError(f"{type(value).__name__} has no form in JSON")


@dataclass(frozen=True)
class _Order:
    """What is to go.

    Attributes:
        choice: which windows.
        waiting: whether windows go too that entries of the stream may still be about.
        metrics: whose published estimates are looked through.
        what: in words.
    """

    choice: Choice
    waiting: bool
    metrics: list[str]
    what: str


@store.command()
@_place
@click.option("--metric", help="Everything about this metric, windows that still take reports among it.")
@click.option(
    "--before",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Every closed window that ended by the beginning of this day, UTC.",
)
@click.option(
    "--archive",
    envvar="DITHER_ARCHIVE",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the archive, to forget there as well.  [env: DITHER_ARCHIVE]",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(
    *,
    url: str | None,
    state_dir: Path | None,
    metric: str | None,
    before: datetime | None,
    archive: Path | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Forget counters, accounts and estimates, and with --archive reports.

    Without --metric and --before: what the registry's retention_days allow no longer, as the workers do by themselves.
    """
    with opened_store(url, _state_dir(state_dir)) as opened:
        calendar = Calendar(opened, Definitions(opened))
        order = _order(opened, calendar, metric, None if before is None else before.date())
        going = _prune(opened, calendar, order, archive, dry=True)
        click.echo(f"{order.what}: {_in_words(going)}")
        if dry_run or not going:
            return
        if not yes:
            click.confirm("This cannot be undone. Forget it?", abort=True)
        gone = _prune(opened, calendar, order, archive, dry=False)
        click.echo(f"forgotten: {_in_words(gone)}")
        if any(int(each or 0) for each in opened.commands([("GET", keys.backlog) for keys in _keys(opened)])):
            click.echo(
                "reports that are still in the streams are not among it; they will be counted", err=True
            )


def _order(opened: Store, calendar: Calendar, metric: str | None, before: date | None) -> _Order:
    now = opened.now()
    known = calendar.metrics()
    if metric is not None and metric not in known:
        fail(f"the store knows no metric {metric!r}; it knows {', '.join(known) or 'none'}", ExitCode.FAILED)
    apart = abs(now - datetime.now(UTC))
    if apart > MAX_APART:
        message = f"the store's clock and this machine's are {apart / timedelta(days=1):.1f} days apart"
        fail(message, ExitCode.FAILED)

    def expired(name: str, label: str) -> bool:
        return calendar.expired(name, label, now)

    def chosen(name: str, label: str) -> bool:
        dates = calendar.dates(name, label)
        if dates is None or name != (metric or name):
            return False
        return before is None or (dates.ends <= _midnight(before) and dates.closes <= now)

    if metric is None and before is None:
        return _Order(expired, waiting=False, metrics=known, what="what has expired")
    words = [f"metric {metric}" if metric else "all metrics"] + ([f"before {before}"] if before else [])
    return _Order(
        chosen, waiting=before is None, metrics=[metric] if metric else known, what=", ".join(words)
    )


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _keys(opened: Store) -> list[PartitionKeys]:
    return [PartitionKeys(tag) for tag in partition_tags(opened.open() or 0)]


def _prune(opened: Store, calendar: Calendar, order: _Order, archive: Path | None, *, dry: bool) -> Pruned:
    pruner = Pruner(opened, calendar, dry=dry)
    total = Pruned()
    for keys in _keys(opened):
        for pruned in pruner.partition(keys, order.choice, waiting=order.waiting):
            total += pruned
        if order.waiting:
            total += pruner.dead_about(keys, order.choice)
        else:
            total += pruner.dead(keys, opened.now() - DEAD_DAYS)
    total += _published(pruner, order)
    if order.waiting and not dry:
        time.sleep(PUBLISHER_PAUSE_S)
        _published(pruner, order)
    if archive is not None:
        module: Any = import_module("dither_estimator.archive_pruning")  # pyarrow, for an archive only
        total += sum(module.ArchivePruner(Folder(archive), dry=dry).prune(order.choice), Pruned())
    return total


def _published(pruner: Pruner, order: _Order) -> Pruned:
    return sum((each for name in order.metrics for each in pruner.published(name, order.choice)), Pruned())


def _in_words(pruned: Pruned) -> str:
    found = [
        f"{getattr(pruned, name):,} {one if getattr(pruned, name) == 1 else several}"
        for name, (one, several) in _WORDS.items()
        if getattr(pruned, name)
    ]
    return ", ".join(found) or "nothing"
