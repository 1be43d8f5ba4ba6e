"""Devices of one process, made in groups: who they are, what they answer, and what goes wrong with them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from dither_fleet.faults import BATCH_DAMAGES, BATCH_TROUBLES, Faults
from dither_fleet.sealing import People, Sealed, Sealer, with_bad_body, with_bad_report
from dither_fleet.truth import truths_of
from dither_fleet.visit import Clock, visit
from dither_protocol.mechanisms import mechanism
from dither_protocol.registry import Metric, Registry, registry_from_document

GROUP: Final = 500
"""So many devices are made at once: enough for vectors, few enough for even arrivals."""


@dataclass(frozen=True)
class OldVersion:
    """What an operator reads about an earlier version of a metric, enough to make its reports.

    Attributes:
        version: its number.
        params: its params_hash.
        labels: its domain in index order.
        mechanism: name of its mechanism.
        epsilon: of one report.
        period: of its windows.
        dimensions: values by name.
    """

    version: int
    params: str
    labels: tuple[str, ...]
    mechanism: str
    epsilon: float
    period: str
    dimensions: dict[str, tuple[str, ...]]

    @classmethod
    def read(cls, document: dict[str, Any]) -> "OldVersion | None":
        """From an element of ``versions`` of ``GET /v1/metrics/<name>``; None of a kind that is not rebuilt."""
        if document["memoized"] is not None or document["calibration"] is not None:
            return None
        return cls(
            version=document["version"],
            params=document["params"],
            labels=tuple(document["labels"]),
            mechanism=document["mechanism"]["name"],
            epsilon=document["mechanism"]["epsilon"],
            period=document["period"],
            dimensions={name: tuple(values) for name, values in document["dimensions"].items()},
        )

    def of(self, current: Metric) -> Metric | None:
        """The metric as it was; None where it cannot be told from what an operator reads."""
        if current.collection != "fresh":
            return None
        found = replace(
            current,
            version=self.version,
            labels=self.labels,
            mechanism=mechanism(self.mechanism, self.epsilon, len(self.labels)),
            period=self.period,
            dimensions=self.dimensions,
            calibration=None,
        )
        return found if found.params_hash == self.params else None


@dataclass(frozen=True)
class Fleetwide:
    """What is the same for all devices of a run. Can be pickled.

    Attributes:
        document: the registry as the server publishes it.
        old: earlier versions by metric, the latest of each that can be made.
        devices: how many devices there are.
        days: on how many days each of them answers, the last of which is today.
        seed: of the population, never of the noise.
        faults: what goes wrong on purpose.
        together: how many devices share a batch. Real devices never do; it moves the load from requests to counting.
    """

    document: dict[str, Any]
    old: dict[str, OldVersion]
    devices: int
    days: int
    seed: int
    faults: Faults
    together: int = 1

    @property
    def visits(self) -> int:
        """Devices times days."""
        return self.devices * self.days

    def registry(self) -> Registry:
        """The current one."""
        return registry_from_document(self.document)

    def old_registry(self) -> Registry | None:
        """The one of devices that have not asked for a while; None where the server has had no other."""
        now = self.registry()
        then = {name: old.of(now.metrics[name]) for name, old in self.old.items() if name in now.metrics}
        known = {name: metric for name, metric in then.items() if metric is not None}
        return replace(now, metrics={**now.metrics, **known}) if known else None

    def metrics(self) -> list[Metric]:
        """Every metric that reports are made of, old versions among them."""
        old = self.old_registry()
        changed = [metric for metric in old or () if metric.name in self.old]
        return [*self.registry(), *changed]


class Makers:
    """Makes the batches of one process's devices, day by day.

    Args:
        fleet: the whole fleet.
        process: number of this process.
        processes: how many there are; devices are dealt out in turn.
    """

    def __init__(self, fleet: Fleetwide, process: int, processes: int) -> None:
        self._fleet = fleet
        self._process, self._processes = process, processes
        self._generator = np.random.default_rng([fleet.seed, process])
        self._registry = fleet.registry()
        self._old = fleet.old_registry()
        self._truths = truths_of(fleet.metrics())

    def groups(self) -> Iterator[tuple[Sequence[int], list[list[Sealed]]]]:
        """Numbers of some visits, counted over the whole fleet in order, and the batches of each."""
        for day in range(self._fleet.days):
            begin = day * self._fleet.devices
            mine = range(begin + self._process, begin + self._fleet.devices, self._processes)
            for at in range(0, len(mine), GROUP):
                numbers = mine[at : at + GROUP]
                yield numbers, self._make(len(numbers), day)

    def _make(self, count: int, day: int) -> list[list[Sealed]]:
        """The batches of so many devices, in random order."""
        faults = self._fleet.faults
        kinds = [faults.early, faults.late, faults.old if self._old else 0.0]
        early, late, old, _ = self._generator.multinomial(count, [*kinds, 1 - sum(kinds)]).tolist()
        made = [
            *self._alike(self._registry, early, day, Clock.EARLY),
            *self._alike(self._registry, late, day, Clock.LATE),
            *self._alike(self._old or self._registry, old, day, Clock.RIGHT),
            *self._alike(self._registry, count - early - late - old, day, Clock.RIGHT),
        ]
        mixed = [made[i] for i in self._generator.permutation(count)]
        if any(getattr(faults, name) for name in (*BATCH_TROUBLES, *BATCH_DAMAGES)):
            return [[self._befallen(sealed) for sealed in batches] for batches in mixed]
        return mixed

    def _alike(self, registry: Registry, count: int, day: int, clock: Clock) -> list[list[Sealed]]:
        if count == 0:
            return []
        days_ago = self._fleet.days - 1 - day
        sheets = visit(registry, datetime.now(UTC), days_ago=days_ago, first=day == 0, clock=clock)
        people = People(count, self._generator)
        columns = [Sealer(sheet, self._truths).seal(people, self._fleet.together) for sheet in sheets]
        if not columns:
            return [[] for _ in range(count)]
        return [[sealed for mine in each for sealed in mine] for each in zip(*columns, strict=True)]

    def _befallen(self, sealed: Sealed) -> Sealed:
        faults = self._fleet.faults
        damage, trouble = self._generator.random(2).tolist()
        if damage < faults.bad_body:
            sealed = with_bad_body(sealed)
        elif damage < faults.bad_body + faults.bad_report:
            sealed = with_bad_report(sealed)
        for name in BATCH_TROUBLES:
            share = getattr(faults, name)
            if trouble < share:
                return sealed._replace(trouble=name)
            trouble -= share
        return sealed
