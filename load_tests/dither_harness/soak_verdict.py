"""What a soak found: each process judged, and everything as one document. Pure.

The store must remember the id of each batch until its date is over, so its memory grows with the requests by design.
What else it holds is judged by its own account: the memory that it uses less what these ids take. Its resident memory
as the system sees it is judged as well where it began with ids of earlier batches, as one that has worked for hours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from dither_cli.simulate_run import Result
from dither_cli.simulate_series import latency_document
from dither_fleet.flatness import Flatness, Series, flatness
from dither_fleet.latencies import Latencies
from dither_fleet.usage import Usage
from dither_harness.service_process import STORE
from dither_harness.service_watch import Sample, own_memory, replaced, resident

STORE_LESS_IDS: Final = "store less ids"
"""What the store says that it uses, without ids to be remembered and backlog."""


BUFFERS_MIB: Final = 0.5
"""The store less ids may grow by so much, whatever part that is: windows that begin, some connections more."""

_OTHER_DESCRIPTORS: Final = 4
_OTHERS: Final = 0.05
"""Such a part of the looks may meet a store that is slow for a moment."""
MIB: Final = 1 << 20


@dataclass(frozen=True)
class Looked:
    """What the operator got.

    Attributes:
        answers: by status; 0 for none.
        wrong: answers that were neither 200 nor 503, by address and status.
        latencies: of all of them.
    """

    answers: dict[int, int]
    wrong: dict[str, int]
    latencies: Latencies


@dataclass(frozen=True)
class Soaked:
    """Everything that a soak saw.

    Attributes:
        result: of the load, with its verdict.
        samples: of the service, in order.
        begins: monotonic seconds of the run's beginning.
        seconds: planned length.
        warm_up_s: from here on memory must be flat, seconds of the run.
        remembered: ids that the store had when it began.
        looked: what the operator got.
        exit_codes: of the service, each time that it was stopped.
    """

    result: Result
    samples: Sequence[Sample]
    begins: float
    seconds: float
    warm_up_s: float
    remembered: int
    looked: Looked
    exit_codes: Sequence[int]

    @property
    def during(self) -> list[Sample]:
        """Samples of the run, the warm-up among them, but what came after the last device."""
        return [each for each in self.samples if 0 <= each.at - self.begins <= self.seconds]

    @property
    def judged(self) -> list[Sample]:
        """Samples after the warm-up."""
        return [each for each in self.during if each.at - self.begins >= self.warm_up_s]

    def flatness(self, series: Series) -> Flatness | None:
        """A series over the judged part of the run."""
        return flatness(series, self.warm_up_s, self.seconds)


def problems(soaked: Soaked) -> list[str]:
    """Sentences about what must not be; empty where the soak passed."""
    found = list(soaked.result.verdict.problems)
    found += replaced(soaked.during)
    found += _growths(soaked)
    found += _descriptors(soaked)
    found += [f"the operator got {what} ({times} times)" for what, times in soaked.looked.wrong.items()]
    turned_away, asked = soaked.looked.answers.get(503, 0), sum(soaked.looked.answers.values())
    if turned_away > _OTHERS * asked:
        found.append(f"the operator got 503 {turned_away} times of {asked}")
    found += [f"dither serve ended with exit code {code}" for code in soaked.exit_codes if code != 0]
    silent = sum(each.store is None for each in soaked.during)
    if silent > _OTHERS * len(soaked.during):
        found.append(f"the store did not answer {silent} looks of {len(soaked.during)}")
    tally, plan = soaked.result.tally, soaked.result.plan
    if tally.devices < plan.devices:
        found.append(f"{plan.devices - tally.devices} devices did not come in time")
    return found


def _growths(soaked: Soaked) -> Iterator[str]:
    for role, series in _series(soaked):
        held = soaked.flatness(series)
        if not judged(role, soaked.remembered):
            continue
        if held is None:
            yield f"{role}: too few samples to say whether its memory is flat"
        elif not is_flat(role, held):
            yield f"{role}: memory grew by {held.growth:.1%} after the warm-up"


def judged(process: str, remembered: int) -> bool:
    """Whether this row must be flat: a store that begins with nothing to remember has to grow."""
    return process != STORE or remembered > 0


def is_flat(process: str, held: Flatness) -> bool:
    """Whether a row keeps the rule. A twentieth of the last one is less than the buffers of a few connections."""
    return held.flat or (process == STORE_LESS_IDS and held.last - held.first <= BUFFERS_MIB * MIB)


def _series(soaked: Soaked) -> Iterator[tuple[str, Series]]:
    during = soaked.during
    for role in _roles(during):
        yield role, resident(during, role, soaked.begins)
    yield STORE_LESS_IDS, own_memory(during, soaked.begins)


def _roles(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(role for each in samples for role in each.usages))


def _descriptors(soaked: Soaked) -> Iterator[str]:
    # Connections that break off and come back may all find the same process of the server.
    most_more = soaked.result.plan.connections + _OTHER_DESCRIPTORS
    for role in _roles(soaked.during):
        series = [
            (each.at - soaked.begins, float(each.usages[role].descriptors))
            for each in soaked.during
            if role in each.usages
        ]
        held = soaked.flatness(series)
        if held is not None and held.last > held.first + most_more:
            yield f"{role}: open descriptors grew from {held.first:g} to {held.last:g}"


def processes(soaked: Soaked) -> list[dict[str, Any]]:
    """A row for each process, and one for the store less its ids. Sizes in MiB."""
    rows = []
    for role, series in _series(soaked):
        held = soaked.flatness(series)
        row: dict[str, Any] = {"process": role}
        if held is not None:
            row |= {
                "first_mib": round(held.first / MIB, 2),
                "last_mib": round(held.last / MIB, 2),
                "growth": round(held.growth, 4),
                "mib_per_hour": round(held.per_hour / MIB, 2),
                "flat": is_flat(role, held),
                "judged": judged(role, soaked.remembered),
            }
        usages = [each.usages[role] for each in soaked.judged if role in each.usages]
        rows.append(row | (_usage_row(usages, soaked) if usages else {}))
    return rows


def _usage_row(usages: Sequence[Usage], soaked: Soaked) -> dict[str, Any]:
    span_s = soaked.judged[-1].at - soaked.judged[0].at
    return {
        "peak_mib": round(max(each.rss_bytes for each in usages) / MIB, 2),
        "pss_mib": round(median(each.pss_bytes for each in usages) / MIB, 2),
        "uss_mib": round(median(each.uss_bytes for each in usages) / MIB, 2),
        "descriptors": [min(each.descriptors for each in usages), max(each.descriptors for each in usages)],
        "threads": [min(each.threads for each in usages), max(each.threads for each in usages)],
        "cpu": round((usages[-1].cpu_s - usages[0].cpu_s) / span_s, 3) if span_s else None,
    }


def store_document(soaked: Soaked) -> dict[str, Any]:
    """What the store held at the end of the warm-up and at the end of the run."""
    states = [each.store for each in soaked.judged if each.store is not None]
    if not states:
        return {}
    names = ("used_bytes", "ids", "ids_bytes", "backlog_bytes", "keys", "log_bytes")
    ends = {name: [getattr(states[0], name), getattr(states[-1], name)] for name in names}
    first, last = states[0], states[-1]
    less = [each.own_bytes for each in (first, last)]
    return ends | {
        "own_bytes": less,
        "bytes_per_id": round(last.ids_bytes / last.ids, 1) if last.ids else None,
        "most_backlog_bytes": max(each.backlog_bytes for each in states),
    }


def rows(soaked: Soaked) -> list[dict[str, Any]]:
    """The run over time: a row for each sample, with the load since the sample before it."""
    found: list[dict[str, Any]] = []
    before_s = 0.0
    for each in soaked.during:
        at_s = each.at - soaked.begins
        found.append(row_of(each, soaked.result.tally, before_s, at_s))
        before_s = at_s
    return found


def row_of(sample: Sample, tally: Any, before_s: float, at_s: float) -> dict[str, Any]:
    """One row: seconds, requests per second, milliseconds, MiB, bytes."""
    seconds = range(int(before_s), max(int(before_s) + 1, int(at_s)))
    tries = {
        word: sum(tally.tries[second, word] for second in seconds) / len(seconds)
        for word in ("accepted", "duplicate", "refused", "retry")
    }
    times = latency_document(tally.latencies, seconds)
    store = sample.store
    return {
        "at_s": round(at_s, 1),
        "requests_per_s": round(sum(tries.values()), 1),
        "retries_per_s": round(tries["retry"], 2),
        "p50_ms": None if times["p50"] is None else round(1000 * times["p50"], 1),
        "p99_ms": None if times["p99"] is None else round(1000 * times["p99"], 1),
        "rss_mib": {role: round(usage.rss_bytes / MIB, 2) for role, usage in sample.usages.items()},
        "descriptors": {role: usage.descriptors for role, usage in sample.usages.items()},
        "store_used_mib": None if store is None else round(store.used_bytes / MIB, 2),
        "ids": None if store is None else store.ids,
        "ids_mib": None if store is None else round(store.ids_bytes / MIB, 2),
        "keys": None if store is None else store.keys,
        "backlog_bytes": None if store is None else store.backlog_bytes,
    }
