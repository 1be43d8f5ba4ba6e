"""Measures conservation in the store, while uploads and counting go on.

The balance of an account holds at every single moment, so its terms must be of one moment. Each step reads in one
transaction: the checkpoint, the next entries of the stream, and some accounts. Once a step reaches the end of the
stream, its accounts are of the very moment at which so much is in flight (`dither_server.in_flight`). So nothing is
locked, no step holds up the store for longer than a fraction of a millisecond, and a worker that moves the checkpoint
meanwhile only leaves less to read. ``client`` is the redis-py client that `dither_server.store` opened; a step touches
one partition, so this works on a cluster unchanged.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import Any, Final

from dither_protocol.errors import StorageError
from dither_protocol.storage import PartitionKeys
from dither_server.admission import Bucket
from dither_server.conservation import Conservation, View, damaged_account, read_account
from dither_server.in_flight import InFlight
from dither_server.store_rules import StoreUnavailable

_ACCOUNTS_AT_ONCE: Final = 25
_ENTRIES_AT_ONCE: Final = 100
_FIRST_ENTRIES: Final = 20
_PAGE_BYTES: Final = 1 << 20
_NAMES_AT_ONCE: Final = 500
_INDEX_SCRIPT: Final = files("dither_server").joinpath("scripts/accounts.lua").read_bytes()


class Damaged(Exception):
    """A key is not what it must be. ``key`` names it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class _OutOfTime(Exception):
    """The end of the stream was not reached in time."""


def measure(
    client: Any,
    partitions: Sequence[PartitionKeys],
    view: View,
    budget_s: float,
    reading: Callable[[PartitionKeys], AbstractContextManager[None]],
) -> Conservation:
    """The accounts of a view, over all partitions.

    A partition is unsettled where it is not read to its end in its share of the time that is left, and where its
    master of a cluster is away.

    Args:
        client: of the store.
        partitions: their keys.
        view: which accounts.
        budget_s: seconds that it may take.
        reading: stands around the reading of a partition, and turns the errors of the client into ours.

    Raises:
        StoreUnavailable: no partition could be read.
    """
    total, away = Conservation(), 0
    deadline = time.monotonic() + budget_s
    for number, keys in enumerate(partitions):
        now = time.monotonic()
        until = now + (deadline - now) / (len(partitions) - number)
        try:
            with reading(keys):
                total.add(_twice(client, number, keys, view, until))
        except StoreUnavailable:
            away += 1
            if away == len(partitions):
                raise
            total.unsettled.append(number)
    return total


def _twice(client: Any, number: int, keys: PartitionKeys, view: View, until: float) -> Conservation:
    """One partition; once more where it is out of balance: a store that failed over meanwhile has lost nothing."""
    found = _Reading(client, number, keys, view, until).result()
    if found.imbalance:
        again = _Reading(client, number, keys, view, until).result()
        if not again.unsettled:
            return again
    return found


class _Reading:
    """One reading of one partition.

    Args:
        client: of the store.
        number: of the partition.
        keys: of the partition.
        view: which accounts.
        until: monotonic time at which it must have ended.
    """

    def __init__(self, client: Any, number: int, keys: PartitionKeys, view: View, until: float) -> None:
        self._client = client
        self._number = number
        self._keys = keys
        self._view = view
        self._until = until
        self._in_flight = InFlight()
        self._entries_at_once = _FIRST_ENTRIES
        self._found = Conservation()

    def result(self) -> Conservation:
        """What is found in time."""
        try:
            self._read()
        except Damaged as damaged:
            self._found.accounts.clear()
            self._found.damaged(damaged.key)
        except _OutOfTime:
            self._found.accounts.clear()
            self._found.unreadable.clear()
            self._found.unsettled.append(self._number)
        return self._found

    def _read(self) -> None:
        wanted = deque(self._indexed())
        seen = set(wanted)
        chunk: list[Bucket] = []  # none at first: only find the end of the stream
        while True:
            for bucket, fields in zip(chunk, self._hashes(chunk), strict=True):
                self._book(bucket, fields)
            new = [bucket for bucket in self._in_flight.reports if bucket not in seen]
            seen.update(new)
            wanted.extend(filter(self._view.takes_in_flight, new))
            if not wanted:
                return
            chunk = [wanted.popleft() for _ in range(min(len(wanted), _ACCOUNTS_AT_ONCE))]

    def _indexed(self) -> Iterator[Bucket]:
        """The accounts of the view that the partition has, each once."""
        key, cursor, seen = self._keys.outcomes, b"0", set[bytes]()
        least = [part for label in self._view.least_labels for part in (len(label), label)]
        while True:
            self._check_time()
            with self._client.pipeline(transaction=False) as pipe:
                pipe.execute_command("EVAL", _INDEX_SCRIPT, 1, key, cursor, _NAMES_AT_ONCE, *least)
                cursor, names = sound(key, pipe.execute(raise_on_error=False)[0])
            for name in set(names) - seen:
                metric, _, window = name.decode("utf-8", "replace").partition(":")
                if self._view.takes((metric, window)):
                    yield metric, window
            seen.update(names)
            if cursor == b"0":
                return

    def _hashes(self, chunk: Sequence[Bucket]) -> list[Any]:
        """The outcome hashes of some accounts, at a moment up to which the stream was read."""
        keys = self._keys
        hashes: list[Any]
        while True:
            self._check_time()
            with self._client.pipeline(transaction=True) as pipe:
                pipe.get(keys.checkpoint)
                pipe.get(keys.backlog)
                pipe.xrange(keys.stream, min=self._in_flight.next_id, count=self._entries_at_once)
                for bucket in chunk:
                    pipe.hgetall(keys.outcome(*bucket))
                checkpoint, backlog, entries, *hashes = pipe.execute(raise_on_error=False)
            self._take_backlog(sound(keys.backlog, backlog))
            if self._take(sound(keys.checkpoint, checkpoint), sound(keys.stream, entries)):
                return hashes

    def _take(self, checkpoint: bytes | None, entries: Sequence[Any]) -> bool:
        """Go on by what was read; whether it was the end of the stream."""
        try:
            self._in_flight.take(checkpoint, entries)
        except StorageError:
            raise Damaged(self._keys.checkpoint) from None
        if len(entries) < self._entries_at_once:
            return True
        mean_bytes = sum(len(value) for _, fields in entries for value in fields.values()) / len(entries)
        self._entries_at_once = max(1, min(_ENTRIES_AT_ONCE, int(_PAGE_BYTES / max(mean_bytes, 1))))
        return False

    def _take_backlog(self, backlog: bytes | None) -> None:
        try:
            self._found.backlog_bytes[self._number] = int(backlog or 0)
        except ValueError:
            raise Damaged(self._keys.backlog) from None

    def _book(self, bucket: Bucket, fields: Any) -> None:
        key, in_flight = self._keys.outcome(*bucket), self._in_flight.reports.get(bucket, 0)
        try:
            terms = read_account(sound(key, fields), in_flight)
        except (Damaged, StorageError):
            self._found.unreadable.append(key)
            terms = damaged_account(in_flight)
        self._found.account(bucket).add(terms)

    def _check_time(self) -> None:
        if time.monotonic() >= self._until:
            raise _OutOfTime


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
