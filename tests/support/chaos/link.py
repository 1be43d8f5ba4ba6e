"""A proxy between one part of the fleet and the store, on Unix sockets: it cuts, holds, and loses replies.

It knows which process speaks (the kernel says so), and it recognises commands by words that every version of the
scripts must have in them, so that a fault can strike at one instant of one script.
"""

import asyncio
import hashlib
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Final

from dither_protocol.storage import PartitionKeys
from support.chaos.history import Aim

_KEYS: Final = PartitionKeys("t")


def _suffix(key: str) -> bytes:
    return key.partition("}")[2].encode()


def _digest(script: str) -> bytes:
    source = files("dither_estimator").joinpath("scripts", f"{script}.lua").read_bytes()
    return hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()  # so EVALSHA names it


COMMANDS: Final[dict[str, tuple[bytes, ...]]] = {
    "admit": (b"EVALSHA", _suffix(_KEYS.seen(""))),
    "checkpoint": (b"\r\nGET\r\n", _suffix(_KEYS.checkpoint)),
    "entries": (b"EVALSHA", _digest("entries")),  # other scripts of this process are given the stream, too
    "attempt": (b"EVALSHA", _suffix(_KEYS.attempt)),
    "cells": (b"\r\nMGET\r\n", _suffix(_KEYS.cell(""))),
    "apply": (b"EVALSHA", _suffix(_KEYS.dead)),  # the only script that may set entries aside
}
"""What the bytes of a command contain, by the name by which a plan calls it."""

_CHUNK: Final = 1 << 18
_UCRED: Final = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED

Strike = Callable[[int], Awaitable[bool]]
"""Does something to the process of this id; whether what was to be forwarded is forwarded still."""


@dataclass(eq=False)
class Trap:
    """Waits for one command.

    Attributes:
        script: a key of `COMMANDS`.
        aim: whether it strikes before the command reaches the store, or when the store has answered.
        strike: what it does.
        sprung: set when it has struck.
    """

    script: str
    aim: Aim
    strike: Strike
    sprung: asyncio.Event = field(default_factory=asyncio.Event)

    def catches(self, chunk: bytes) -> bool:
        """Whether these bytes are the beginning of the command that it waits for."""
        return all(word in chunk for word in COMMANDS[self.script])


@dataclass(eq=False)
class _Connection:
    peer: int
    down: asyncio.StreamWriter
    up: asyncio.StreamWriter
    caught: Trap | None = None

    def close(self) -> None:
        for writer in (self.down, self.up):
            writer.close()


class Link:
    """The way to the store of one part of the fleet.

    Args:
        path: the socket that it listens on.
        store: the socket of the store.

    Attributes:
        failure: a fault of this module, if there was one.
    """

    def __init__(self, path: Path, store: Path) -> None:
        self.path = path
        self.failure: BaseException | None = None
        self._store = store
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._losing = False
        self._traps: list[Trap] = []

    @property
    def url(self) -> str:
        """What redis-py takes."""
        return f"unix://{self.path}"

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))

    async def stop(self) -> None:
        """Listen no more, and close what is open."""
        if self._server is not None:
            self._server.close()
        self.heal()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Close every connection, whatever is under way."""
        for connection in list(self._connections):
            connection.close()

    def hang(self) -> None:
        """Hold what is sent from now on, until `flow`."""
        self._flowing.clear()

    def lose_replies(self) -> None:
        """Break each connection when the store has answered on it, until `keep_replies`."""
        self._losing = True

    def flow(self) -> None:
        """Let everything through again, late as it is."""
        self._flowing.set()

    def keep_replies(self) -> None:
        """The end of `lose_replies`."""
        self._losing = False

    def heal(self) -> None:
        """No fault any more."""
        self._traps.clear()
        self.flow()
        self.keep_replies()

    def set_trap(self, trap: Trap) -> None:
        """Wait for a command."""
        self._traps.append(trap)

    def forget(self, trap: Trap) -> None:
        """Wait for it no more."""
        if trap in self._traps:
            self._traps.remove(trap)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._forward(reader, writer)
        except Exception as error:
            self.failure = error
            raise
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(str(self._store))
        except OSError:  # the store is down
            return
        connection = _Connection(_peer(writer), writer, up_writer)
        self._connections.add(connection)
        replies = asyncio.create_task(self._replies(connection, up_reader))
        self._tasks.add(replies)
        try:
            await self._commands(connection, reader)
        finally:
            connection.close()
            await replies
            self._connections.discard(connection)
            self._tasks.discard(replies)

    async def _commands(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                # What was sent is sent: it arrives late even where the sender has given up meanwhile.
                await self._flowing.wait()
                trap = next((trap for trap in self._traps if trap.catches(chunk)), None)
                if trap is not None:
                    self._traps.remove(trap)
                    if trap.aim is Aim.AFTER:
                        connection.caught = trap
                    elif not await self._spring(trap, connection):
                        return
                connection.up.write(chunk)
                await connection.up.drain()

    async def _replies(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                trap, connection.caught = connection.caught, None
                if self._losing or (trap is not None and not await self._spring(trap, connection)):
                    break
                connection.down.write(chunk)
                await connection.down.drain()
        connection.close()

    async def _spring(self, trap: Trap, connection: _Connection) -> bool:
        trap.sprung.set()
        return await trap.strike(connection.peer)


def _peer(writer: asyncio.StreamWriter) -> int:
    """Process id of the other end."""
    end: socket.socket = writer.get_extra_info("socket")
    pid: int = _UCRED.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[0]
    return pid
