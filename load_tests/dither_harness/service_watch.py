"""Looks at a service at even times: its processes, and what its store holds."""

import threading
import time
from dataclasses import dataclass
from typing import Final, Self

from dither_estimator.definitions import Definitions
from dither_estimator.expiry import Calendar
from dither_estimator.stats import read_stats
from dither_estimator.store import Store, StoreUnavailableError
from dither_fleet.flatness import Series
from dither_fleet.usage import Usage, usage_of
from dither_harness.remembering import remember
from dither_harness.service_process import ServiceProcess

_JOIN_LIMIT_S: Final = 30.0
_SHRUNK_AFTER_S: Final = 3.0
_IDLE_LIMIT_S: Final = 120.0


@dataclass(frozen=True)
class StoreState:
    """What the store holds.

    Attributes:
        used_bytes: memory that it says it uses.
        ids: of batches that are to be remembered.
        ids_bytes: of memory for them. The server's own estimate; of those that it was given for the run, what they
            were seen to take.
        backlog_bytes: accepted and not yet counted.
        keys: all of its keys.
        log_bytes: its append-only file.
    """

    used_bytes: int
    ids: int
    ids_bytes: int
    backlog_bytes: int
    keys: int
    log_bytes: int

    @property
    def own_bytes(self) -> int:
        """Memory that it uses for anything else than ids to be remembered and backlog."""
        return self.used_bytes - self.ids_bytes - self.backlog_bytes


@dataclass(frozen=True)
class Sample:
    """The service at one moment.

    Attributes:
        at: monotonic seconds.
        usages: of its processes, by role.
        store: None where it did not answer.
    """

    at: float
    usages: dict[str, Usage]
    store: StoreState | None


class ServiceWatch:
    """Takes a sample every few seconds, in a thread of its own. A context manager.

    Args:
        service: that is ready.
        every_s: from one sample to the next, seconds.

    Attributes:
        samples: so far.
    """

    def __init__(self, service: ServiceProcess, every_s: float) -> None:
        self.samples: list[Sample] = []
        self._service, self._every_s = service, every_s
        self._store = Store(service.store_url)
        self._estimate_off_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="service-watch", daemon=True)

    def remember(self, ids: int) -> None:
        """Give the store so many ids of earlier batches, and see what they take.

        Raises:
            StoreUnavailableError: it does not answer.
        """
        before = self._store_state()
        remember(self._store, ids)
        self._wait_idle()
        after = self._store_state()
        used = after.used_bytes - before.used_bytes
        self._estimate_off_bytes = after.ids_bytes - before.ids_bytes - used

    def _wait_idle(self) -> None:
        """Until the store does not write its log anew, and has shrunk the buffers of what it was sent."""
        deadline = time.monotonic() + _IDLE_LIMIT_S
        while time.monotonic() < deadline:
            time.sleep(_SHRUNK_AFTER_S)
            if not self._store.information("persistence")[0].get("aof_rewrite_in_progress"):
                return

    def look(self) -> Sample:
        """The service now."""
        usages = {role: usage_of(pid) for role, pid in self._service.pids().items()}
        found = {role: usage for role, usage in usages.items() if usage is not None}
        try:
            state = self._store_state()
        except StoreUnavailableError:
            state = None
        return Sample(time.monotonic(), found, state)

    def _store_state(self) -> StoreState:
        stats = read_stats(self._store, Calendar(self._store, Definitions(self._store)))
        keyspace = self._store.information("keyspace")[0]
        persistence = self._store.information("persistence")[0]
        return StoreState(
            used_bytes=sum(node.used_bytes for node in stats.nodes),
            ids=sum(each.ids for each in stats.seen),
            ids_bytes=sum(each.bytes for each in stats.seen) - self._estimate_off_bytes,
            backlog_bytes=sum(each.backlog_bytes for each in stats.partitions),
            keys=int(keyspace.get("db0", {}).get("keys", 0)),
            log_bytes=int(persistence.get("aof_current_size", 0)),
        )

    def _watch(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            self.samples.append(self.look())
            due = max(due + self._every_s, time.monotonic())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_JOIN_LIMIT_S)
        self._store.close()


def resident(samples: list[Sample], role: str, begins: float) -> Series:
    """Resident bytes of a process by the second of the run that began then."""
    return [(each.at - begins, float(each.usages[role].rss_bytes)) for each in samples if role in each.usages]


def own_memory(samples: list[Sample], begins: float) -> Series:
    """What the store uses without ids and backlog, by its own account."""
    return [(each.at - begins, float(each.store.own_bytes)) for each in samples if each.store is not None]


def replaced(samples: list[Sample]) -> list[str]:
    """Sentences about processes that were not the same ones all the time."""
    pids: dict[str, set[int]] = {}
    for each in samples:
        for role, usage in each.usages.items():
            pids.setdefault(role, set()).add(usage.pid)
    found = [f"{role} was replaced while it ran" for role, seen in pids.items() if len(seen) > 1]
    missing = {role: sum(role not in each.usages for each in samples) for role in pids}
    return found + [f"{role} was missing in {times} samples" for role, times in missing.items() if times]
