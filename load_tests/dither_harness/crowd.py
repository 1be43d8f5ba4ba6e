"""A flash crowd at so many times what `dither serve` takes, on processors of its own.

::

    python -m dither_harness.crowd --out load_tests/results

1. **Capacity**: a closed loop over few connections, by the fleet, and by ``wrk`` where it is installed; the better
   figure counts.
2. **The crowd**: devices come at a rate that does not depend on the answers: a quarter of the capacity, then at once
   the crowd, then a quarter again. What finds no free connection waits outside, as behind a proxy that keeps so many
   connections to the server; this wait is shown apart.
3. **Again with a small backlog**, half of what waited in the store in the first crowd: part of this crowd is told to
   come back later.

Rules: `crowd_verdict`.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

import click

from dither_cli.exit_codes import SIGNAL_EXIT
from dither_cli.parts import example_registry
from dither_cli.signals import handled
from dither_cli.simulate_place import Target
from dither_cli.simulate_run import Plan, Result, Watcher, fleet_of, simulate
from dither_fleet.faults import Faults
from dither_fleet.load_run import LoadRun
from dither_fleet.making import Makers
from dither_fleet.profiles import CROWD
from dither_harness.crowd_log import log_text
from dither_harness.crowd_verdict import Crowded, crowd_document
from dither_harness.machine import machine, machine_text
from dither_harness.service_process import ServiceProcess, running_on
from dither_harness.service_watch import ServiceWatch
from dither_harness.wrk import WrkFound, run_wrk, wrk_installed
from dither_protocol.errors import DitherError
from dither_protocol.registry import load_registry
from dither_protocol.storage import DEFAULT_PARTITIONS

CALM: Final = 0.25
"""Before and after the crowd devices come at this part of the capacity."""

_CLOSED_CONNECTIONS: Final = 32
_WARM_S: Final = 2
_MANY: Final = 1_000_000
_SPARE_S: Final = 600.0
_SAMPLE_S: Final = 1.0
_LEAST_HIGH_WATER: Final = 2_000

Say = Callable[[str], None]


@dataclass(frozen=True)
class CrowdPlan:
    """What to do.

    Attributes:
        times: the crowd over the capacity.
        crowd_s: how long it keeps coming, seconds.
        capacity_s: how long the capacity is measured, seconds.
        connections: of the load in the crowd.
        workers: of the server.
        service_cpus: processors of the service.
        load_cpus: processors of the load.
    """

    times: float
    crowd_s: float
    capacity_s: int
    connections: int
    workers: int
    service_cpus: Sequence[int]
    load_cpus: Sequence[int]

    def closed(self, connections: int) -> Plan:
        """As fast as they are served."""
        return self._plan(_MANY, None, connections, self.capacity_s + _WARM_S)

    def crowd(self, capacity: float, batches: int) -> Plan:
        """Devices with so many batches each, around a capacity in requests per second."""
        calm = CALM * capacity / batches
        inside = CROWD[1] - CROWD[0]
        mean = calm * (1 + inside * (self.times / CALM - 1))
        length_s = self.crowd_s / inside
        return self._plan(round(mean * length_s), mean, self.connections, length_s + _SPARE_S)

    def _plan(self, devices: int, rate: float | None, connections: int, limit_s: float) -> Plan:
        return Plan(
            devices=devices,
            days=1,
            seed=1,
            faults=Faults(),
            profile="steady" if rate is None else "flash-crowd",
            rate=rate,
            processes=len(self.load_cpus),
            connections=connections,
            time_limit_s=limit_s,
            crowd_times=self.times / CALM,
        )


@dataclass(frozen=True)
class Capacity:
    """What the service takes.

    Attributes:
        by_fleet: accepted requests per second of the fleet's closed loop.
        wrk: what ``wrk`` measured, over few connections and over as many as the crowd has.
    """

    by_fleet: float
    wrk: Sequence[WrkFound]

    @property
    def requests_per_s(self) -> float:
        """The best of the closed loops over few connections."""
        return max([self.by_fleet, *(each.requests_per_s for each in self.wrk[:1] if not each.not_accepted)])

    def document(self) -> dict[str, Any]:
        """For the log."""
        best = self.requests_per_s
        return {
            "requests_per_s": round(best, 1),
            "by_fleet": round(self.by_fleet, 1),
            "connections": _CLOSED_CONNECTIONS,
            "by": "the fleet" if best == self.by_fleet else "wrk",
        }


class LoadedService:
    """A service under load, watched from here. A context manager.

    Args:
        plan: what is to be done.
        folder: is made for it.
        environ: variables ``DITHER_*`` of the service.
    """

    def __init__(self, plan: CrowdPlan, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        folder.mkdir()
        registry = example_registry()
        self._plan, self._folder = plan, folder
        self._batches = len({metric.period for metric in load_registry(registry)})
        self._service = ServiceProcess(
            folder / "state", registry, workers=plan.workers, cpus=plan.service_cpus, environ=environ
        )

    def __enter__(self) -> Self:
        try:
            self._service.wait_ready()
            self._target = self._service.target()
        except BaseException:
            self._service.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._service.close()

    def capacity(self) -> Capacity:
        """Closed loops: the fleet's, and where it is installed that of ``wrk``."""
        result = simulate(self._plan.closed(_CLOSED_CONNECTIONS), self._target, Watcher())
        if result.verdict.problems:
            raise DitherError("; ".join(result.verdict.problems))
        tries = result.tally.tries
        seconds = range(_WARM_S, _WARM_S + self._plan.capacity_s)
        by_fleet = sum(tries[second, "accepted"] for second in seconds) / len(seconds)
        wrk = []
        if wrk_installed():
            batch = one_batch(self._target)
            for connections in (_CLOSED_CONNECTIONS, self._plan.connections):
                wrk.append(run_wrk(self._target, batch, connections, self._plan.capacity_s, self._folder))
        return Capacity(by_fleet, wrk)

    def crowd(self, name: str, capacity: float) -> Crowded:
        """Let the crowd come, wait until all is counted, and stop the service."""
        plan = self._plan.crowd(capacity, self._batches)
        begins = [0.0]

        def sending(run: LoadRun) -> None:
            begins[0] = run.begins

        with ServiceWatch(self._service, _SAMPLE_S) as watch:
            cpu_s = _cpu_s()
            result: Result = simulate(plan, self._target, Watcher(sending=sending))
            busy = (_cpu_s() - cpu_s) / result.sending_s / len(self._plan.load_cpus)
        exit_code = self._service.stop()
        offered = self._plan.times * capacity
        return Crowded(name, result, watch.samples, begins[0], offered, busy, exit_code)


def one_batch(target: Target) -> dict[str, Any]:
    """A batch of one device, as it stands on the wire."""
    plan = Plan(1, 1, 1, Faults(), "steady", None, 1, 1, 1.0)
    for _, devices in Makers(fleet_of(plan, target), 0, 1).groups():
        found: dict[str, Any] = json.loads(devices[0][0].body)
        return found
    raise DitherError("the server asks nothing that devices could answer now")


def _cpu_s() -> float:
    """Processor time of this process and of its children that have ended, the processes of devices."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def crowds(plan: CrowdPlan, folder: Path, say: Say) -> dict[str, Any]:
    """Both crowds as one document.

    Raises:
        DitherError: the service does not start or stop, or does not answer.
    """
    with running_on(plan.load_cpus):
        say("measuring the capacity ...")
        with LoadedService(plan, folder / "capacity") as loaded:
            capacity = loaded.capacity()
        say(f"{capacity.requests_per_s:.0f} requests/s; a crowd of {plan.times:g} times that ...")
        with LoadedService(plan, folder / "first") as loaded:
            first = crowd_document(loaded.crowd("crowd", capacity.requests_per_s))
        half = max(_LEAST_HIGH_WATER, first["most_backlog_bytes"] // 2 // DEFAULT_PARTITIONS)
        say(f"the same with a backlog of at most {half} bytes in a partition ...")
        with LoadedService(plan, folder / "second", {"DITHER_HIGH_WATER_BYTES": str(half)}) as loaded:
            second = crowd_document(loaded.crowd("crowd before a small backlog", capacity.requests_per_s))
    return {
        "passed": first["passed"] and second["passed"],
        "machine": machine(),
        "times": plan.times,
        "service_cpus": list(plan.service_cpus),
        "load_cpus": list(plan.load_cpus),
        "workers": plan.workers,
        "capacity": capacity.document(),
        "wrk": [asdict(each) for each in capacity.wrk],
        "crowds": [first, second],
    }


def _stop(number: int, _: FrameType | None) -> None:
    raise SystemExit(SIGNAL_EXIT + number)  # on the way out the fleet and the service are stopped


@click.command()
@click.option("--times", default=3.0, show_default=True, type=click.FloatRange(1), help="Over the capacity.")
@click.option("--seconds", default=30.0, show_default=True, type=click.FloatRange(1), help="Of the crowd.")
@click.option(
    "--connections", default=200, show_default=True, type=click.IntRange(1, 4_000), help="Of the crowd."
)
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1, 64), help="Of the server.")
@click.option(
    "--capacity-seconds", default=8, show_default=True, type=click.IntRange(1), help="Of measuring it."
)
@click.option(
    "--out",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for crowd.txt and crowd.json.",
)
def main(
    *, times: float, seconds: float, connections: int, workers: int, capacity_seconds: int, out: Path | None
) -> None:
    """Send a crowd at a service; exits with 0 where every rule held, with 1 where not."""
    service_cpus, load_cpus = shared_out(sorted(os.sched_getaffinity(0)))
    plan = CrowdPlan(times, seconds, capacity_seconds, connections, workers, service_cpus, load_cpus)
    try:
        with handled(_stop), tempfile.TemporaryDirectory(prefix="dither-crowd-") as name:
            click.echo(machine_text())
            document = crowds(plan, Path(name), click.echo)
    except (DitherError, subprocess.CalledProcessError) as error:
        raise click.ClickException(str(error)) from None
    text = log_text(document)
    click.echo(text)
    if out is not None:
        (out / "crowd.txt").write_text(text, "utf-8")
        (out / "crowd.json").write_text(json.dumps(document, separators=(",", ":")) + "\n", "utf-8")
    sys.exit(0 if document["passed"] else 1)


def shared_out(cpus: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Processors of the service and of the load: the last one for the load, all others for the service."""
    if len(cpus) < 2:
        raise click.ClickException("needs two processors: one for the load")
    return cpus[:-1], cpus[-1:]


if __name__ == "__main__":
    main()
