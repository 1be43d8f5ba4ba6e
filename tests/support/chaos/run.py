"""A run of histories, one after the other on one fleet, with an audit after each and one of everything at the end."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import redis

from support.chaos.audit import Expected, Outcome, audit, audit_all, balance_now, counted
from support.chaos.expectation import wrong_answers
from support.chaos.fleet import Fleet
from support.chaos.history import History, Kind
from support.chaos.operator import ledger_violations, published_violations
from support.chaos.stage import Scene, Stage
from support.chaos.strikes import FULL_DISK_EXIT
from support.chaos.violations import Fault, Violation, told

# By SIGHUP ends a master that is only just starting.
_EXPECTED_EXITS: Final = {0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP}
PUBLISH_LIMIT_S: Final = 60.0
_LOOK_S: Final = 0.02


@dataclass
class Result:
    """What came of one history.

    Attributes:
        name: its seed, or what it is called.
        slot: its place in the run.
        violations: empty where all is well.
        journal: what happened when, seconds after the beginning.
        done: how often each thing was done.
        took_s: how long it took.
    """

    name: str
    slot: int
    violations: list[Violation]
    journal: list[tuple[float, str]]
    done: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0

    def __str__(self) -> str:
        events = [f"  {at:6.3f} s  {text}" for at, text in sorted(self.journal)]
        head = [f"{self.name}, history {self.slot} of its run", "what happened:"]
        return "\n".join([*head, *events, *told(self.violations)])


class Run:
    """Histories on one fleet.

    Args:
        fleet: it runs.
        calm_s: a difference is a violation once it has stood so long: a request that nobody waits for any more may
            still be under way.

    Attributes:
        expected: what the store must hold by now.
        done: how often each thing was done so far.
    """

    def __init__(self, fleet: Fleet, calm_s: float = 4.0) -> None:
        self.expected = Expected()
        self.done: Counter[str] = Counter()
        self._fleet = fleet
        self._calm_s = calm_s
        self._slot = 0
        self._client = fleet.store.store.client()

    async def play(self, history: History) -> Result:
        """Play one history and judge it."""
        full = any(event.kind is Kind.FULL_DISK for event in history.events)
        return await self.act(f"seed {history.seed}", lambda stage: stage.follow(history), full=full)

    async def act(self, name: str, scene: Scene, *, full: bool = False) -> Result:
        """Let something happen, take all faults away, wait for devices and counting, and judge.

        Args:
            name: what it is called.
            scene: what happens.
            full: whether a full disk is part of it.
        """
        began = time.monotonic()
        slot, self._slot = self._slot, self._slot + 1
        stage = Stage(self._fleet, self._client, slot)
        exits = {unit.name: len(unit.exits) for unit in self._fleet.units}
        await scene(stage)
        self._fleet.heal()
        stage.strikes.note("all faults are over")
        violations = await self._settle(stage) + self._ends(exits, full=full)
        if violations:
            for device in stage.devices:
                stage.strikes.note(str(device))
        self._count(stage)
        took_s = time.monotonic() - began
        return Result(name, slot, violations, stage.strikes.journal, stage.strikes.done, took_s)

    async def _settle(self, stage: Stage) -> list[Violation]:
        """Wait for the devices and for the counting, then judge."""
        found = self._balance(stage)
        if late := await stage.delivered():
            found.append(Violation(Fault.STUCK, f"{late} devices wait for an answer still"))
        stage.strikes.note("all devices are done")
        if not await stage.counted():
            found.append(Violation(Fault.STUCK, "not all entries are counted"))
        stage.strikes.note("all entries are counted")
        clocks = self._fleet.clocks
        outcomes: set[Outcome] = set()
        for device in stage.devices:
            outcomes |= self.expected.add(device, clocks)
            found += wrong_answers(device, clocks)

        async def look() -> list[Violation]:
            port = self._fleet.server.port
            return audit(self._client, self.expected, outcomes) + await ledger_violations(port)

        return found + await _lasting(look, self._calm_s)

    def _balance(self, stage: Stage) -> list[Violation]:
        """The accounts while reports are on their way still."""
        outcomes = {report.outcome for device in stage.devices for report in device.batch.reports}
        try:
            found, flight = balance_now(self._client, outcomes)
        except (redis.ConnectionError, redis.TimeoutError):  # the store is being started
            return []
        stage.strikes.done["balances with reports in flight"] += bool(flight)
        return found

    async def finish(self) -> list[Violation]:
        """Judge the whole run: what was right after its history must be so still, and all of it must be published."""

        async def look() -> list[Violation]:
            return audit_all(self._client, self.expected)

        async def shown() -> list[Violation]:
            return await published_violations(self._fleet.server.port, counted(self._client, self.expected))

        return await _lasting(look, self._calm_s) + await _lasting(shown, PUBLISH_LIMIT_S)

    def _ends(self, before: dict[str, int], *, full: bool) -> list[Violation]:
        """Ends that nobody caused."""
        failure = self._fleet.failure()
        if failure is not None:
            raise failure
        found = []
        for unit in self._fleet.units:
            expected = _EXPECTED_EXITS | ({FULL_DISK_EXIT} if full and unit is self._fleet.store else set())
            for code in set(unit.exits[before[unit.name] :]) - expected:
                found.append(Violation(Fault.ENDED, f"{unit.name} ended with {code}:\n{unit.tail()}"))
        return found

    def _count(self, stage: Stage) -> None:
        done = stage.strikes.done
        done["histories"] += 1
        done["batches"] += len(stage.devices)
        for device in stage.devices:
            done["reports"] += len(device.batch.reports)
            for made in device.tries:
                done[f"answer: {made}"] += 1
        self.done += done


async def _lasting(look: Callable[[], Awaitable[list[Violation]]], limit_s: float) -> list[Violation]:
    """What is wrong still when it was looked at for so long; nothing as soon as nothing is."""
    deadline = time.monotonic() + limit_s
    while True:
        found = [Violation(Fault.STUCK, "the store does not answer")]
        with suppress(redis.ConnectionError, redis.TimeoutError):
            found = await look()
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(_LOOK_S)
