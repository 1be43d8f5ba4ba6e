"""Latencies in bounded memory: counts by logarithmic bins of 5 %, for each second of a run. They can be added up."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_LEAST_S: Final = 1e-5
_GROWTH: Final = math.log(1.05)


def bin_of(seconds: float) -> int:
    """Number of the bin of a latency."""
    return max(0, int(math.log(max(seconds, _LEAST_S) / _LEAST_S) / _GROWTH))


def upper_edge_s(number: int) -> float:
    """The largest latency of a bin, seconds."""
    return _LEAST_S * math.exp(_GROWTH * (number + 1))


def percentile_s(bins: Counter[int], part: float) -> float | None:
    """The latency that a part of all requests did not exceed, to within 5 % upwards; None without requests."""
    wanted = math.ceil(part * bins.total())
    passed = 0
    for number in sorted(bins):
        passed += bins[number]
        if passed >= wanted:
            return upper_edge_s(number)
    return None


@dataclass
class Latencies:
    """Latencies by the second of the run in which the request ended.

    Attributes:
        by_second: bins by second.
    """

    by_second: dict[int, Counter[int]] = field(default_factory=dict)

    def add(self, at_s: float, latency_s: float) -> None:
        """Note one request that ended at this time of the run."""
        self.by_second.setdefault(int(at_s), Counter())[bin_of(latency_s)] += 1

    def merge(self, other: "Latencies") -> None:
        """Add the latencies of another."""
        for second, bins in other.by_second.items():
            self.by_second.setdefault(second, Counter()).update(bins)

    def over(self, seconds: Iterable[int]) -> Counter[int]:
        """The bins of some seconds together."""
        total: Counter[int] = Counter()
        for second in seconds:
            total.update(self.by_second.get(second, {}))
        return total

    def all(self) -> Counter[int]:
        """The bins of the whole run."""
        return self.over(self.by_second)
