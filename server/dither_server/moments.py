"""Reads of one partition, each of a single moment at which its stream was read to the end.

A step is one transaction: the checkpoint, the next entries of the stream, and whatever else is asked for. Once a step
reaches the end of the stream, all that it read is of the very moment at which so much is in flight
(`dither_server.in_flight`). So nothing is locked, and a worker that moves the checkpoint meanwhile only leaves less to
read. ``client`` is the redis-py client that `dither_server.store` opened; a step touches one partition, so this works
on a cluster unchanged.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from dither_protocol.errors import StorageError
from dither_protocol.storage import PartitionKeys
from dither_server.in_flight import InFlight

_ENTRIES_AT_ONCE: Final = 100
_FIRST_ENTRIES: Final = 20
_PAGE_BYTES: Final = 1 << 20


class Damaged(Exception):
    """A key is not what it must be. ``key`` names it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class OutOfTime(Exception):
    """The end of the stream was not reached in time."""


class Moments:
    """One reading of one partition, step by step.

    Args:
        client: of the store.
        keys: of the partition.
        until: monotonic time at which it must have ended.

    Attributes:
        keys: of the partition.
        in_flight: what is in flight at the last moment.
        backlog_bytes: of the entries in the stream then; None before the first one.
    """

    def __init__(self, client: Any, keys: PartitionKeys, until: float) -> None:
        self.keys = keys
        self.in_flight = InFlight()
        self.backlog_bytes: int | None = None
        self._client = client
        self._until = until
        self._entries_at_once = _FIRST_ENTRIES

    def read(self, ask: Callable[[Any], None]) -> list[Any]:
        """Answers of a moment to which the stream was read.

        Args:
            ask: puts read-only commands into a pipeline; called anew for each step.

        Returns:
            Their answers, or the exceptions that redis-py put in their places.

        Raises:
            OutOfTime: the end of the stream was not reached in time.
            Damaged: the stream, its checkpoint or its backlog is not what it must be.
        """
        keys = self.keys
        while True:
            self.check_time()
            with self._client.pipeline(transaction=True) as pipe:
                pipe.get(keys.checkpoint)
                pipe.get(keys.backlog)
                pipe.xrange(keys.stream, min=self.in_flight.next_id, count=self._entries_at_once)
                ask(pipe)
                answers: list[Any] = pipe.execute(raise_on_error=False)
            checkpoint, backlog, entries = answers[:3]
            self._take_backlog(sound(keys.backlog, backlog))
            if self._take(sound(keys.checkpoint, checkpoint), sound(keys.stream, entries)):
                return answers[3:]

    def check_time(self) -> None:
        """Raises OutOfTime where it must have ended."""
        if time.monotonic() >= self._until:
            raise OutOfTime

    def _take(self, checkpoint: bytes | None, entries: Sequence[Any]) -> bool:
        """Go on by what was read; whether it was the end of the stream."""
        try:
            self.in_flight.take(checkpoint, entries)
        except StorageError:
            raise Damaged(self.keys.checkpoint) from None
        if len(entries) < self._entries_at_once:
            return True
        mean_bytes = sum(len(value) for _, fields in entries for value in fields.values()) / len(entries)
        self._entries_at_once = max(1, min(_ENTRIES_AT_ONCE, int(_PAGE_BYTES / max(mean_bytes, 1))))
        return False

    def _take_backlog(self, backlog: bytes | None) -> None:
        try:
            self.backlog_bytes = int(backlog or 0)
        except ValueError:
            raise Damaged(self.keys.backlog) from None


def sound(key: str, found: Any) -> Any:
    """What the store answered about a key, which may be an exception that redis-py put in its place.

    Raises:
        Damaged: the key has another type.
    """
    if isinstance(found, Exception):
        if str(found).startswith("WRONGTYPE"):
            raise Damaged(key)
        raise found
    return found
