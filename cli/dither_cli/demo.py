"""``dither demo``: the whole service against simulated devices, truth beside estimate."""

import json
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dither_cli.demo_population import Server, demo_truths, run_sdk_clients
from dither_cli.demo_verdict import MetricReport, Verdict, counted, judge
from dither_cli.parts import example_registry
from dither_cli.service import Service
from dither_cli.tables import percent
from dither_fleet import Fleet, FleetResult, MetricTruth
from dither_protocol.errors import DitherError
from dither_protocol.registry import Registry, load_registry

SDK_CLIENTS: Final = 200
STALL_LIMIT_S: Final = 60.0
_POLL_S: Final = 0.3

Published = Mapping[str, Sequence[Mapping[str, Any]]]


@click.command()
@click.option(
    "--devices", default=20_000, show_default=True, type=click.IntRange(1), help="Simulated devices."
)
@click.option("--seed", default=1, show_default=True, help="Of the population; the noise is always real.")
@click.option("--keep", is_flag=True, help="Stay up afterwards, until Ctrl-C.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to FILE."
)
def demo(devices: int, seed: int, keep: bool, json_file: Path | None) -> None:
    """Run the whole service on free ports and check what it publishes.

    DEVICES simulated devices and 200 real SDK clients answer every metric of the example registry. Exits 0 if
    every report that was sent is counted, and no more intervals miss the truth than chance allows.
    """
    console = Console()
    registry = load_registry(example_registry())
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dither-demo-")))
            console.print("starting store, server and estimator ...")
            service = stack.enter_context(Service.start(state_dir=folder))
            verdict = _run(service, registry, devices, seed, console)
            _show(verdict, console)
            if json_file:
                json_file.write_text(json.dumps(_as_json(verdict, devices, seed), indent=1), encoding="utf-8")
            if keep:
                _stay(service, console)
    except DitherError as error:
        raise click.ClickException(str(error)) from None
    sys.exit(0 if verdict.passed else 1)


def _run(service: Service, registry: Registry, devices: int, seed: int, console: Console) -> Verdict:
    truths = demo_truths(registry)
    now = datetime.now(UTC)
    total = (devices + SDK_CLIENTS) * len(registry.metrics)
    with Progress(
        TextColumn("{task.description:<18}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("reports"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        sent = _send(service, registry, truths, devices=devices, seed=seed, now=now, progress=progress)
        published = _wait_until_counted(service, registry, sent, progress, total)
    return judge(registry, truths, sent, published)


def _send(
    service: Service,
    registry: Registry,
    truths: Mapping[str, MetricTruth],
    *,
    devices: int,
    seed: int,
    now: datetime,
    progress: Progress,
) -> FleetResult:
    metrics = len(registry.metrics)
    simulated = progress.add_task("simulated devices", total=devices * metrics)
    real = progress.add_task("SDK clients", total=SDK_CLIENTS * metrics)
    fleet = Fleet(service.base_url, service.ingest_key, registry, truths, now)
    sent = fleet.run(devices, seed, progress=lambda reports: progress.advance(simulated, reports))
    clients = run_sdk_clients(
        Server(service.base_url, service.ingest_key),
        registry,
        truths,
        count=SDK_CLIENTS,
        seed=seed,
        now=now,
        progress=lambda reports: progress.advance(real, reports),
    )
    for mine, theirs in zip(vars(sent).values(), vars(clients).values(), strict=True):
        mine.update(theirs)
    return sent


def _wait_until_counted(
    service: Service, registry: Registry, sent: FleetResult, progress: Progress, total: int
) -> Published:
    """Poll the API until all accepted reports are published, or nothing has moved for STALL_LIMIT_S."""
    task = progress.add_task("counted", total=total)
    accepted = sum(sent.accepted.values())
    last, last_change = -1, time.monotonic()
    while True:
        published = {metric.name: _estimates(service, metric.name) for metric in registry}
        now_counted = sum(counted(documents) for documents in published.values())
        progress.update(task, completed=now_counted)
        if now_counted != last:
            last, last_change = now_counted, time.monotonic()
        if now_counted >= accepted or time.monotonic() - last_change > STALL_LIMIT_S:
            return published
        time.sleep(_POLL_S)


def _estimates(service: Service, metric: str) -> list[dict[str, Any]]:
    request = urllib.request.Request(  # noqa: S310  the service's own loopback URL
        f"{service.base_url}/v1/metrics/{metric}/estimates",
        headers={"Authorization": f"Bearer {service.operator_token}"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        body = json.load(answer)
    return [document for version in body["versions"] for document in version["estimates"]]


def _metric_table(report: MetricReport) -> Table:
    metric = report.metric
    table = Table(
        title=f"{metric.name}: {metric.description}\n"
        f"mechanism {metric.mechanism.name}, epsilon {metric.epsilon:g}, target population; "
        f"sent {report.sent:,}, accepted {report.accepted:,}, counted {report.counted:,}",
        title_justify="left",
        title_style="bold",
    )
    for heading in ("value", "true share", "estimate", "95 % interval", "covers"):
        table.add_column(heading, justify="left" if heading == "value" else "right")
    for row in report.rows:
        table.add_row(
            Text(row.value),
            percent(row.truth),
            percent(row.estimate),
            f"{percent(row.lower)} … {percent(row.upper)}",
            "yes" if row.covers else "[red]no[/red]",
        )
    return table


def _show(verdict: Verdict, console: Console) -> None:
    for report in verdict.reports:
        console.print(_metric_table(report))
    for problem in verdict.problems:
        console.print(f"[red]{problem}[/red]")
    total = sum(report.counted for report in verdict.reports)
    if verdict.passed:
        console.print(
            f"[green]PASS[/green]: {total:,} reports sent, accepted and counted; {verdict.summary}."
        )
    else:
        console.print(f"[red]FAIL[/red]: {'; '.join(verdict.problems)}; {verdict.summary}.")


def _as_json(verdict: Verdict, devices: int, seed: int) -> dict[str, Any]:
    return {
        "passed": verdict.passed,
        "problems": list(verdict.problems),
        "summary": verdict.summary,
        "devices": devices,
        "sdk_clients": SDK_CLIENTS,
        "seed": seed,
        "metrics": [
            {
                "metric": report.metric.name,
                "mechanism": report.metric.mechanism.name,
                "epsilon": report.metric.epsilon,
                "target": "population",
                "sent": report.sent,
                "accepted": report.accepted,
                "counted": report.counted,
                "values": [vars(row) | {"covers": row.covers} for row in report.rows],
            }
            for report in verdict.reports
        ],
    }


def _stay(service: Service, console: Console) -> None:
    """Keep the service up until SIGINT or SIGTERM."""
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    console.print(
        f"\nThe service stays up. Read an estimate with\n"
        f"  curl -H 'Authorization: Bearer {service.operator_token}'"
        f" {service.base_url}/v1/metrics/dark_mode/estimates\n"
        f"Ctrl-C stops it.",
        soft_wrap=True,
    )
    while not done.wait(0.5):
        pass
