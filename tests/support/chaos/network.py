"""Devices and the network between them and the server: tries, what becomes of them, and what is known of each."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from support.chaos.history import Wire
from support.chaos.sealing import SealedBatch
from support.server import INGEST_KEY

ANSWER_LIMIT_S: Final = 2.0
"""A device waits so long for an answer."""
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.16

ACCEPTED: Final = 202
_FINAL: Final = range(400, 500)


@dataclass
class Try:
    """One delivery of a batch to the server.

    Attributes:
        first_clock: place, in the run's list of clocks, of the server's time when it was sent.
        last_clock: the same for when its answer came; None where none came: it may be taken at any later time.
        status: of the answer; None without one.
        duplicate: what the answer says.
        rejected: places of the reports that the answer says are rejected.
    """

    first_clock: int
    last_clock: int | None = None
    status: int | None = None
    duplicate: bool = False
    rejected: frozenset[int] = frozenset()

    @property
    def final(self) -> bool:
        """Whether a device that sees this answer is done with the batch."""
        return self.status == ACCEPTED or (self.status is not None and self.status in _FINAL)

    def __str__(self) -> str:
        if self.status is None:
            return "no answer"
        return f"{self.status}{' duplicate' if self.duplicate else ''}"


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(port: int) -> Connection | None:
    """A connection to the server; None where nobody listens: then no byte has gone out."""
    with suppress(OSError):
        return await asyncio.open_connection("127.0.0.1", port)
    return None


def _message(body: bytes) -> bytes:
    head = (
        f"POST /v1/reports HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {INGEST_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def exchange(connection: Connection, message: bytes) -> tuple[int, Any] | None:
    """Status and document of the answer; None where none came."""
    reader, writer = connection
    try:
        writer.write(message)
        answer = await reader.read()
        head, _, document = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), json.loads(document)
    except (OSError, ValueError, IndexError):  # reset, or cut in the middle
        return None
    finally:
        writer.close()


async def _cut(connection: Connection, message: bytes) -> None:
    """Send and close."""
    _, writer = connection
    with suppress(OSError):
        writer.write(message)
        await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


class Device:
    """Delivers one batch, the same bytes until an answer is final.

    Args:
        port: of the server.
        batch: what to deliver.
        clock: place of the server's time now in the run's list of clocks.

    Attributes:
        tries: all deliveries that the server may have taken.
    """

    def __init__(self, port: int, batch: SealedBatch, clock: Callable[[], int]) -> None:
        self.batch = batch
        self.tries: list[Try] = []
        self._port = port
        self._clock = clock

    def __str__(self) -> str:
        """Its reports and its tries, for the journal of a history that went wrong."""
        batch = self.batch
        reports = " ".join(f"{report.cell}={report.bucket}" for report in batch.reports)
        tries = ", ".join(map(str, self.tries))
        return f"batch {batch.batch_id.hex()}, partition {batch.partition}: {tries}; {reports}"

    async def deliver(self) -> None:
        """Try until it is done."""
        pause = _FIRST_PAUSE_S
        planned = iter(self.batch.plan.tries)
        while not await self._try(next(planned, Wire.CLEAN)):
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _try(self, wire: Wire) -> bool:
        """One try; whether the device is done."""
        if wire is Wire.CUT_REQUEST or wire is Wire.CUT_ANSWER:
            await self._cut(whole=wire is Wire.CUT_ANSWER)
            return False
        answers = await asyncio.gather(*(self._deliver() for _ in range(2 if wire is Wire.TWICE else 1)))
        return wire is not Wire.LOST_ANSWER and any(answer.final for answer in answers)

    async def _cut(self, *, whole: bool) -> None:
        connection = await connect(self._port)
        if connection is None:
            return
        message = _message(self.batch.body)
        if whole:
            self.tries.append(Try(self._clock()))
        else:
            message = message[: len(message) * 3 // 5]  # the head and some of the body
        await _cut(connection, message)

    async def _deliver(self) -> Try:
        connection = await connect(self._port)
        made = Try(self._clock())
        if connection is None:
            return made
        self.tries.append(made)
        with suppress(TimeoutError):
            answer = await asyncio.wait_for(exchange(connection, _message(self.batch.body)), ANSWER_LIMIT_S)
            if answer is not None:
                made.status, document = answer
                made.last_clock = self._clock()
                made.duplicate = bool(document.get("duplicate"))
                made.rejected = frozenset(item["index"] for item in document.get("rejected", ()))
        return made
