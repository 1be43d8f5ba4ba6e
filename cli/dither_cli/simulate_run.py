"""One simulation against one server: the state before, the load, the wait until all is counted, the verdict."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from dither_cli.api_client import Api, ApiError
from dither_cli.exit_codes import ExitCode
from dither_cli.simulate_place import Target
from dither_client.transport import Refused, Retry
from dither_fleet.expectation import Cell
from dither_fleet.faults import Faults
from dither_fleet.lean_transport import LeanTransport
from dither_fleet.load_run import LoadRun, orders
from dither_fleet.making import Fleetwide, OldVersion
from dither_fleet.profiles import CROWD_TIMES, Schedule
from dither_fleet.server_view import Snapshot, read_books, read_published, sent_places
from dither_fleet.tally import Tally
from dither_fleet.truth import truths_of
from dither_fleet.verdict import Verdict, judge
from dither_fleet.visit import visit
from dither_protocol.registry import registry_from_document

STALL_LIMIT_S: Final = 60.0
"""So long may nothing move while accepted reports wait to be counted, seconds."""

PATIENCE_S: Final = 120.0
"""So long after the last device batches are still tried, seconds."""

_POLL_S: Final = 0.25
_WATCH_S: Final = 2.0


@dataclass(frozen=True)
class Plan:
    """What to simulate.

    Attributes:
        devices: how many.
        days: on how many days each answers.
        seed: of the population.
        faults: what goes wrong on purpose.
        profile: name of the profile.
        rate: devices per second; None for as fast as they are served.
        processes: of devices.
        connections: requests that may be under way.
        time_limit_s: no more devices come after that.
        together: how many devices share a batch; 1 as real ones.
        crowd_times: of the profile flash-crowd: so many times the rate before and after it.
    """

    devices: int
    days: int
    seed: int
    faults: Faults
    profile: str
    rate: float | None
    processes: int
    connections: int
    time_limit_s: float
    together: int = 1
    crowd_times: float = CROWD_TIMES

    @property
    def schedule(self) -> Schedule:
        """When the devices come."""
        return Schedule(self.profile, self.devices * self.days, self.rate, self.crowd_times)


@dataclass(frozen=True)
class BacklogSample:
    """The server's queue at one moment of the run.

    Attributes:
        at_s: seconds of the run.
        bytes: accepted and not yet counted, all partitions.
        waiting_s: age of the oldest of it.
    """

    at_s: float
    bytes: int
    waiting_s: float


@dataclass
class Result:
    """What a simulation found.

    Attributes:
        plan: what was simulated.
        url: the server.
        project: of its registry.
        tally: what was sent and answered.
        sending_s: from the first device to the last answer.
        counting_s: from then until all was counted and published.
        backlog: the server's queue over time.
        high_water_bytes: the mark of one partition; None where it is not known.
        verdict: on loss, duplication and accuracy.
    """

    plan: Plan
    url: str
    project: str
    tally: Tally
    sending_s: float
    counting_s: float
    backlog: list[BacklogSample]
    high_water_bytes: int | None
    verdict: Verdict


class BacklogWatch:
    """Asks a server for its backlog every two seconds, in a thread of its own. A context manager.

    Args:
        api: its operator side.
        begins: monotonic seconds at which the run begins.

    Attributes:
        samples: what it said.
        unanswered: how often it could not say.
        high_water_bytes: the mark of one partition.
    """

    def __init__(self, api: Api, begins: float) -> None:
        self.samples: list[BacklogSample] = []
        self.unanswered = 0
        self.high_water_bytes: int | None = None
        self._api, self._begins = api, begins
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._ended.wait(_WATCH_S):
            try:
                counting = self._api.get("/v1/status").document()["counting"]
            except ApiError:
                counting = (
                    None  # a server under load may be slow to say; the run itself tells whether it works
                )
            if counting is None:
                self.unanswered += 1
                continue
            self.high_water_bytes = counting["high_water_bytes"]
            waiting = sum(each["backlog_bytes"] for each in counting["partitions"])
            age_s = counting["waiting_s"] or 0.0
            self.samples.append(BacklogSample(time.monotonic() - self._begins, waiting, age_s))

    def __enter__(self) -> "BacklogWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


@dataclass
class Watcher:
    """Who wants to see the run while it goes on.

    Attributes:
        sending: called with the run a few times a second.
        counting: called with reports counted and reports accepted.
    """

    sending: Callable[[LoadRun], None] = field(default=lambda run: None)
    counting: Callable[[int, int], None] = field(default=lambda counted, accepted: None)


def fleet_of(plan: Plan, target: Target) -> Fleetwide:
    """The fleet that answers what this server asks."""
    document = _get(target.api)("/v1/registry", {})
    registry = registry_from_document(document)
    old: dict[str, OldVersion] = {}
    for name, metric in registry.metrics.items() if plan.faults.old else ():
        versions = _get(target.api)(f"/v1/metrics/{name}", {})["versions"]
        older = [OldVersion.read(each) for each in versions if each["version"] < metric.version]
        made = [each for each in older if each is not None and each.of(metric) is not None]
        if made:
            old[name] = made[-1]
    return Fleetwide(document, old, plan.devices, plan.days, plan.seed, plan.faults, plan.together)


def check_ingest_key(target: Target) -> None:
    """Find out by an empty request whether devices would be let in, before there are a million of them.

    Raises:
        ApiError: they would not.
    """
    transport = LeanTransport(target.url, target.ingest_key)
    outcome = transport.send(b"{}")
    transport.close()
    match outcome:
        case Refused(reason="http:401" | "http:403"):
            raise ApiError(f"{target.url} does not take reports with this key; see --key", ExitCode.USAGE)
        case Retry(reason=reason) if reason.startswith("network:"):
            raise ApiError(f"{target.url} does not answer", ExitCode.SERVICE)


def simulate(plan: Plan, target: Target, watcher: Watcher) -> Result:
    """Run a plan against a server that is ready.

    Raises:
        ApiError: the server cannot be asked, or does not take the keys.
        LoadError: a process of devices ended by itself.
    """
    check_ingest_key(target)
    fleet = fleet_of(plan, target)
    _wait_counted(target.api, lambda: 0, watcher)
    before = _snapshot(target.api, _possible_cells(fleet))
    given = orders(
        fleet,
        plan.schedule,
        endpoint=target.url,
        ingest_key=target.ingest_key,
        processes=plan.processes,
        connections=plan.connections,
        ends_after_s=plan.time_limit_s,
        patience_s=PATIENCE_S,
    )
    with LoadRun(given) as run, BacklogWatch(target.api, run.begins) as watch:
        while run.poll(_POLL_S):
            watcher.sending(run)
        watcher.sending(run)
        sending_s = max(run.seconds, _POLL_S)
        began = time.monotonic()
        accepted = {
            place: n for place, n in sent_places(run.tally.cells()).items() if place.dimensions is None
        }
        base = sum(int(before.published[place]["n"]) for place in accepted if place in before.published)
        total = sum(accepted.values())

        def counted() -> int:
            published = read_published(_get(target.api), run.tally.cells())
            return sum(int(published[place]["n"]) for place in accepted if place in published) - base

        _wait_counted(target.api, lambda: total - counted(), watcher, total)
        counting_s = time.monotonic() - began
    cells = _possible_cells(fleet) | dict(run.tally.sent_cells())
    after = _snapshot(target.api, cells)
    metrics = fleet.metrics()
    verdict = judge(metrics, truths_of(metrics), run.tally, before, after)
    project = fleet.registry().project
    return Result(
        plan,
        target.url,
        project,
        run.tally,
        sending_s,
        counting_s,
        watch.samples,
        watch.high_water_bytes,
        verdict,
    )


def _get(api: Api) -> Callable[[str, Mapping[str, str]], Any]:
    return lambda path, parameters: api.get(path, parameters).document()


def _snapshot(api: Api, cells: Mapping[Cell, int]) -> Snapshot:
    return Snapshot(read_books(_get(api)), read_published(_get(api), cells))


def _possible_cells(fleet: Fleetwide) -> dict[Cell, int]:
    """A cell for each metric, version and window that devices with a right clock may answer about now."""
    now = datetime.now(UTC)
    registries = [fleet.registry(), *filter(None, [fleet.old_registry()])]
    return {
        Cell(q.metric.name, q.metric.version, q.window.label, ()): 0
        for registry in registries
        for day in range(fleet.days)
        for sheet in visit(registry, now, days_ago=day)
        for slot in sheet.slots
        for q in slot
    }


def _wait_counted(api: Api, missing: Callable[[], int], watcher: Watcher, total: int = 0) -> None:
    """Wait until nothing is in flight and nothing is missing, or nothing has moved for `STALL_LIMIT_S`."""
    last, last_change = (-1, -1), time.monotonic()
    while True:
        in_flight = read_books(_get(api)).in_flight
        still = missing()
        if (in_flight, still) != last:
            last, last_change = (in_flight, still), time.monotonic()
        watcher.counting(total - still, total)
        if (in_flight == 0 and still <= 0) or time.monotonic() - last_change > STALL_LIMIT_S:
            return
        time.sleep(_POLL_S)
