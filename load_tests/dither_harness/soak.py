"""A soak: `dither serve` under an even load with all faults, watched for what grows.

::

    python -m dither_harness.soak --minutes 15 --out load_tests/results

The service starts once with an earlier registry, so that devices with an old version have one to be right about; it is
stopped, and started again as it stays. Devices come at a fixed rate; an operator looks at every address of API and
dashboard all the time. At the end everything must be counted, the books must balance, the estimates must hold, memory
and descriptors of every process must be flat (`soak_verdict`), and the service must end with exit code 0.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import click

from dither_cli.exit_codes import SIGNAL_EXIT
from dither_cli.signals import handled
from dither_cli.simulate_place import successor
from dither_cli.simulate_run import Plan, Result, Watcher, simulate
from dither_fleet.faults import Faults
from dither_fleet.load_run import LoadRun
from dither_harness.machine import machine_text
from dither_harness.operator_looks import OperatorLooks
from dither_harness.service_process import ServiceProcess
from dither_harness.service_watch import ServiceWatch
from dither_harness.soak_log import head_text, log_text, row_text, soak_document
from dither_harness.soak_verdict import Looked, Soaked, row_of, rows
from dither_protocol.errors import DitherError
from dither_protocol.registry import load_registry

REGISTRY: Final = Path(__file__).with_name("soak_registry.toml")
LOG_EVERY_S: Final = 30.0
WARM_UP: Final = 0.2
"""Part of the run that is not judged where nothing else is said: 3 minutes of 15."""

_LEAST_SAMPLES: Final = 100
_LOOK_EVERY_S: Final = 0.2
_CONNECTIONS: Final = 16
_SPARE_S: Final = 600.0


@dataclass(frozen=True)
class SoakPlan:
    """What to do.

    Attributes:
        seconds: how long devices come.
        rate: requests per second; a device sends one for each period of the registry.
        faults: of the devices.
        workers: of the server.
        every_s: from one sample to the next, seconds.
        warm_up_s: what is not judged of it, seconds.
        remembered: ids of earlier batches that the store has when it begins.
    """

    seconds: float
    rate: float
    faults: Faults
    workers: int
    every_s: float
    warm_up_s: float
    remembered: int

    def load(self, periods: int) -> Plan:
        """The plan of the fleet."""
        devices_per_s = self.rate / periods
        return Plan(
            devices=max(1, round(devices_per_s * self.seconds)),
            days=1,
            seed=1,
            faults=self.faults,
            profile="steady",
            rate=devices_per_s,
            processes=2,
            connections=_CONNECTIONS,
            time_limit_s=self.seconds + _SPARE_S,
        )


def soak(plan: SoakPlan, folder: Path, say: Callable[[str], None]) -> Soaked:
    """Run it in an empty folder.

    Raises:
        DitherError: the service does not start or stop, or does not answer.
    """
    registry = folder / "registry.toml"
    text = REGISTRY.read_text("utf-8")
    registry.write_text(text, "utf-8")
    exit_codes = []
    with ServiceProcess(folder / "state", registry) as earlier:
        earlier.wait_ready()
        exit_codes.append(earlier.stop())
    registry.write_text(successor(text) or text, "utf-8")
    with ServiceProcess(folder / "state", registry, workers=plan.workers) as service:
        service.wait_ready()
        result, watch, looks, begins = _loaded(plan, service, registry, say)
        exit_codes.append(service.stop())
    looked = Looked(dict(looks.answers), dict(looks.wrong), looks.latencies)
    return Soaked(
        result, watch.samples, begins, plan.seconds, plan.warm_up_s, plan.remembered, looked, exit_codes
    )


def _loaded(
    plan: SoakPlan, service: ServiceProcess, registry: Path, say: Callable[[str], None]
) -> tuple[Result, ServiceWatch, OperatorLooks, float]:
    metrics = load_registry(registry)
    target = service.target()
    begins = [0.0]
    watch = ServiceWatch(service, plan.every_s)
    if plan.remembered:
        say(f"the store is given {plan.remembered:,} ids of earlier batches ...")
        watch.remember(plan.remembered)
    looks = OperatorLooks(target.url, service.operator_token, list(metrics.metrics), _LOOK_EVERY_S)
    looks.warm()
    with watch, looks:
        news = _News(watch, say, begins)
        result = simulate(
            plan.load(len({metric.period for metric in metrics})), target, Watcher(sending=news.sending)
        )
    return result, watch, looks, begins[0]


class _News:
    """Says a row every half minute while the run goes on."""

    def __init__(self, watch: ServiceWatch, say: Callable[[str], None], begins: list[float]) -> None:
        self._watch, self._say, self._begins = watch, say, begins
        self._said_s = 0.0

    def sending(self, run: LoadRun) -> None:
        """As `Watcher` asks for it."""
        self._begins[0] = run.begins
        if run.seconds < self._said_s + LOG_EVERY_S or not self._watch.samples:
            return
        sample = self._watch.samples[-1]
        roles = list(sample.usages)
        if self._said_s == 0:
            self._say(head_text(roles))
        self._say(row_text(row_of(sample, run.tally, self._said_s, run.seconds), roles))
        self._said_s = run.seconds


def _stop(number: int, _: FrameType | None) -> None:
    raise SystemExit(SIGNAL_EXIT + number)  # on the way out the fleet and the service are stopped


@click.command()
@click.option(
    "--minutes", default=15.0, show_default=True, type=click.FloatRange(0.1, 24 * 60), help="How long."
)
@click.option(
    "--rate", default=150.0, show_default=True, type=click.FloatRange(1), help="Requests per second."
)
@click.option("--faults", default="all", show_default=True, help="As of dither simulate.")
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1, 64), help="Of the server.")
@click.option(
    "--warm-up",
    type=click.FloatRange(0),
    help="Seconds that are not judged.  [default: a fifth of the run]",
)
@click.option(
    "--remembered",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Ids of earlier batches that the store has at the beginning; with some its raw memory is judged, too.",
)
@click.option(
    "--out",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for soak.txt and soak.json.",
)
def main(
    *,
    minutes: float,
    rate: float,
    faults: str,
    workers: int,
    warm_up: float | None,
    remembered: int,
    out: Path | None,
) -> None:
    """Run a soak; exits with 0 where everything held, with 1 where not."""
    seconds = 60 * minutes
    every_s = min(5.0, seconds / _LEAST_SAMPLES)
    warm_up_s = WARM_UP * seconds if warm_up is None else min(warm_up, seconds)
    try:
        plan = SoakPlan(seconds, rate, Faults.parse(faults), workers, every_s, warm_up_s, remembered)
        with handled(_stop), tempfile.TemporaryDirectory(prefix="dither-soak-") as name:
            click.echo(f"soak of {minutes:g} minutes at {rate:g} requests/s; {machine_text()}")
            soaked = soak(plan, Path(name), click.echo)
    except DitherError as error:
        raise click.ClickException(str(error)) from None
    document = soak_document(soaked)
    text = log_text(document, rows(soaked), LOG_EVERY_S)
    click.echo(text)
    if out is not None:
        (out / "soak.txt").write_text(text, "utf-8")
        (out / "soak.json").write_text(json.dumps(document, separators=(",", ":")) + "\n", "utf-8")
    sys.exit(0 if document["passed"] else 1)


if __name__ == "__main__":
    main()
