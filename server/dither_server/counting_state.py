"""Who counts, and what waits to be counted: workers and partitions as the store knows them.

``client`` is the redis-py client that `dither_server.store` opened: that module alone may import its package.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from dither_protocol.errors import StorageError
from dither_protocol.storage import PUBLISHER_KEY, WORKERS_KEY, PartitionKeys, entry_position

WORKER_TTL: Final = timedelta(seconds=5)
"""A worker that was not heard of for so long counts as gone (`dither_estimator.presence.TTL_MS`)."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One estimator worker.

    Attributes:
        name: as configured.
        silent: for how long it was not heard of.
        partitions: those that it counts.
        publishing: whether it publishes the estimates.
    """

    name: str
    silent: timedelta
    partitions: tuple[int, ...]
    publishing: bool

    @property
    def lives(self) -> bool:
        """Whether it was heard of a moment ago."""
        return self.silent <= WORKER_TTL


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition.

    Attributes:
        number: of it.
        waiting: for how long its oldest uncounted batch has waited; None where nothing waits.
        backlog_bytes: of its stream.
        dead_entries: that were set aside because they could not be counted.
    """

    number: int
    waiting: timedelta | None
    backlog_bytes: int
    dead_entries: int


@dataclass(frozen=True, slots=True)
class CountingState:
    """All workers in the order of their names, and all partitions."""

    workers: Sequence[WorkerState]
    partitions: Sequence[PartitionState]

    @property
    def living(self) -> int:
        """How many workers live."""
        return sum(worker.lives for worker in self.workers)

    @property
    def waiting(self) -> timedelta | None:
        """The longest that a batch has waited; None where none waits."""
        return max((p.waiting for p in self.partitions if p.waiting is not None), default=None)


def read_counting_state(client: Any, partitions: Sequence[PartitionKeys], now: datetime) -> CountingState:
    """Read it, in two round trips.

    Args:
        client: of the store.
        partitions: their keys.
        now: aware. The store's clock may differ a little; no time comes out negative.
    """
    with client.pipeline(transaction=False) as pipe:
        pipe.zrange(WORKERS_KEY, 0, -1, withscores=True)
        pipe.get(PUBLISHER_KEY)
        for keys in partitions:
            pipe.get(keys.lease)
            pipe.get(keys.checkpoint)
            pipe.get(keys.backlog)
            pipe.xlen(keys.dead)
        seen, publisher, *found = pipe.execute()
    leases, checkpoints, backlogs, dead = (found[place::4] for place in range(4))
    with client.pipeline(transaction=False) as pipe:
        for keys, checkpoint in zip(partitions, checkpoints, strict=True):
            pipe.xrange(keys.stream, min=_after(checkpoint), count=1)
        waiting = [_waiting(entries, now) for entries in pipe.execute()]
    states = [
        PartitionState(number, waiting[number], int(backlogs[number] or 0), dead[number])
        for number in range(len(partitions))
    ]
    return CountingState(_workers(seen, publisher, leases, now), states)


def _workers(
    seen: Sequence[tuple[bytes, float]],
    publisher: bytes | None,
    leases: Sequence[bytes | None],
    now: datetime,
) -> list[WorkerState]:
    now_ms = now.timestamp() * 1_000
    return [
        WorkerState(
            name=owner.decode("utf-8", "replace").rpartition("/")[0],
            silent=timedelta(milliseconds=max(0.0, now_ms - last_ms)),
            partitions=tuple(number for number, holder in enumerate(leases) if holder == owner),
            publishing=owner == publisher,
        )
        for owner, last_ms in sorted(seen)
    ]


def _after(checkpoint: bytes | None) -> str:
    try:
        milliseconds, number = entry_position(checkpoint or b"")
    except StorageError:  # nothing is counted yet; or it is damaged, which the ledger says
        return "-"
    return f"{milliseconds}-{number + 1}"


def _waiting(entries: Sequence[tuple[bytes, Any]], now: datetime) -> timedelta | None:
    if not entries:
        return None
    arrived_ms, _ = entry_position(entries[0][0])
    return timedelta(milliseconds=max(0.0, now.timestamp() * 1_000 - arrived_ms))
