"""``dither demo``: the whole service against simulated devices, truth beside estimate."""

import json
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from dither_cli.demo_population import Server, demo_truths, run_sdk_clients
from dither_cli.demo_utility import metric_utility, utility_table
from dither_cli.demo_verdict import MetricReport, Verdict, counted, judge
from dither_cli.exit_codes import SIGNAL_EXIT, ExitCode
from dither_cli.files import naming, write_problem
from dither_cli.parts import example_registry
from dither_cli.service import Service, ServiceOptions
from dither_cli.signals import Stopped, Stopping, handled
from dither_cli.tables import interval_text, percent, plain_table
from dither_cli.utility_rows import EXPLAINED
from dither_fleet import Fleet, FleetResult, MetricTruth
from dither_protocol.errors import DitherError
from dither_protocol.registry import Registry, load_registry

SDK_CLIENTS: Final = 200
STALL_LIMIT_S: Final = 60.0
_POLL_S: Final = 0.3

Published = Mapping[str, Sequence[Mapping[str, Any]]]


def check_json_file(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a file that could not be written, before the run and not after it."""
    if value and (problem := write_problem(value)):
        raise click.BadParameter(problem)
    return value


class _Job(NamedTuple):
    registry: Registry
    devices: int
    seed: int
    keep: bool
    json_file: Path | None
    console: Console


@click.command()
@click.option(
    "--devices", default=20_000, show_default=True, type=click.IntRange(1), help="Simulated devices."
)
@click.option(
    "--seed",
    default=1,
    show_default=True,
    type=click.IntRange(0),
    help="Of the population; the noise is always real.",
)
@click.option("--keep", is_flag=True, help="Stay up afterwards, until Ctrl-C.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=check_json_file,
    help="Write the result to FILE.",
)
def demo(devices: int, seed: int, keep: bool, json_file: Path | None) -> None:
    """Run the whole service on free ports and check what it publishes.

    DEVICES simulated devices and 200 real SDK clients answer every metric of the example registry. Exits 0 if
    every report that was sent is counted, and no more intervals miss the truth than chance allows.
    """
    stopping = Stopping()
    job = _Job(load_registry(example_registry()), devices, seed, keep, json_file, Console())
    passed = False
    try:
        with handled(stopping.on_signal):  # until the folder with the keys is gone
            passed = _in_a_folder(job, stopping)
    except Stopped:
        pass
    except DitherError as error:
        raise click.ClickException(str(error)) from None
    number = stopping.number
    if number is not None and not (passed and keep and number == signal.SIGINT):
        click.echo(f"dither demo: stopped by {signal.Signals(number).name}", err=True)
        sys.exit(SIGNAL_EXIT + number)
    sys.exit(ExitCode.OK if passed else ExitCode.FAILED)


def _in_a_folder(job: _Job, stopping: Stopping) -> bool:
    """The demo in a folder that is removed afterwards; whether it passed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dither-demo-")))
        job.console.print("starting store, server and estimator ...")
        service = stack.enter_context(Service(ServiceOptions(folder)))
        stopping.watch(service)
        service.launch()
        if not service.wait_ready():
            return False
        job.console.print(f"watch it: {service.dashboard_url}", soft_wrap=True, markup=False)
        with stopping.interruptible():
            verdict = _run(service, job.registry, job.devices, job.seed, job.console)
            _show(verdict, job.console)
            if job.json_file:
                result = json.dumps(_as_json(verdict, job.devices, job.seed), indent=1)
                with naming(job.json_file):
                    job.json_file.write_text(result, encoding="utf-8")
        if job.keep:
            _stay(service, job.console, stopping)
        return verdict.passed


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


def _metric_table(report: MetricReport) -> Group:
    metric = report.metric
    title = (
        f"{metric.name}: {metric.description}\n"
        f"mechanism {metric.mechanism.name}, epsilon {metric.epsilon:g}, target population\n"
        f"sent {report.sent:,}, accepted {report.accepted:,}, counted {report.counted:,}"
    )
    table = plain_table(("value", "true share", "estimate", "95 % interval", "covers"))
    for row in report.rows:
        table.add_row(
            Text(row.value),
            percent(row.truth),
            percent(row.estimate),
            interval_text(row.lower, row.upper),
            "yes" if row.covers else "[red]no[/red]",
        )
    return Group(Text(title, style="bold"), table, Text())


def _show(verdict: Verdict, console: Console) -> None:
    for report in verdict.reports:
        console.print(_metric_table(report))
    _show_utility(verdict, console)
    for problem in verdict.problems:
        console.print(f"[red]{problem}[/red]")
    total = sum(report.counted for report in verdict.reports)
    if verdict.passed:
        console.print(
            f"[green]PASS[/green]: {total:,} reports sent, accepted and counted; {verdict.summary}."
        )
    else:
        console.print(f"[red]FAIL[/red]: {'; '.join(verdict.problems)}; {verdict.summary}.")


def _show_utility(verdict: Verdict, console: Console) -> None:
    found = [each for each in map(metric_utility, verdict.reports) if each is not None]
    if not found:
        return
    console.print(Text("Utility, predicted and real", style="bold"))
    console.print(utility_table(found, console))
    console.print(Text(f"{EXPLAINED}\n"))


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
                "utility": None if (found := metric_utility(report)) is None else found.document(),
                "values": [vars(row) | {"covers": row.covers} for row in report.rows],
            }
            for report in verdict.reports
        ],
    }


def _stay(service: Service, console: Console, stopping: Stopping) -> None:
    """Keep the service up until a signal comes."""
    console.print(
        f"\nThe service stays up. Its dashboard is at\n"
        f"  {service.dashboard_url}\n"
        f"Read an estimate with\n"
        f"  curl -H 'Authorization: Bearer {service.operator_token}'"
        f" {service.base_url}/v1/metrics/dark_mode/estimates\n"
        f"Ctrl-C stops it.",
        soft_wrap=True,
    )
    while stopping.number is None:
        time.sleep(_POLL_S)
