"""The metrics whose reports are accepted: the registry's versions, and older ones that the store still knows.

Pure. What depends on a few texts of a report alone is remembered, since devices send the same texts all day: both
caches are bounded, and nothing that a caller can make long is kept in them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

from dither_protocol.errors import DimensionError, WindowError
from dither_protocol.registry import Metric, Registry
from dither_protocol.storage import dimensions_text
from dither_protocol.windows import CLOCK_SKEW
from dither_server.places import Places

_REMEMBERED: Final = 4_096


@dataclass(frozen=True, slots=True)
class Span:
    """When reports about one window are taken: ``opens <= now < closes``.

    Attributes:
        opens: start of the window less the clock skew.
        closes: end of the window plus the metric's late days.
        expired: whether the window begins after the metric's last day.
    """

    opens: datetime
    closes: datetime
    expired: bool


class Catalogue:
    """Metrics by name and version.

    Args:
        registry: its metrics win over an older definition of the same version.
        older: earlier versions. Those of metrics that the registry no longer has are left out.

    Attributes:
        places: of reports that were accepted by it.
    """

    def __init__(self, registry: Registry, older: Iterable[Metric] = ()) -> None:
        self.registry = registry
        self._versions: dict[str, dict[int, Metric]] = {
            metric.name: {metric.version: metric} for metric in registry
        }
        for metric in older:
            if metric.name in self._versions:
                self._versions[metric.name].setdefault(metric.version, metric)
        self.places = Places()
        self._span = lru_cache(_REMEMBERED)(self._read_span)
        self._text = lru_cache(_REMEMBERED)(self._read_dimensions)

    def versions(self, name: str) -> Mapping[int, Metric]:
        """The accepted versions of a metric; empty where it is not known."""
        return self._versions.get(name, {})

    def span(self, metric: Metric, label: str) -> Span | None:
        """When the window ``label`` of ``metric`` takes reports; None where it is no label of its period."""
        return self._span(metric.name, metric.version, label)

    def dimensions(self, metric: Metric, given: Mapping[str, str]) -> str:
        """The dimensions of a report as the text that its cell is named by.

        Raises:
            DimensionError: they are not those of the metric.
        """
        if given.keys() != metric.dimensions.keys():
            metric.check_dimensions(given)  # raises; and keeps names of any length out of the cache
        text = self._text(metric.name, metric.version, tuple(given.items()))
        if text is None:
            raise DimensionError("a value is not in its list")
        return text

    def _read_span(self, name: str, version: int, label: str) -> Span | None:
        metric = self._versions[name][version]
        try:
            window = metric.parse_window(label)
        except WindowError:
            return None
        return Span(window.start - CLOCK_SKEW, metric.closes_at(window), metric.expired(window))

    def _read_dimensions(self, name: str, version: int, given: tuple[tuple[str, str], ...]) -> str | None:
        try:
            return dimensions_text(self._versions[name][version].check_dimensions(dict(given)))
        except DimensionError:
            return None
