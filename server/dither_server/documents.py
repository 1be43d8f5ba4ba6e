"""Published estimates as objects, read leniently: a later estimator may say more, an earlier one said less. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec


class ValueEstimate(msgspec.Struct, frozen=True):
    """What is known about one value; shares, not cut to [0, 1]."""

    value: str
    estimate: float
    std_error: float
    interval: tuple[float, float]
    interval_method: str = ""
    norm_sub: float | None = None
    present: bool | None = None
    support: int | None = None

    @property
    def half_width(self) -> float:
        """Half of the interval's width."""
        return (self.interval[1] - self.interval[0]) / 2


class WindowSpan(msgspec.Struct, frozen=True):
    """What an estimate is about; over several windows ``label`` is ``first/last``."""

    label: str
    start: datetime
    end: datetime


class RollupSpan(msgspec.Struct, frozen=True):
    """Over which windows an estimate is, by their labels, and how many of them had reports."""

    first: str
    last: str
    with_reports: int | None = None


class SupportTotal(msgspec.Struct, frozen=True):
    """The sum of the supports of all reports, beside what honest ones give, and whether it is none of theirs."""

    total: int
    expected: float
    std_dev: float
    flagged: bool


class Part(msgspec.Struct, frozen=True):
    """What one version contributes to an estimate over several."""

    version: int
    n: int
    mechanism: str
    epsilon: float


class Estimate(msgspec.Struct, frozen=True):
    """One published document (invariant C3)."""

    metric: str
    window: WindowSpan
    status: str
    n: int
    target: str = ""
    level: float | None = None
    simultaneous: bool = False
    values: list[ValueEstimate] = []
    version: int | None = None
    versions: list[int] = []
    parts: list[Part] = []
    dimensions: dict[str, str] | None = None
    min_reports: int | None = None
    mechanism: str = ""
    epsilon: float | None = None
    p: float | None = None
    q: float | None = None
    revision: int | None = None
    watermark: datetime | None = None
    final: bool | None = None
    closes: datetime | None = None
    rollup: int | None = None
    windows: RollupSpan | None = None
    support_total: SupportTotal | None = None

    @property
    def key(self) -> str:
        """The label by which it is chosen: over several windows that of the last one."""
        return self.windows.last if self.windows else self.window.label

    @property
    def about(self) -> str:
        """Which versions it is about: ``version 2``, ``versions 1 and 2``."""
        several = self.versions or [part.version for part in self.parts]
        if self.version is not None or len(several) < 2:
            return f"version {self.version if self.version is not None else several[0] if several else '?'}"
        return f"versions {', '.join(map(str, several[:-1]))} and {several[-1]}"

    @property
    def mechanisms(self) -> list[tuple[str, float]]:
        """Each mechanism with its epsilon, without repetition."""
        if self.parts:
            return list(dict.fromkeys((part.mechanism, part.epsilon) for part in self.parts))
        return [] if self.epsilon is None else [(self.mechanism, self.epsilon)]

    @property
    def mechanism_names(self) -> list[str]:
        """The name of each mechanism, once."""
        return list(dict.fromkeys(name for name, _ in self.mechanisms))

    @property
    def epsilons(self) -> list[float]:
        """The epsilon of each mechanism, once."""
        return list(dict.fromkeys(epsilon for _, epsilon in self.mechanisms))

    @property
    def methods(self) -> list[str]:
        """Names of the interval methods of its values, the commonest first."""
        names = [value.interval_method for value in self.values if value.interval_method]
        return sorted(set(names), key=lambda name: (-names.count(name), name))

    @property
    def suppressed(self) -> bool:
        """Whether it has no numbers but n, since n is too small."""
        return self.status == "suppressed" or not self.values

    def largest(self, count: int) -> Sequence[ValueEstimate]:
        """The values with the largest estimates, largest first."""
        return sorted(self.values, key=lambda value: -value.estimate)[:count]


_decoder = msgspec.json.Decoder(Estimate)


def read_estimates(documents: Iterable[Any]) -> tuple[list[Estimate], int]:
    """The estimates among raw JSON documents, and how many could not be read."""
    found, damaged = [], 0
    for document in documents:
        try:
            found.append(_decoder.decode(document))
        except msgspec.MsgspecError:
            damaged += 1
    return found, damaged
