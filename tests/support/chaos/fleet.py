"""The standing fleet: one store, gunicorn, two estimators, and a faulty way from each of them to the store."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import redis

from dither_protocol.storage import WORKERS_KEY
from support.chaos.link import Link
from support.chaos.plan import ESTIMATORS
from support.chaos.processes import Unit
from support.chaos.questions import REGISTRY, base_time
from support.chaos.units import EstimatorUnit, ServerUnit, StoreUnit
from support.chaos.wsgi import FileClock
from support.server import write_files

_TEND_S: Final = 0.01
_START_LIMIT_S: Final = 60.0


class Fleet:
    """Everything that runs.

    Args:
        folder: for all its files; short, since sockets lie in it.
        rooms: folder of packages to run instead of the installed ones; None for those.

    Attributes:
        links: the server's way to the store, then the estimators'.
        clocks: every time that the server's clock has shown, the last one is its time now.
    """

    def __init__(self, folder: Path, rooms: Path | None = None) -> None:
        registry, keys = write_files(folder, REGISTRY)
        self.clock = FileClock(folder / "clock")
        self.clocks: list[datetime] = []
        self.set_clock(base_time(0))
        self.store = StoreUnit(folder)
        socket = folder / "s.sock"
        self.links = [Link(folder / f"{place}.sock", socket) for place in range(1 + ESTIMATORS)]
        files = {"registry": registry, "keys": keys, "clock": folder / "clock"}
        self.server = ServerUnit(folder, rooms, self.links[0].url, files)
        self.estimators = [
            EstimatorUnit(number, folder, rooms, link.url) for number, link in enumerate(self.links[1:])
        ]
        self._tending: asyncio.Task[None] | None = None

    @property
    def units(self) -> list[Unit]:
        """All programs."""
        return [self.store, self.server, *self.estimators]

    def set_clock(self, now: datetime) -> None:
        """Step the server's clock."""
        self.clock.set(now)
        self.clocks.append(now)

    def clock_place(self) -> int:
        """Place of the server's time now in `clocks`."""
        return len(self.clocks) - 1

    async def start(self) -> None:
        """Start everything, and return when the server listens and the estimators have begun to count."""
        for link in self.links:
            await link.start()
        self._tending = asyncio.create_task(self._tend())
        deadline = time.monotonic() + _START_LIMIT_S
        while not (await self._listens() and self._counting()):
            if time.monotonic() > deadline:
                logs = "\n".join(f"{unit.name}:\n{unit.tail()}" for unit in self.units)
                raise RuntimeError(f"the fleet did not start\n{logs}")
            await asyncio.sleep(_TEND_S)

    async def _tend(self) -> None:
        while True:
            for unit in self.units:
                await unit.tend()
            await asyncio.sleep(_TEND_S)

    async def _listens(self) -> bool:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
            writer.close()
            return True
        return False

    def _counting(self) -> bool:
        with suppress(redis.ConnectionError), self.store.store.client() as client:
            return int(client.zcard(WORKERS_KEY)) == ESTIMATORS
        return False

    def heal(self) -> None:
        """Take every fault away; what has ended is started again by itself."""
        for link in self.links:
            link.heal()
        self.store.make_room()
        for unit in self.units:
            unit.go_on()

    def failure(self) -> BaseException | None:
        """A fault of the harness itself, if there was one."""
        for link in self.links:
            if link.failure is not None:
                return link.failure
        if self._tending is not None and self._tending.done() and not self._tending.cancelled():
            return self._tending.exception()
        return None

    async def stop(self) -> None:
        """End everything that was ever started."""
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)
        self.heal()
        await asyncio.gather(*(unit.stop() for unit in (self.server, *self.estimators)))
        await self.store.stop()
        for link in self.links:
            await link.stop()


@asynccontextmanager
async def running_fleet(rooms: Path | None = None) -> AsyncIterator[Fleet]:
    """A fleet that listens; nothing of it is left at the end."""
    folder = Path(tempfile.mkdtemp(prefix="dc-", dir="/tmp"))  # a socket's path must be short
    try:
        fleet = Fleet(folder, rooms)
        try:
            await fleet.start()
            yield fleet
        finally:
            await fleet.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
