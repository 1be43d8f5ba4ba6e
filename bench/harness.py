"""What the benchmarks share: rows, cases, repeated timing, and the facts of the machine."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

ANY_MACHINE: Final = "any machine"
"""The yardstick of a figure that does not depend on the machine: bytes, counts, ratios, waits. It is over 1."""

_LEAST_REPEATS: Final = 5
_REPEAT_FOR_S: Final = 0.2


class Skipped(Exception):
    """Something cannot be measured on this machine; the message says why."""


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Attributes:
        name: what was measured.
        value: the figure.
        unit: its unit.
        target: what design section 11 asks for, in the same unit; None where it asks for nothing.
        higher_is_better: throughput, not time.
        over: what the yardstick gave beside it in the same run, in the same unit; None where there is none.
        yardstick: what that is.
        condition: what else the figure depends on; it is compared only with figures of the same condition.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    higher_is_better: bool = True
    over: float | None = None
    yardstick: str = ""
    condition: str = ""

    @property
    def ratio(self) -> float | None:
        """Value over target."""
        return self.value / self.target if self.target else None

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.ratio is None:
            return None
        return self.ratio >= 1 if self.higher_is_better else self.ratio <= 1

    @property
    def relative(self) -> float | None:
        """Value over yardstick: what another machine should find too. None without a yardstick."""
        return self.value / self.over if self.over else None

    def as_json(self) -> dict[str, Any]:
        """The row as it stands in results.json."""
        return asdict(self) | {"ratio": self.ratio, "met": self.met, "relative": self.relative}


@dataclass(frozen=True)
class Case:
    """Rows that are measured together, and again together where one seems to be worse.

    Attributes:
        suite: the name of the part of the benchmarks that it belongs to.
        rows: measures them; raises `Skipped` where this machine cannot.
        guarded: `make bench-check` measures it, and compares those of its rows that have a yardstick.
    """

    suite: str
    rows: Callable[[], Iterable[Row]]
    guarded: bool = False


def machine() -> dict[str, Any]:
    """Facts of the machine that the figures depend on."""
    model = "unknown"
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next(
                (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model
            )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def per_second(work: Callable[[], object], items: int, repeats: int = 5) -> float:
    """Items per second in the fastest of several repeats: noise of a shared machine only ever slows down."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return items / best


def beside(work: Callable[[], object], yardstick: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of the fastest of several repeats of both, in turns: what slows this machine meets both.

    CPU time, so that it does not count when somebody else has the processor; for work of one process that waits for
    nothing, which takes as long by the clock on a machine that is otherwise idle.
    """
    best = [float("inf"), float("inf")]
    until = time.perf_counter() + _REPEAT_FOR_S
    repeats = 0
    while repeats < _LEAST_REPEATS or time.perf_counter() < until:
        for place, call in enumerate((work, yardstick)):
            began = time.process_time()
            call()
            best[place] = min(best[place], time.process_time() - began)
        repeats += 1
    return best[0], best[1]


def in_turns(calls: Sequence[Callable[[], float]], runs: int) -> list[float]:
    """The least that each of the calls gave, in so many rounds of all of them."""
    rounds = [[call() for call in calls] for _ in range(runs)]
    return [min(given) for given in zip(*rounds, strict=True)]


def median_s(samples: list[float]) -> float:
    """The median of timed samples."""
    return statistics.median(samples)
