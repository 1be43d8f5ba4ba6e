"""``dither simulate``: a fleet of simulated devices against any server, and a verdict."""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console

from dither_cli.api_client import Api, ApiError
from dither_cli.demo import check_json_file
from dither_cli.exit_codes import SIGNAL_EXIT, ExitCode
from dither_cli.files import write_whole
from dither_cli.parts import example_registry
from dither_cli.service import Service, ServiceOptions
from dither_cli.signals import Stopped, Stopping, handled
from dither_cli.simulate_output import progress, show
from dither_cli.simulate_page import page
from dither_cli.simulate_place import Target, find_target, successor
from dither_cli.simulate_run import Plan, simulate
from dither_cli.simulate_series import simulation_document
from dither_fleet.faults import Faults, FaultsError
from dither_fleet.load_run import LoadRun, orders
from dither_fleet.making import Fleetwide
from dither_fleet.profiles import CROWD_TIMES, PROFILES
from dither_protocol.errors import DitherError
from dither_protocol.registry import load_registry

MAX_DEVICE_DAYS: Final = 100_000_000
_MAX_DAYS: Final = 40


class _Job(NamedTuple):
    plan: Plan
    registry: Path | None
    json_file: Path | None
    html_file: Path | None
    console: Console


def check_faults(_: click.Context, __: click.Parameter, value: str) -> Faults:
    """Read the list of faults."""
    try:
        return Faults.parse(value)
    except FaultsError as error:
        raise click.BadParameter(str(error)) from None


_File = partial(
    click.option, type=click.Path(dir_okay=False, path_type=Path), callback=check_json_file, metavar="FILE"
)


def _load_options(command: Callable[..., None]) -> Callable[..., None]:
    """What is simulated."""
    for option in reversed(
        (
            click.option(
                "--devices", default=10_000, show_default=True, type=click.IntRange(1), help="How many."
            ),
            click.option(
                "--days",
                default=1,
                show_default=True,
                type=click.IntRange(1, _MAX_DAYS),
                help="Each device answers on so many days, today the last; windows that are closed are left out.",
            ),
            click.option(
                "--rate",
                type=click.FloatRange(0, min_open=True),
                help="Mean devices per second.  [default: as fast as they are served]",
            ),
            click.option(
                "--profile",
                default="steady",
                show_default=True,
                type=click.Choice(list(PROFILES)),
                help="When they come; all but steady need a --rate.",
            ),
            click.option(
                "--crowd-times",
                default=CROWD_TIMES,
                show_default=True,
                type=click.FloatRange(1, 100),
                help="Of flash-crowd: so many times the rate before and after it.",
            ),
            click.option(
                "--faults",
                default="none",
                show_default=True,
                callback=check_faults,
                metavar="LIST",
                help="What goes wrong on purpose: none, all, or NAME=SHARE,... of cut, swallow, duplicate, old, "
                "early, late, bad_report, bad_body.",
            ),
            click.option(
                "--seed",
                default=1,
                show_default=True,
                type=click.IntRange(0),
                help="Of the population; the noise is always real.",
            ),
            click.option(
                "--processes",
                default=2,
                show_default=True,
                type=click.IntRange(1, 64),
                help="That they run in.",
            ),
            click.option(
                "--connections",
                default=16,
                show_default=True,
                type=click.IntRange(1, 4_096),
                help="Requests that may be under way at once.",
            ),
            click.option(
                "--together",
                default=1,
                show_default=True,
                type=click.IntRange(1, 200),
                help="Devices that share a batch, which real ones never do: fewer requests, the same reports.",
            ),
            click.option(
                "--time-limit",
                "time_limit_s",
                default=3_600.0,
                show_default=True,
                type=click.FloatRange(1, 7 * 86_400),
                help="No more devices come after so many seconds.",
            ),
        )
    ):
        command = option(command)
    return command


def _server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which server."""
    for option in reversed(
        (
            click.option(
                "--server", metavar="URL", help="Its address.  [default: one is started for the run]"
            ),
            click.option("--key", "ingest_key", help="Ingest key of that server.  [env: DITHER_INGEST_KEY]"),
            click.option(
                "--operator-key", help="Key of a viewer or an admin there.  [env: DITHER_OPERATOR_TOKEN]"
            ),
            click.option(
                "--state-dir",
                type=click.Path(file_okay=False, path_type=Path),
                help="State directory of a dither serve that runs: its address and keys.",
            ),
            click.option("--allow-remote", is_flag=True, help="The server may be another machine."),
            click.option(
                "--in-process", is_flag=True, help="Start a server for the run, whatever else is set."
            ),
            click.option(
                "--registry",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="Of the server that is started, TOML.  [default: the example registry]",
            ),
            click.option("--dry-run", is_flag=True, help="Make and seal everything, and send nothing."),
        )
    ):
        command = option(command)
    return command


@click.command()
@_load_options
@_server_options
@_File("--json", "json_file", help="Write everything that was found to FILE.")
@_File("--html", "html_file", help="Write a page with charts to FILE; it needs no other file.")
def simulate_command(
    *,
    devices: int,
    days: int,
    rate: float | None,
    profile: str,
    crowd_times: float,
    faults: Faults,
    seed: int,
    processes: int,
    connections: int,
    together: int,
    time_limit_s: float,
    server: str | None,
    ingest_key: str | None,
    operator_key: str | None,
    state_dir: Path | None,
    allow_remote: bool,
    in_process: bool,
    registry: Path | None,
    dry_run: bool,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    """Let simulated devices answer everything that a server asks, and judge what it makes of it.

    Each device has its own batches, as with the SDK. The true shares are known, so the run ends with a verdict: every
    accepted report is counted once, whatever went wrong on the way, and no more intervals miss the truth than chance
    allows. Exits with 0 if that holds, with 1 if not.
    """
    if rate is None and profile != "steady":
        raise click.UsageError(f"--profile {profile} needs a --rate")
    if devices * days > MAX_DEVICE_DAYS:
        raise click.UsageError(f"--devices times --days may be at most {MAX_DEVICE_DAYS:,}")
    if in_process and (server or state_dir):
        raise click.UsageError("--in-process goes with neither --server nor --state-dir")
    plan = Plan(
        devices,
        days,
        seed,
        faults,
        profile,
        rate,
        processes,
        connections,
        time_limit_s,
        together,
        crowd_times,
    )
    job = _Job(plan, registry, json_file, html_file, Console(highlight=False))
    with _clean_end():
        target = find_target(
            server, ingest_key, operator_key, state_dir, environ=os.environ, allow_remote=allow_remote
        )
        if target is not None and registry is not None:
            raise click.UsageError("--registry is for a server that is started for the run")
        passed = _stoppable(job, target, dry_run=dry_run)
    sys.exit(ExitCode.OK if passed else ExitCode.FAILED)


@contextmanager
def _clean_end() -> Iterator[None]:
    """What cannot be done is one sentence and an exit code."""
    try:
        yield
    except ApiError as error:
        click.echo(f"dither simulate: {error}", err=True)
        sys.exit(error.exit_code)
    except DitherError as error:
        raise click.ClickException(str(error)) from None


def _stoppable(job: _Job, target: Target | None, *, dry_run: bool) -> bool:
    """The run, which a signal breaks off; whether it passed."""
    stopping = Stopping()
    passed = False
    try:
        with handled(stopping.on_signal):
            if dry_run:
                with stopping.interruptible():
                    passed = _make_only(job)
            elif target is None:
                passed = _in_a_folder(job, stopping)
            else:
                with stopping.interruptible():
                    passed = _against(target, job)
    except Stopped:
        pass
    if stopping.number is not None:
        click.echo(f"dither simulate: stopped by {signal.Signals(stopping.number).name}", err=True)
        sys.exit(SIGNAL_EXIT + stopping.number)
    return passed


def _make_only(job: _Job) -> bool:
    """Make all batches and throw them away; says how fast that is."""
    plan = job.plan
    document = dict(load_registry(job.registry or example_registry()).document)
    fleet = Fleetwide(document, {}, plan.devices, plan.days, plan.seed, plan.faults, plan.together)
    given = orders(
        fleet,
        plan.schedule,
        endpoint=None,
        processes=plan.processes,
        connections=1,
        ends_after_s=plan.time_limit_s,
        patience_s=0.0,
    )
    with LoadRun(given) as run, progress(job.console, fleet.visits, sent=False) as watcher:
        while run.poll(0.05):
            watcher.sending(run)
        watcher.sending(run)
        seconds, tally = run.seconds, run.tally
    reports = sum(len(fate.cells) * batches for fate, batches in tally.made.items())
    job.console.print(
        f"{tally.devices:,} devices, {sum(tally.made.values()):,} batches, {reports:,} reports made and sealed in "
        f"{seconds:.1f} s: {60 * tally.devices / seconds:,.0f} devices a minute; nothing was sent"
    )
    return True


def _in_a_folder(job: _Job, stopping: Stopping) -> bool:
    """The run against a service of its own, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="dither-simulate-") as name:
        folder = Path(name)
        job.console.print("starting store, server and estimator ...")
        registry = job.registry or example_registry()
        if job.plan.faults.old and (newer := successor(registry.read_text("utf-8"))) is not None:
            # Old versions are those that a server has had: it runs once before with the registry as it was.
            with Service(ServiceOptions(folder / "state", registry)) as earlier:
                stopping.watch(earlier)
                earlier.launch()
                if not earlier.wait_ready():
                    return False
            registry = folder / "newer.toml"
            registry.write_text(newer, "utf-8")
        with Service(ServiceOptions(folder / "state", registry)) as service:
            stopping.watch(service)
            service.launch()
            if not service.wait_ready():
                return False
            job.console.print(f"watch it: {service.dashboard_url}", soft_wrap=True, markup=False)
            with stopping.interruptible():
                api = Api(service.base_url, service.operator_token)
                return _against(Target(service.base_url, service.ingest_key, api), job)


def _against(target: Target, job: _Job) -> bool:
    """The run against a server that is ready; whether it passed."""
    with progress(job.console, job.plan.devices * job.plan.days) as watcher:
        result = simulate(job.plan, target, watcher)
    document = simulation_document(result)
    show(document, job.console)
    if job.json_file:
        write_whole(job.json_file, json.dumps(document, indent=1) + "\n")
    if job.html_file:
        write_whole(job.html_file, page(document))
    return result.verdict.passed
