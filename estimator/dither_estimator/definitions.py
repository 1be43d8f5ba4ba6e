"""Definitions of metrics, as a server announced them, remembered for a while."""

import logging
import time
from typing import Final

from dither_estimator.store import Store
from dither_protocol.errors import RegistryError, StorageError
from dither_protocol.registry import Metric

DEFINITIONS_AGE_S: Final = 30.0

_log = logging.getLogger("dither_estimator")


class Definitions:
    """Gives the metric of (name, version).

    Args:
        store: where they were announced.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, int], Metric] = {}
        self._until = 0.0
        self._unreadable: set[tuple[str, int]] = set()

    def refresh(self) -> None:
        """Forget what is old: a server may have announced another min_reports or late_days."""
        if time.monotonic() > self._until:
            self._known.clear()
            self._until = time.monotonic() + DEFINITIONS_AGE_S

    def __call__(self, metric: str, version: int) -> Metric:
        """The definition.

        Raises:
            StorageError: none was announced.
            RegistryError: this version of Dither gives its reports another meaning.
        """
        known = self._known.get((metric, version))
        if known is None:
            known = self._known[metric, version] = self._store.definition(metric, version)
        return known

    def versions(self, metric: str) -> list[Metric]:
        """Every announced version of a metric, in order; one that cannot be read is left out, and said once."""
        found = []
        for version in self._store.versions(metric):
            try:
                found.append(self(metric, version))
                self._unreadable.discard((metric, version))
            except (RegistryError, StorageError) as error:
                if (metric, version) not in self._unreadable:
                    self._unreadable.add((metric, version))
                    _log.warning(
                        "version %d of metric '%s' is not combined with others: %s", version, metric, error
                    )
        return found
