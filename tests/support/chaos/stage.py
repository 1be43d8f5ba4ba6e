"""One history under way: devices that deliver, and what befalls the fleet."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import redis

from support.chaos.audit import waiting
from support.chaos.fleet import Fleet
from support.chaos.history import History, PlannedBatch
from support.chaos.network import Device
from support.chaos.questions import base_time
from support.chaos.sealing import seal
from support.chaos.strikes import Strikes

HANG_LIMIT_S: Final = 60.0
_LOOK_S: Final = 0.02

Scene = Callable[["Stage"], Awaitable[None]]
"""What happens in a history."""


class Stage:
    """The place of one history in a run.

    Args:
        fleet: it runs.
        client: of its store, past all faults.
        slot: place in the run.

    Attributes:
        strikes: for what befalls the fleet; keeps the journal.
        devices: all that deliver.
    """

    def __init__(self, fleet: Fleet, client: redis.Redis, slot: int) -> None:
        base = base_time(slot)
        fleet.set_clock(base)
        self.fleet = fleet
        self.strikes = Strikes(fleet, base)
        self.devices: list[Device] = []
        self._deliveries: list[asyncio.Task[None]] = []
        self._client = client
        self._slot = slot

    def send(self, plan: PlannedBatch, name: str = "") -> asyncio.Task[None]:
        """Let a device deliver a batch, from its time on."""
        batch = seal(plan, self._slot, f"{name} {self._slot} {len(self.devices)}")
        device = Device(self.fleet.server.port, batch, self.fleet.clock_place)
        self.devices.append(device)
        self._deliveries.append(asyncio.create_task(_later(device)))
        return self._deliveries[-1]

    async def follow(self, history: History) -> None:
        """Do what a history says."""
        for batch in history.batches:
            self.send(batch, str(history.seed))
        await asyncio.gather(*map(self.strikes.strike, history.events))

    async def delivered(self) -> int:
        """Wait for all devices; how many were not done in time."""
        _, late = await asyncio.wait(self._deliveries, timeout=HANG_LIMIT_S)
        for task in late:
            task.cancel()
        for task in set(self._deliveries) - late:
            task.result()
        return len(late)

    async def counted(self) -> bool:
        """Wait until no entry waits to be counted; whether that was in time."""
        return await until(lambda: waiting(self._client) == 0, HANG_LIMIT_S)


async def _later(device: Device) -> None:
    await asyncio.sleep(device.batch.plan.at_s)
    await device.deliver()


async def until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Whether the condition came true in time; a store that is away makes it false."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            if condition():
                return True
        except (redis.ConnectionError, redis.TimeoutError):
            pass  # it is being started
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_LOOK_S)
