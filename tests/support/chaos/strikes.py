"""What befalls the fleet: each event of a plan done to the real processes."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from support.chaos.fleet import Fleet
from support.chaos.history import Aim, Event, Kind
from support.chaos.link import Link, Strike, Trap
from support.chaos.processes import Unit

TRAP_LIMIT_S: Final = 1.1  # an idle estimator looks once a second
"""An aimed event strikes at random where its command does not come within so many seconds."""
RUNS_LIMIT_S: Final = 30.0
FULL_LIMIT_S: Final = 10.0
"""The store meets the full disk at its next write, and estimators write once a second."""
FULL_DISK_EXIT: Final = 1
"""How Valkey ends where it cannot append."""


class Strikes:
    """Does events to a fleet.

    Attributes:
        journal: what was done when, seconds after the beginning.
        done: how often each thing was done.
    """

    def __init__(self, fleet: Fleet, base: datetime) -> None:
        self.journal: list[tuple[float, str]] = []
        self.done: Counter[str] = Counter()
        self._fleet = fleet
        self._base = base
        self._began = time.monotonic()
        self._ways: dict[Kind, Callable[[Event], Awaitable[None]]] = {
            Kind.KILL_SERVER_WORKER: self._kill_server_worker,
            Kind.KILL_SERVER: self._kill_server,
            Kind.KILL_ESTIMATOR: self._kill_estimator,
            Kind.KILL_STORE: self._kill_store,
            Kind.TERM_SERVER: self._term_server,
            Kind.ROLL_SERVER: self._roll_server,
            Kind.TERM_ESTIMATOR: self._term_estimator,
            Kind.REPLACE_ESTIMATOR: self._replace_estimator,
            Kind.TERM_STORE: self._term_store,
            Kind.STOP_SERVER_WORKER: self._stop_server_worker,
            Kind.STOP_ESTIMATOR: self._stop_estimator,
            Kind.STOP_STORE: self._stop_store,
            Kind.CUT_LINK: self._cut_link,
            Kind.HANG_LINK: self._hang_link,
            Kind.LOSE_REPLIES: self._lose_replies,
            Kind.HOLD_COMMAND: self._hold,
            Kind.HOLD_REPLY: self._hold,
            Kind.CLOCK: self._clock,
            Kind.FULL_DISK: self._full_disk,
        }

    async def strike(self, event: Event) -> None:
        """Do one event at its time, to its end."""
        await asyncio.sleep(max(0.0, self._began + event.at_s - time.monotonic()))
        self.note(str(event))
        await self._ways[event.kind](event)

    def note(self, text: str) -> None:
        """Write something into the journal."""
        self.journal.append((time.monotonic() - self._began, text))

    def _killed(self, what: str) -> None:
        self.done["kill -9"] += 1
        self.done[f"kill -9 {what}"] += 1
        self.note(f"killed: {what}")

    async def _aimed(self, event: Event, link: Link, strike: Strike) -> bool:
        """Let ``strike`` wait for its command; whether it came in time."""
        if event.aim is Aim.NOW or not await self._caught(link, Trap(event.script, event.aim, strike)):
            return False
        self.done[f"aimed at {event.script}"] += 1
        return True

    async def _caught(self, link: Link, trap: Trap) -> bool:
        """Set a trap; whether its command comes in time."""
        link.set_trap(trap)
        try:
            await asyncio.wait_for(trap.sprung.wait(), TRAP_LIMIT_S)
        except TimeoutError:
            link.forget(trap)
            return False
        return True

    async def _kill_server_worker(self, event: Event) -> None:
        async def kill(pid: int) -> bool:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self._killed("gunicorn worker")
            return False

        if await self._aimed(event, self._fleet.links[0], kill):
            return
        server = self._fleet.server
        await self._until(lambda: server.signal_worker(event.target, signal.SIGKILL), server)
        self._killed("gunicorn worker")

    async def _kill_server(self, _: Event) -> None:
        self._fleet.server.family()  # its workers stay behind for a moment; they must be remembered
        await self._kill(self._fleet.server, "gunicorn master")

    async def _kill_estimator(self, event: Event) -> None:
        unit = self._fleet.estimators[event.target]
        await self._kill_aimed(event, unit, "estimator", self._fleet.links[1 + event.target])

    async def _kill_store(self, event: Event) -> None:
        await self._kill_aimed(event, self._fleet.store, "store", self._fleet.links[event.target])

    async def _kill_aimed(self, event: Event, unit: Unit, what: str, link: Link) -> None:
        async def kill(_: int) -> bool:
            unit.restart_after_s = event.for_s
            if unit.signal(signal.SIGKILL):
                self._killed(what)
            return False

        if not await self._aimed(event, link, kill):
            unit.restart_after_s = event.for_s
            await self._kill(unit, what)

    async def _kill(self, unit: Unit, what: str) -> None:
        await self._until(lambda: unit.signal(signal.SIGKILL), unit)
        self._killed(what)

    async def _until(self, done: Callable[[], object], unit: Unit) -> None:
        """Try until it works: just now the unit may be starting."""
        deadline = time.monotonic() + RUNS_LIMIT_S
        while not done():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{unit.name} does not run:\n{unit.tail()}")
            await asyncio.sleep(0.01)

    async def _term_server(self, _: Event) -> None:
        self._fleet.server.replace()

    async def _roll_server(self, _: Event) -> None:
        self._fleet.server.family()
        self._fleet.server.signal(signal.SIGHUP)

    async def _term_estimator(self, event: Event) -> None:
        unit = self._fleet.estimators[event.target]
        unit.restart_after_s = event.for_s
        unit.signal(signal.SIGTERM)

    async def _term_store(self, event: Event) -> None:
        self._fleet.store.restart_after_s = event.for_s
        self._fleet.store.signal(signal.SIGTERM)

    async def _stop_server_worker(self, event: Event) -> None:
        pid = self._fleet.server.signal_worker(event.target, signal.SIGSTOP)
        await asyncio.sleep(event.for_s)
        if pid is not None:
            self._fleet.server.go_on()

    async def _stop_estimator(self, event: Event) -> None:
        unit = self._fleet.estimators[event.target]
        if event.aim is not Aim.NOW:  # what it has just sent arrives when it goes on
            await self._held(event, self._fleet.links[1 + event.target], event.aim)
        unit.signal(signal.SIGSTOP)
        await asyncio.sleep(event.for_s)
        unit.signal(signal.SIGCONT)

    async def _stop_store(self, event: Event) -> None:
        self._fleet.store.signal(signal.SIGSTOP)
        await asyncio.sleep(event.for_s)
        self._fleet.store.signal(signal.SIGCONT)

    async def _cut_link(self, event: Event) -> None:
        self._fleet.links[event.target].cut()

    async def _hang_link(self, event: Event) -> None:
        link = self._fleet.links[event.target]
        link.hang()
        await asyncio.sleep(event.for_s)
        link.flow()

    async def _lose_replies(self, event: Event) -> None:
        link = self._fleet.links[event.target]
        link.lose_replies()
        await asyncio.sleep(event.for_s)
        link.keep_replies()

    async def _hold(self, event: Event) -> None:
        aim = Aim.BEFORE if event.kind is Kind.HOLD_COMMAND else Aim.AFTER
        if await self._held(event, self._fleet.links[event.target], aim):
            await asyncio.sleep(event.for_s)

    async def _held(self, event: Event, link: Link, aim: Aim) -> bool:
        """Hold the next command, or the reply to it; whether it came in time."""

        async def hold(_: int) -> bool:
            self.note(f"held: {event.script}, {aim}")
            self.done[f"held {event.script}"] += 1
            await asyncio.sleep(event.for_s)
            self.note(f"let go: {event.script}")
            return True

        return await self._caught(link, Trap(event.script, aim, hold))

    async def _replace_estimator(self, event: Event) -> None:
        unit = self._fleet.estimators[event.target]
        held = await self._held(event, self._fleet.links[1 + event.target], event.aim)
        old = unit.leave()  # whether or not it was held: two of one name
        if held:
            await asyncio.sleep(event.for_s)
        if old is not None:
            old.terminate()

    async def _clock(self, event: Event) -> None:
        self._fleet.set_clock(self._base + timedelta(seconds=event.clock_s))

    async def _full_disk(self, event: Event) -> None:
        store = self._fleet.store
        before = len(store.exits)
        store.fill_disk()
        deadline = time.monotonic() + FULL_LIMIT_S
        while FULL_DISK_EXIT not in store.exits[before:] and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        await asyncio.sleep(event.for_s)
        store.make_room()
        ends = store.exits[before:].count(FULL_DISK_EXIT)
        self.done["ends of the store on a full disk"] += ends
        self.note(f"there is room again, the store ended {ends} times")
