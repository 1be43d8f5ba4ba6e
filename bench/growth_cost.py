"""What a piece of work costs: processor time here and in the store, and memory.

Processor time and not time: another program on the machine must not bend a curve.
"""

import gc
import os
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import psutil
import redis

_LONG_S: Final = 0.25
"""What takes so long is not repeated for the least: its noise is small beside it."""


class Point(NamedTuple):
    """One measured cost.

    Attributes:
        curve: key of the curve that it belongs to.
        size: what it was measured at.
        cost: in the unit of the curve; positive.
    """

    curve: str
    size: float
    cost: float


class Cost(NamedTuple):
    """What a piece of work took, in processor seconds: here and in the store."""

    own_s: float
    store_s: float

    @property
    def both_s(self) -> float:
        """Both together."""
        return self.own_s + self.store_s


def cost(work: Callable[[], object], store: redis.Redis | None = None, repeats: int = 1) -> Cost:
    """The least that a piece of work took in some repeats."""
    _settle_heap()
    least, least_store = float("inf"), float("inf")
    for _ in range(repeats):
        store_began = _store_cpu_s(store)
        began = time.process_time()
        work()
        least = min(least, time.process_time() - began)
        least_store = min(least_store, _store_cpu_s(store) - store_began)
    return Cost(least, least_store)


def cost_each(work: Callable[[], object], repeats: int = 5, least_s: float = 0.01) -> float:
    """Processor seconds of a short piece of work: run often enough to be measured, the least of some repeats."""
    work()
    _settle_heap()
    times = 1
    while True:
        began = time.process_time()
        for _ in range(times):
            work()
        took = time.process_time() - began
        if took >= least_s:
            break
        times *= 4 if took < least_s / 4 else 2
    least = took / times
    for _ in range(repeats - 1):
        if took > _LONG_S:
            break
        began = time.process_time()
        for _ in range(times):
            work()
        least = min(least, (time.process_time() - began) / times)
    return least


def memory_bytes(name: str = "VmRSS", pid: int | None = None) -> float:
    """The resident memory of a process, of this one by default; ``VmHWM`` for its peak, where the system has /proc."""
    found = f"/proc/{pid or 'self'}/status"
    if not os.path.exists(found):
        return float(psutil.Process(pid).memory_info().rss)
    with open(found, encoding="ascii") as lines:
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def _settle_heap() -> None:
    """What is there already is left out of collections: this process holds more than any that it measures would."""
    gc.collect()
    gc.freeze()


def _store_cpu_s(store: redis.Redis | None) -> float:
    if store is None:
        return 0.0
    found = store.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])
