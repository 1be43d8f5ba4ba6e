"""Samples of a service and results of a load, made by hand, for what judges them."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from dither_cli.simulate_run import Plan, Result
from dither_fleet.expectation import Fate
from dither_fleet.faults import Faults
from dither_fleet.tally import Tally
from dither_fleet.usage import Usage
from dither_fleet.verdict import Verdict
from dither_harness.service_watch import Sample, StoreState

MIB = 1 << 20
RESIDENT = {
    "serve": 36.0,
    "store": 8.0,
    "server master": 35.0,
    "server worker 1": 92.0,
    "server worker 2": 91.0,
    "estimator": 68.0,
}
"""MiB by role, as of a service that has warmed up."""


def usage(number: int, mib: float, **changes: Any) -> Usage:
    """A process with so much memory."""
    size = round(mib * MIB)
    given: dict[str, Any] = {"pid": number, "descriptors": 20, "threads": 9, "cpu_s": 1.0}
    return Usage(**{"rss_bytes": size, "pss_bytes": size, "uss_bytes": size} | given | changes)


def sample(
    at: float,
    resident: Mapping[str, float] | None = None,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    **store: int,
) -> Sample:
    """A service at a moment: MiB other than in `RESIDENT`, other changes by role, and changes in the store."""
    sizes = {**RESIDENT, **(resident or {})}
    usages = {
        role: usage(number, mib, **(changes or {}).get(role, {}))
        for number, (role, mib) in enumerate(sizes.items(), 100)
    }
    given = {
        "used_bytes": 3 * MIB,
        "ids": 0,
        "ids_bytes": 0,
        "backlog_bytes": 0,
        "keys": 300,
        "log_bytes": MIB,
    }
    return Sample(at, usages, StoreState(**given | store))


def samples(seconds: float, every_s: float, made: Callable[[float], Sample]) -> list[Sample]:
    """From the beginning to the end of a run that began at 0."""
    return [made(number * every_s) for number in range(int(seconds / every_s) + 1)]


def plan(**changes: Any) -> Plan:
    """A load of ten devices a second."""
    given: dict[str, Any] = {
        "devices": 10,
        "days": 1,
        "seed": 1,
        "faults": Faults(),
        "profile": "steady",
        "rate": 10.0,
        "processes": 1,
        "connections": 4,
        "time_limit_s": 60.0,
    }
    return Plan(**given | changes)


def result(given: Plan, problems: tuple[str, ...] = (), **changes: Any) -> Result:
    """A load of which every batch was delivered; ``changes`` are of its tally."""
    delivered = Counter({Fate(()): given.devices})
    tally = Tally(devices=given.devices, made=delivered, settled=delivered)
    for name, value in changes.items():
        setattr(tally, name, value)
    verdict = Verdict(problems, [], [], [], 0)
    return Result(given, "http://127.0.0.1:1", "test", tally, 1.0, 0.5, [], 1_000, verdict)
