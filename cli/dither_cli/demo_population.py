"""What is true of the demo's devices, and two hundred of them that run the real SDK."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from importlib.resources import files
from typing import Final, NamedTuple

import numpy as np

from dither_client import Client, RecordStatus
from dither_fleet import FleetResult, MetricTruth, read_distribution
from dither_fleet.population import draw
from dither_protocol.errors import DitherError
from dither_protocol.registry import Metric, Registry

DARK_MODE_SHARE: Final = 0.37
OS_SHARES: Final = {"linux": 0.2, "macos": 0.25, "windows": 0.55}

_CLIENT_SEED_SHIFT: Final = 1_000_003  # the SDK's devices are other people than the fleet's
_CLIENT_FLUSH_TIMEOUT_S: Final = 30.0


class DemoError(DitherError):
    """The demo cannot go on; the message says why."""


class Server(NamedTuple):
    """Where the service is, and the key to it."""

    base_url: str
    ingest_key: str


def demo_truths(registry: Registry) -> dict[str, MetricTruth]:
    """True shares of every metric of the example registry: real browser shares, and an invented one.

    Raises:
        DemoError: a categorical metric asks for something else than the browsers of the distribution.
    """
    lines = files("dither_cli").joinpath("data", "browser_share.csv").read_text("utf-8").splitlines()
    browsers = read_distribution(lines)
    return {
        metric.name: MetricTruth(_shares(metric, browsers), {"os": OS_SHARES} if metric.dimensions else {})
        for metric in registry
    }


def _shares(metric: Metric, browsers: Mapping[str, float]) -> Sequence[float]:
    if metric.true_shares is not None:
        return metric.true_shares
    if metric.type == "boolean":
        return [1 - DARK_MODE_SHARE, DARK_MODE_SHARE]
    if set(metric.labels) != set(browsers):
        raise DemoError(f"the demo knows no truth about metric '{metric.name}'")
    return [browsers[label] for label in metric.labels]


def _answers(
    registry: Registry, truths: Mapping[str, MetricTruth], count: int, seed: int
) -> list[dict[str, int]]:
    """True answers of ``count`` people: index by metric, and under ``os`` the index of their system."""
    generator = np.random.default_rng(seed + _CLIENT_SEED_SHIFT)
    columns = {metric.name: draw(truths[metric.name].shares, count, generator) for metric in registry}
    systems = draw(list(OS_SHARES.values()), count, generator)
    return [
        {"os": int(systems[i])} | {name: int(column[i]) for name, column in columns.items()}
        for i in range(count)
    ]


def run_sdk_clients(
    server: Server,
    registry: Registry,
    truths: Mapping[str, MetricTruth],
    *,
    count: int,
    seed: int,
    now: datetime,
    progress: Callable[[int], None],
) -> FleetResult:
    """Let ``count`` real `Client` objects, each a device of its own, answer every metric once and flush.

    Raises:
        DemoError: a client refused to record.
    """

    def one(answers: Mapping[str, int]) -> tuple[int, dict[str, int]]:
        system = {"os": list(OS_SHARES)[answers["os"]]}
        with Client(server.base_url, registry, ingest_key=server.ingest_key, clock=lambda: now) as client:
            for metric in registry:
                dimensions = system if metric.dimensions else None
                if metric.calibration is not None:  # the SDK draws the answer
                    result = client.record(metric.name, dimensions=dimensions)
                else:
                    result = client.record(metric.name, _value(metric, answers[metric.name]), dimensions)
                if result.status is not RecordStatus.QUEUED:
                    raise DemoError(
                        f"the SDK did not record '{metric.name}': {result.status} {result.reason}"
                    )
            client.flush(_CLIENT_FLUSH_TIMEOUT_S)
            return client.pending_reports(), client.stats()

    total = FleetResult()
    with ThreadPoolExecutor(8) as pool:
        try:
            for pending, stats in pool.map(one, _answers(registry, truths, count, seed)):
                _add(total, registry, pending, stats)
                progress(len(registry.metrics))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return total


def _value(metric: Metric, index: int) -> bool | str:
    return bool(index) if metric.type == "boolean" else metric.labels[index]


def _add(total: FleetResult, registry: Registry, pending: int, stats: Mapping[str, int]) -> None:
    """Book one client: all of its reports were accepted, or it counts as a failure with its reasons."""
    names = [metric.name for metric in registry]
    total.sent.update(names)
    total.retries.update({k.removeprefix("retry:"): n for k, n in stats.items() if k.startswith("retry:")})
    delivered = stats.get("sent", 0) + stats.get("duplicate", 0)
    if pending == 0 and delivered == len(names):
        total.accepted.update(names)
    else:
        total.failures.update(Counter({f"sdk client: {sorted(stats.items())}": 1}))
