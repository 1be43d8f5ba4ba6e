"""Presence: which workers live.

Every worker says about once a second that it lives, in a sorted set with the store's own time. One that has not said
so for `TTL_MS` is dropped from the set: that decides how the work is shared.

Whether a worker has *died* decides more: what it was counting may be poison. Silence alone does not tell, since
nobody is heard while the store is away. So a worker has died where nothing was heard of it for a whole `TTL_MS` of
unbroken contact with the store.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dither_estimator.store import Store
from dither_protocol.storage import PUBLISHER_KEY, PartitionKeys, partition_tags

TTL_MS: Final = 5_000
"""How long a worker counts as alive, and its leases as held, after it was heard of last.

Long enough for the longest time between two signs of life (one commit, or one second of publishing), short enough
that nobody waits for the reports of a dead worker's partitions.
"""

_log = logging.getLogger("dither_estimator")


class Fate(StrEnum):
    """What became of a worker."""

    LIVES = "lives"
    DIED = "died"
    UNKNOWN = "unknown"
    """It is not heard of, but not for long enough."""


class Presence:
    """One worker's sign of life, and what it hears of the others.

    Args:
        store: where they meet.
        name: of the worker. A process that starts takes the place of earlier processes of its name.
        clock: seconds that never go back.

    Attributes:
        owner: the name and this process's own random part, such as ``serve/9f86d081884c7d65``.
    """

    def __init__(self, store: Store, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.owner: Final = f"{name}/{secrets.token_hex(8)}"
        self._store = store
        self._clock = clock
        self._namesakes = f"{name}/"
        self._begun = False
        self._contact: float | None = None
        self._heard: dict[
            str, tuple[int, float]
        ] = {}  # by owner: its last sign of life; since when that is so
        self._living: Mapping[str, int] = {}
        self._twins: set[str] = set()

    def beat(self) -> list[str]:
        """Say that this worker lives; every living one, in order, this one included.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        self._living = self._store.heartbeat(self.owner, TTL_MS, "" if self._begun else self._namesakes)
        now = self._clock()
        if self._contact is None:
            self._contact = now
        heard = {owner: old for owner, old in self._heard.items() if now - old[1] < 2 * TTL_MS / 1_000}
        for owner, seen in self._living.items():
            if owner not in heard or heard[owner][0] != seen:
                heard[owner] = seen, now
        self._heard, self._begun = heard, True
        self._note_twins()
        return sorted(self._living)

    def _note_twins(self) -> None:
        found = {owner for owner in self._living if owner.startswith(self._namesakes)} - {self.owner}
        if found - self._twins:
            _log.warning(
                "another living worker is named %s too: names are for restarts, each worker needs its own",
                self._namesakes[:-1],
            )
        self._twins |= found

    def fate(self, owner: str) -> Fate:
        """What became of a worker, as far as this one can tell.

        An earlier process of the same name has died: this one was started in its place. Only where it was heard of
        later does it count as any other.
        """
        if owner == self.owner or owner in self._living:
            return Fate.LIVES
        if owner.startswith(self._namesakes) and owner not in self._twins:
            return Fate.DIED
        if self._contact is None:
            return Fate.UNKNOWN
        since = max(self._contact, self._heard[owner][1] if owner in self._heard else 0.0)
        return Fate.DIED if self._clock() - since >= TTL_MS / 1_000 else Fate.UNKNOWN

    def lost_contact(self) -> None:
        """The store was away: who was not heard of meanwhile may well live."""
        self._contact = None

    def leave(self) -> None:
        """Say that this worker lives no longer. Raises what `beat` raises."""
        self._store.leave(self.owner)


@dataclass(frozen=True)
class WorkerState:
    """One worker, as the store knows it.

    Attributes:
        name: as configured.
        owner: the process.
        last_seen_ms: when it was seen last, Unix milliseconds by the store's clock.
        partitions: those that it counts.
        publishing: whether it publishes the estimates.
    """

    name: str
    owner: str
    last_seen_ms: int
    partitions: tuple[int, ...]
    publishing: bool


def workers(store: Store) -> list[WorkerState]:
    """The workers of a store in the order of their names; a dead one is among them until a living one drops it.

    Raises:
        StorageError: the store has another layout.
        StoreUnavailableError: it does not answer.
    """
    tags = partition_tags(store.open() or 0)
    *holders, publisher = store.holders([*(PartitionKeys(tag).lease for tag in tags), PUBLISHER_KEY])
    return [
        WorkerState(
            name=owner.rpartition("/")[0],
            owner=owner,
            last_seen_ms=seen,
            partitions=tuple(number for number, holder in enumerate(holders) if holder == owner),
            publishing=owner == publisher,
        )
        for owner, seen in sorted(store.workers().items())
    ]
