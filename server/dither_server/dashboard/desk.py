"""What several pages look at: the ledger, the workers, the readiness checks. Read at most once in a short while.

Many open pages ask every two seconds; measuring the whole ledger for each of them would be a load of its own.
"""

import time
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Final, Generic, TypeVar

from dither_server.conservation import Ledger, View
from dither_server.counting_state import CountingState
from dither_server.refusals import RefusedReports, read_refused
from dither_server.service import Service
from dither_server.store_memory import Memory

FRESH_S: Final = 1.5
"""A reading is used again for so long, seconds, at the least."""

_REST: Final = 10
"""And for so many times as long as it took: reading never takes more than a tenth of a processor."""

_LEDGER_BUDGET_S: Final = 5.0

T = TypeVar("T")


class Recent(Generic[T]):
    """A reading that is used again for a while. One thread reads, the others wait for it.

    Args:
        read: gives a new one. What it raises is raised, and nothing is remembered.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = Lock()
        self._found: tuple[float, T] | None = None  # when it is to be read again, and what was read

    def __call__(self) -> T:
        """The reading."""
        with self._lock:
            begun = time.monotonic()
            if self._found is None or begun > self._found[0]:
                self._found = None
                found = self._read()
                now = time.monotonic()
                self._found = now + max(FRESH_S, _REST * (now - begun)), found
            return self._found[1]


class Desk:
    """The readings of one process.

    Args:
        service: whose store is read.

    Attributes:
        service: the same.
        ledger: the ledger now. Raises StoreUnavailable and StoreRefused.
        counting: workers and partitions now. Raises StoreUnavailable.
        failing: names of the readiness checks that fail now.
        refused: refused reports by version; None where they cannot be read. Raises StoreUnavailable.
        memory: the memory of each master of the store by its name; None where that hides it. Raises StoreUnavailable.
    """

    def __init__(self, service: Service) -> None:
        store = service.store
        self.service = service
        # None of these refers to the desk: a circle around the store would keep its connections open for a while.
        self.ledger: Recent[Ledger] = Recent(partial(_measure, service))
        self.counting: Recent[CountingState] = Recent(lambda: store.counting_state(service.clock()))
        self.failing: Recent[list[str]] = Recent(store.failing_checks)
        self.refused: Recent[list[RefusedReports] | None] = Recent(lambda: store.read(read_refused))
        self.memory: Recent[dict[str, Memory | None]] = Recent(store.memory)


def _measure(service: Service) -> Ledger:
    view = View.from_query({}, service.store.catalogue(), service.clock())
    found = service.store.conservation(view, _LEDGER_BUDGET_S)
    return Ledger(found, found.by_metric())
