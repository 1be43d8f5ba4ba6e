"""What the benchmarks share: rows, repeated timing, and the facts of the machine."""

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Attributes:
        name: what was measured.
        value: the figure.
        unit: its unit.
        target: what design section 11 asks for, in the same unit; None where it asks for nothing.
        higher_is_better: throughput, not time.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    higher_is_better: bool = True

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

    def as_json(self) -> dict[str, Any]:
        """The row as it stands in results.json."""
        return asdict(self) | {"ratio": self.ratio, "met": self.met}


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


def median_s(samples: list[float]) -> float:
    """The median of timed samples."""
    return statistics.median(samples)
