"""What a flash crowd did to a service: its rules, and everything as one document. Pure.

Rules: nothing is lost and nothing counted twice (the verdict of the fleet); every answer is 202, or 503 with a time to
come back; every batch is delivered in the end; no process ends, and none takes more than a quarter of its memory more,
or than some buffers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from dither_cli.simulate_run import Result
from dither_cli.simulate_series import latency_document, simulation_document
from dither_fleet.profiles import CROWD
from dither_harness.service_process import STORE
from dither_harness.service_watch import Sample, own_memory, replaced, resident
from dither_harness.soak_verdict import MIB, STORE_LESS_IDS

P99_LIMIT_S: Final = 1.0
"""Of accepted requests, while the crowd is there; said to be met or not, and no rule."""
MEMORY_LIMIT: Final = 1.25
"""A process may take so many times what it took before the crowd ..."""
BUFFERS_MIB: Final = 4
"""... or so much more, which are the buffers of some hundred connections: a small store is mostly these."""
ROOM: Final = 0.9
"""A load generator that takes more of its processors than this measures itself."""

_KEPT: Final = (
    "devices", "batches", "requests", "reports", "retries", "sending_s", "counting_s", "waited_s", "metrics", "series",
    "high_water_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class Crowded:
    """Everything that was seen of one crowd.

    Attributes:
        name: of the scenario.
        result: of the load, with its verdict.
        samples: of the service, in order.
        begins: monotonic seconds of the run's beginning.
        offered: requests per second of the crowd.
        generator: part of its processors that the load generator took while it sent.
        exit_code: of the service.
    """

    name: str
    result: Result
    samples: Sequence[Sample]
    begins: float
    offered: float
    generator: float
    exit_code: int

    @property
    def comes_s(self) -> float:
        """When the crowd comes, seconds of the run."""
        return CROWD[0] * self.result.plan.schedule.length_s

    @property
    def goes_s(self) -> float:
        """When no more of it come."""
        return CROWD[1] * self.result.plan.schedule.length_s

    @property
    def phases(self) -> dict[str, range]:
        """Whole seconds of the run: before the crowd, while it comes, and after that until the last answer."""
        last = 1 + max((second for second, _ in self.result.tally.tries), default=0)
        comes, goes = int(self.comes_s), int(self.goes_s)
        return {"before": range(comes), "crowd": range(comes, goes), "after": range(goes, max(goes, last))}


def problems(crowded: Crowded) -> list[str]:
    """Sentences about what must not be; empty where the service stood the crowd."""
    tally, plan = crowded.result.tally, crowded.result.plan
    found = list(crowded.result.verdict.problems)
    found += replaced(list(crowded.samples))
    found += [
        f"answered other than 202 or 503: {reason} ({times} times)"
        for reason, times in tally.retries.items()
        if reason != "http:503"
    ]
    if tally.devices < plan.devices:
        found.append(f"{plan.devices - tally.devices} devices did not come in time")
    left = sum(tally.made.values()) - sum(tally.settled.values())
    if left:
        found.append(f"{left} batches were not delivered")
    for row in memory(crowded):
        if row["times"] is None:
            found.append(f"{row['process']}: was not seen before the crowd")
        elif not row["bounded"]:
            found.append(f"{row['process']}: memory rose to {row['times']} times what it was")
    if crowded.exit_code != 0:
        found.append(f"dither serve ended with exit code {crowded.exit_code}")
    return found


def memory(crowded: Crowded) -> list[dict[str, Any]]:
    """Each process before the crowd and at its most, MiB; the store once more less ids and backlog."""
    return list(_memory(crowded))


def _memory(crowded: Crowded) -> Iterator[dict[str, Any]]:
    samples = [each for each in crowded.samples if each.at >= crowded.begins]
    series = {
        role: resident(samples, role, crowded.begins)
        for role in dict.fromkeys(role for each in samples for role in each.usages)
    }
    series[STORE_LESS_IDS] = own_memory(samples, crowded.begins)
    for name, points in series.items():
        before = [value for at_s, value in points if at_s < crowded.comes_s]
        if not before:
            yield {"process": name, "times": None, "bounded": False}
            continue
        most = max(value for _, value in points)
        times = most / median(before)
        yield {
            "process": name,
            "before_mib": round(median(before) / MIB, 2),
            "most_mib": round(most / MIB, 2),
            "least_mib": round(min(value for _, value in points) / MIB, 2),
            "times": round(times, 3),
            "bounded": name == STORE or _bounded(median(before), most),  # the store is judged less its ids
        }


def _bounded(before: float, most: float) -> bool:
    return most <= before * MEMORY_LIMIT or most - before <= BUFFERS_MIB * MIB


def phase_rows(crowded: Crowded) -> dict[str, dict[str, Any]]:
    """Requests per second by outcome, and latencies of accepted ones, by phase."""
    tally = crowded.result.tally
    found: dict[str, dict[str, Any]] = {}
    for name, seconds in crowded.phases.items():
        length = max(1, len(seconds))
        rates = {
            word: round(sum(tally.tries[second, word] for second in seconds) / length, 1)
            for word in ("accepted", "retry")
        }
        found[name] = (
            {"seconds": len(seconds)}
            | rates
            | {"latency_s": latency_document(tally.latencies, seconds)}
            | {"waited_s": latency_document(tally.waits, seconds)}
        )
    return found


def p99_met(crowded: Crowded) -> bool:
    """Whether accepted requests of the crowd, and after it until all is delivered, stayed below the limit."""
    seconds = [second for name in ("crowd", "after") for second in crowded.phases[name]]
    p99 = latency_document(crowded.result.tally.latencies, seconds)["p99"]
    return p99 is not None and p99 < P99_LIMIT_S


def crowd_document(crowded: Crowded) -> dict[str, Any]:
    """Everything that is known about one crowd."""
    found = problems(crowded)
    load = simulation_document(crowded.result)
    backlog = [each.bytes for each in crowded.result.backlog]
    return {
        "scenario": crowded.name,
        "passed": not found,
        "problems": found,
        "offered_per_s": round(crowded.offered, 1),
        "comes_s": round(crowded.comes_s, 1),
        "goes_s": round(crowded.goes_s, 1),
        "connections": crowded.result.plan.connections,
        "generator": round(crowded.generator, 3),
        "phases": phase_rows(crowded),
        "p99_limit_s": P99_LIMIT_S,
        "p99_met": p99_met(crowded),
        "memory": memory(crowded),
        "most_backlog_bytes": max(backlog, default=0),
        "load": {name: load[name] for name in _KEPT},
    }
