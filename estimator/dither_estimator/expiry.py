"""When windows close, and when everything about them is to be forgotten.

What a window is, and how long it is kept, stand in the definitions that servers announced. So the windows of metrics
that a registry no longer has expire as well.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from dither_estimator.definitions import Definitions
from dither_estimator.store import Store
from dither_estimator.sums import combinations
from dither_protocol.errors import RegistryError, StorageError, WindowError
from dither_protocol.registry import Metric
from dither_protocol.storage import METRICS_KEY, Cell

_log = logging.getLogger("dither_estimator")


@dataclass(frozen=True, slots=True)
class Dates:
    """The dates of a window.

    Attributes:
        ends: its end.
        closes: from when on nothing is accepted about it.
        expires: from when on nothing is kept about it; None for never.
    """

    ends: datetime
    closes: datetime
    expires: datetime | None


class Calendar:
    """The dates of the windows of every metric that a store knows, as they are when it is made.

    A label may be a window of several versions. It closes with the last of them, and is kept for as long as the newest
    version says: the registry has one rule for a metric, whatever the version of its reports.

    Args:
        store: where metrics were announced.
        definitions: reads them.
    """

    def __init__(self, store: Store, definitions: Definitions) -> None:
        self._store = store
        self._definitions = definitions
        self._versions: dict[str, tuple[Metric, ...]] = {}
        self._dates: dict[tuple[str, str], Dates | None] = {}

    def metrics(self) -> list[str]:
        """Every metric that was ever announced, in order."""
        (found,) = self._store.commands([("SMEMBERS", METRICS_KEY)])
        return sorted(name.decode("utf-8") for name in found)

    def versions(self, metric: str) -> tuple[Metric, ...]:
        """Every version of a metric, the newest last; none where one of them cannot be read.

        Then nothing of the metric is pruned: cells that this program cannot list would be left over for ever.
        """
        if metric not in self._versions:
            self._versions[metric] = self._read(metric)
        return self._versions[metric]

    def _read(self, metric: str) -> tuple[Metric, ...]:
        try:
            return tuple(self._definitions(metric, version) for version in self._store.versions(metric))
        except (RegistryError, StorageError) as error:
            _log.warning("nothing of metric '%s' can be pruned: %s", metric, error)
            return ()

    def dates(self, metric: str, label: str) -> Dates | None:
        """The dates of a window; None where it is no window of the metric."""
        key = metric, label
        if key not in self._dates:
            self._dates[key] = self._find(metric, label)
        return self._dates[key]

    def _find(self, metric: str, label: str) -> Dates | None:
        found = [(version, version.parse_window(label)) for version in self._of(metric, label)]
        if not found:
            return None
        closes = max(version.closes_at(window) for version, window in found)
        days = self.versions(metric)[-1].retention_days
        return Dates(
            ends=max(window.end for _, window in found),
            closes=closes,
            expires=None if days is None else closes + timedelta(days=days),
        )

    def expired(self, metric: str, label: str, now: datetime) -> bool:
        """Whether nothing is to be kept about a window any more."""
        dates = self.dates(metric, label)
        return dates is not None and dates.expires is not None and dates.expires <= now

    def rules(self) -> tuple[object, ...]:
        """All that the dates depend on, to be compared."""
        return tuple(
            (
                metric,
                version.version,
                version.period,
                version.expires,
                version.late_days,
                version.retention_days,
            )
            for metric in self.metrics()
            for version in self.versions(metric)
        )

    def cells(self, metric: str, label: str) -> list[str]:
        """The names of all cells that a window can have, of every version."""
        return [
            Cell(metric, version.version, label, dimensions).name
            for version in self._of(metric, label)
            for dimensions in combinations(version)
        ]

    def _of(self, metric: str, label: str) -> Iterator[Metric]:
        for version in self.versions(metric):
            try:
                version.parse_window(label)
            except WindowError:
                continue
            yield version
