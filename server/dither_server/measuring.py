"""Measures the accounts of some windows in the store, while uploads and counting go on.

The balance of an account holds at every single moment, so its terms must be of one moment: each step reads some
accounts at a moment to which the stream was read (`dither_server.moments`). No step holds up the store for longer than
a fraction of a millisecond. The whole ledger is not measured like this: see `dither_server.looking`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import Any, Final

from dither_protocol.errors import StorageError
from dither_protocol.labels import NAME
from dither_protocol.storage import UNKNOWN, PartitionKeys
from dither_server.admission import Bucket
from dither_server.conservation import Conservation, View, damaged_account, read_account
from dither_server.moments import Damaged, Moments, OutOfTime, sound
from dither_server.store_rules import StoreUnavailable

_ACCOUNTS_AT_ONCE: Final = 25
_NAMES_AT_ONCE: Final = 500
_INDEX_SCRIPT: Final = files("dither_server").joinpath("scripts/accounts.lua").read_bytes()

Reading = Callable[[PartitionKeys], AbstractContextManager[None]]
"""Stands around the reading of a partition, and turns the errors of the client into ours."""


def measure(
    client: Any,
    partitions: Sequence[PartitionKeys],
    view: View,
    budget_s: float,
    reading: Reading,
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
    total = Conservation()

    def one(number: int, keys: PartitionKeys, until: float) -> None:
        total.add(_twice(client, number, keys, view, until))

    total.unsettled += each_partition(partitions, budget_s, reading, one)
    total.unsettled.sort()
    return total


def each_partition(
    partitions: Sequence[PartitionKeys],
    budget_s: float,
    reading: Reading,
    one: Callable[[int, PartitionKeys, float], None],
) -> list[int]:
    """Read one partition after the other, each in its share of the time that is left.

    Args:
        partitions: their keys.
        budget_s: seconds for all of them.
        reading: stands around each.
        one: reads the partition of a number until a monotonic time.

    Returns:
        Numbers of those that are away.

    Raises:
        StoreUnavailable: all of them are.
    """
    away: list[int] = []
    deadline = time.monotonic() + budget_s
    for number, keys in enumerate(partitions):
        now = time.monotonic()
        until = now + (deadline - now) / (len(partitions) - number)
        try:
            with reading(keys):
                one(number, keys, until)
        except StoreUnavailable:
            away.append(number)
            if len(away) == len(partitions):
                raise
    return away


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
        self._moments = Moments(client, keys, until)
        self._found = Conservation()

    def result(self) -> Conservation:
        """What is found in time."""
        try:
            self._read()
        except Damaged as damaged:
            self._found.accounts.clear()
            self._found.damaged(damaged.key)
        except OutOfTime:
            self._found.accounts.clear()
            self._found.unreadable.clear()
            self._found.unsettled.append(self._number)
        if self._moments.backlog_bytes is not None:
            self._found.backlog_bytes[self._number] = self._moments.backlog_bytes
        return self._found

    def _read(self) -> None:
        wanted = deque(self._indexed())
        seen = set(wanted)
        chunk: list[Bucket] = []  # none at first: only find the end of the stream
        while True:
            for bucket, fields in zip(chunk, self._hashes(chunk), strict=True):
                self._book(bucket, fields)
            new = [bucket for bucket in self._moments.in_flight.reports if bucket not in seen]
            seen.update(new)
            wanted.extend(filter(self._view.takes_in_flight, new))
            if not wanted:
                return
            chunk = [wanted.popleft() for _ in range(min(len(wanted), _ACCOUNTS_AT_ONCE))]

    def _indexed(self) -> Iterator[Bucket]:
        """The accounts of the view that the partition has, each once."""
        key, cursor, seen = self._keys.outcomes, b"0", set[bytes]()
        least = [part for label in self._view.least_labels for part in (len(label), label)]
        arguments = (_NAMES_AT_ONCE, _pattern(self._view.metric), *least)
        while True:
            self._moments.check_time()
            with self._client.pipeline(transaction=False) as pipe:
                pipe.execute_command("EVAL", _INDEX_SCRIPT, 1, key, cursor, *arguments)
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

        def ask(pipe: Any) -> None:
            for bucket in chunk:
                pipe.hgetall(self._keys.outcome(*bucket))

        return self._moments.read(ask)

    def _book(self, bucket: Bucket, fields: Any) -> None:
        key, in_flight = self._keys.outcome(*bucket), self._moments.in_flight.reports.get(bucket, 0)
        try:
            terms = read_account(sound(key, fields), in_flight)
        except (Damaged, StorageError):
            self._found.unreadable.append(key)
            terms = damaged_account(in_flight)
        self._found.account(bucket).add(terms)


def _pattern(metric: str | None) -> str:
    """Of the names of a metric's accounts; of all names where it is none of a metric, and may be a pattern itself."""
    return f"{metric}:*" if metric is not None and (metric == UNKNOWN or NAME.fullmatch(metric)) else "*"
