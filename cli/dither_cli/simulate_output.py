"""A simulation in the terminal: while it runs, and what it found."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from dither_cli.simulate_run import Watcher
from dither_cli.simulate_series import latency_document
from dither_cli.tables import fitting_table
from dither_fleet.load_run import LoadRun
from dither_fleet.tally import Tally

_RECENT_S: Final = 10
_MOST_PROBLEMS: Final = 20


def seconds_text(seconds: float | None) -> str:
    """A time in milliseconds below a second; a dash for none."""
    if seconds is None:
        return "-"
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _delivered(tally: Tally) -> int:
    """Devices that have delivered, by the share of settled batches: devices are made ahead of their time."""
    made = sum(tally.made.values())
    return tally.devices * sum(tally.settled.values()) // made if made else 0


def _news(run: LoadRun) -> str:
    """Rate, latencies and rejections of the last seconds, in one line."""
    now = max(0, int(run.seconds))
    recent = range(max(0, now - _RECENT_S), now)
    tally = run.tally
    requests = sum(
        tally.tries[second, word] for second in recent for word in ("accepted", "duplicate", "refused")
    )
    times = latency_document(tally.latencies, recent)
    rejected = sum(tally.rejections().values()) + sum(tally.refusals().values())
    retries = sum(tally.retries.values())
    return (
        f"{requests / max(1, len(recent)):,.0f}/s  p50 {seconds_text(times['p50'])}  "
        f"p95 {seconds_text(times['p95'])}  p99 {seconds_text(times['p99'])}  "
        f"rejected {rejected:,}  retries {retries:,}"
    )


@contextmanager
def progress(console: Console, devices: int, *, sent: bool = True) -> Iterator[Watcher]:
    """Bars for devices and for reports that are counted, with the news below; if none is sent, without."""
    columns = (TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns, console=console)
    done = bars.add_task("devices", total=devices)
    counted = bars.add_task("counted", total=None, visible=False)
    with Live(bars, console=console, refresh_per_second=4) as live:

        def sending(run: LoadRun) -> None:
            bars.update(done, completed=_delivered(run.tally) if sent else run.tally.devices)
            if sent and run.seconds > 0:
                live.update(Group(bars, Text(_news(run), style="dim")))

        def counting(number: int, accepted: int) -> None:
            if accepted:
                bars.update(counted, completed=number, total=accepted, visible=True)

        yield Watcher(sending, counting)
    if not console.is_terminal:
        console.print()  # rich ends its last line on a terminal alone


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print what a simulation found."""
    console.print()
    _show_load(document, console)
    if document["metrics"]:
        console.print(
            fitting_table([_line(line) for line in document["metrics"]], console, left=(), optional=())
        )
    if document["coverage"]["metrics"]:
        rows = [_coverage(row) for row in document["coverage"]["metrics"]]
        console.print(fitting_table(rows, console, left=("mechanism",), optional=("epsilon",)))
    if document["coverage"]["left_out"]:
        left_out = document["coverage"]["left_out"]
        console.print(Text(f"{left_out:,} estimates were suppressed or mixed with earlier ones, not judged"))
    if document["devices_left_out"]:
        console.print(Text(f"{document['devices_left_out']:,} devices did not come: the time was over"))
    for problem in shown_problems(document):
        console.print(Text(problem, style="red"))
    verdict = Text("PASS", style="green") if document["passed"] else Text("FAIL", style="red")
    console.print(verdict.append(f": {summary(document)}", style="default"))


def shown_problems(document: Mapping[str, Any]) -> list[str]:
    """The first problems, and how many more there are: a server that is badly wrong has one for each cell."""
    problems: list[str] = document["problems"]
    more = len(problems) - _MOST_PROBLEMS
    return [*problems[:_MOST_PROBLEMS], *([f"and {more:,} more, see --json"] if more > 0 else [])]


def summary(document: Mapping[str, Any]) -> str:
    """The verdict in one sentence."""
    counted = sum(line["counted"] for line in document["metrics"])
    scopes = [
        f"{each['intervals'] - each['missed']:,} of {each['intervals']:,} intervals {each['scope']} cover the truth"
        for each in document["coverage"]["scopes"]
    ]
    accepted = document["reports"]["accepted"]
    return "; ".join([f"{accepted:,} reports accepted, {counted:,} counted", *scopes]) + "."


def load_rows(document: Mapping[str, Any]) -> dict[str, str]:
    """What was sent and how it went, by name."""
    times = document["latency_s"]
    rows = {
        "devices": f"{document['devices']:,} in {document['sending_s']:,.1f} s, "
        f"{document['devices_per_s']:,.0f}/s; {document['batches']:,} batches, {document['requests']:,} requests",
        "reports": f"{document['reports']['accepted']:,} accepted, {document['reports_per_s']:,.0f}/s; "
        f"counted {document['counting_s']:,.1f} s after the last answer",
        "latency": f"p50 {seconds_text(times['p50'])}, p95 {seconds_text(times['p95'])}, "
        f"p99 {seconds_text(times['p99'])}",
        "waited": _waited(document["waited_s"]),
        "faults": document["plan"]["faults"],
        "rejected": _counts(document["reports"]["rejected"]),
        "refused": _counts(document["refused_batches"]),
        "retries": _counts(document["retries"]),
    }
    return {name: text for name, text in rows.items() if text}


def _waited(times: Mapping[str, float | None]) -> str:
    """How long batches waited for a connection: at a rate that the server does not keep up with, that is the queue."""
    if times["p99"] is None:
        return ""
    return f"for a connection: p50 {seconds_text(times['p50'])}, p99 {seconds_text(times['p99'])}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.items())


def _show_load(document: Mapping[str, Any], console: Console) -> None:
    for name, text in load_rows(document).items():
        console.print(Text(f"{name:<9}", style="bold").append(text, style="default"))


def _line(line: Mapping[str, Any]) -> dict[str, str | Text]:
    return {
        "metric": Text(line["metric"]),
        "sent": f"{line['sent']:,}",
        "accepted": f"{line['accepted']:,}",
        "ledger": f"{line['ledger_accepted']:,}",
        "counted": f"{line['counted']:,}",
        "published": f"{line['published']:,}",
    }


def _coverage(row: Mapping[str, Any]) -> dict[str, str | Text]:
    return {
        "metric": Text(row["metric"]),
        "mechanism": row["mechanism"],
        "epsilon": f"{row['epsilon']:g}",
        "intervals": f"{row['intervals']:,}",
        "cover": f"{row['intervals'] - row['missed']:,}",
        "error/theory": f"{row['error_over_theory']:.2f}",
    }
