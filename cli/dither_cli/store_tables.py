"""The tables of ``dither store stats``."""

from typing import Final

from rich.console import Console
from rich.markup import escape

from dither_cli.tables import plain_table
from dither_estimator.stats import StoreStats

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_DAY_S: Final = 86_400


def size_text(number: float) -> str:
    """Bytes with a unit, three digits of them."""
    for unit in _UNITS[:-1]:
        if number < 1_000:
            return f"{number:.3g} {unit}"
        number /= 1_024
    return f"{number:,.3f} {_UNITS[-1]}"


def span_text(seconds: float) -> str:
    """A time that has passed, in its greatest unit."""
    for length, unit in ((_DAY_S, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def show_stats(found: StoreStats, console: Console) -> None:
    """Print a store's numbers for people; what asks for a person comes in red."""
    for number, node in enumerate(found.nodes):
        name = f"server {number}: " if len(found.nodes) > 1 else ""
        limit = f"of {size_text(node.limit_bytes)}" if node.limit_bytes else "[red]without a limit[/]"
        policy = "" if node.policy == "noeviction" else f", [red]maxmemory-policy {escape(node.policy)}[/]"
        console.print(f"memory: {name}{size_text(node.used_bytes)} {limit}{policy}")
    _show_partitions(found, console)
    _show_dead(found, console)
    _show_metrics(found, console)
    _show_seen(found, console)
    _show_workers(found, console)


def _show_partitions(found: StoreStats, console: Console) -> None:
    columns = ("partition", "entries", "backlog", "lag", "set aside", "counted by")
    table = plain_table(columns, left=("counted by",))
    for each in found.partitions:
        dead = f"[red]{each.dead:,}[/]" if each.dead else "0"
        who = escape(each.counted_by) if each.counted_by else "[red]nobody[/]"
        row = (str(each.number), f"{each.entries:,}", size_text(each.backlog_bytes), span_text(each.lag_s))
        table.add_row(*row, dead, who)
    console.print("\n[bold]Partitions[/]")
    console.print(table)
    if any(each.archived is not None for each in found.partitions):
        console.print("with an archive: entries stay until they are in it, counted ones too")


def _show_dead(found: StoreStats, console: Console) -> None:
    reasons: dict[str, int] = {}
    for each in found.partitions:
        for reason, number in each.dead_reasons.items():
            reasons[reason] = reasons.get(reason, 0) + number
    total = sum(each.dead for each in found.partitions)
    if not total:
        return
    looked_at = sum(reasons.values())
    of = f"the latest {looked_at:,} of {total:,}" if looked_at < total else f"{total:,}"
    console.print(f"\n[bold red]Entries that could not be counted[/] ({of})")
    for reason, number in sorted(reasons.items(), key=lambda item: -item[1]):
        console.print(f"  {number:,}: {escape(reason)}")


def _show_metrics(found: StoreStats, console: Console) -> None:
    columns = ("metric", "windows", "cells", "", "estimates", "", "open", "final")
    table = plain_table(("value", *columns[1:]), left=("value",))
    table.columns[0].header = "metric"
    for each in found.metrics:
        about = "~" if each.sampled else ""
        table.add_row(
            escape(each.metric),
            f"{each.windows:,}",
            f"{about}{each.cells:,}",
            size_text(each.cell_bytes),
            f"{about}{each.estimates:,}",
            size_text(each.estimate_bytes),
            f"{each.open:,}",
            f"{each.final:,}",
        )
    console.print("\n[bold]Metrics[/]")
    console.print(table)
    if any(each.sampled for each in found.metrics):
        console.print("~: scaled from a sample")


def _show_seen(found: StoreStats, console: Console) -> None:
    ids, size = sum(each.ids for each in found.seen), sum(each.bytes for each in found.seen)
    until = f", the last until {found.seen[-1].until}" if found.seen else ""
    console.print(f"\n[bold]Batch ids remembered[/]: {ids:,} in {size_text(size)}{until}")


def _show_workers(found: StoreStats, console: Console) -> None:
    console.print("\n[bold]Workers[/]")
    if not found.workers:
        console.print("[red]none: nothing is counted[/]")
        return
    table = plain_table(("value", "seen", "partitions", "publishes"), left=("value",))
    table.columns[0].header = "worker"
    for each in found.workers:
        seen = max(0.0, found.as_of.timestamp() - each.last_seen_ms / 1_000)
        partitions = ", ".join(map(str, each.partitions)) or "none"
        table.add_row(
            escape(each.name), f"{span_text(seen)} ago", partitions, "yes" if each.publishing else ""
        )
    console.print(table)
