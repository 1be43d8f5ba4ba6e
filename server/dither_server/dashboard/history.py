"""What is published about a metric over some windows, as the API answers it, in a form that pages can use."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from dither_protocol.errors import RegistryError
from dither_protocol.registry import Metric, decode_definition
from dither_protocol.windows import ONCE, Window
from dither_server.documents import Estimate, read_estimates
from dither_server.published import Combination, Rule, estimates_document
from dither_server.selection import Selection
from dither_server.service import Service
from dither_server.store_rules import Published

_MANY_VALUES: Final = 12_000


@dataclass(frozen=True)
class History:
    """The estimates of one metric.

    Attributes:
        versions: by version, its estimates by window label.
        combined: those over several versions, by window label.
        combination: how the versions go together.
        definitions: of the versions that this server can read.
        damaged: number of documents that could not be read.
    """

    versions: Mapping[int, Mapping[str, Estimate]]
    combined: Mapping[str, Estimate]
    combination: Combination
    definitions: Mapping[int, Metric]
    damaged: int = 0

    @property
    def windows(self) -> list[str]:
        """Labels of the windows with an estimate, by their start."""
        starts = {e.key: e.window.start for e in self.combined.values()}
        for estimates in self.versions.values():
            starts |= {e.key: e.window.start for e in estimates.values()}
        return sorted(starts, key=lambda label: (starts[label], label))

    @property
    def side_by_side(self) -> bool:
        """Whether the versions must not be mixed."""
        return self.combination.rule is Rule.SIDE_BY_SIDE

    def own(self, label: str) -> list[Estimate]:
        """The estimates of the single versions about a window, newest version first."""
        return [
            estimates[label]
            for _, estimates in sorted(self.versions.items(), reverse=True)
            if label in estimates
        ]

    def main(self, label: str) -> Estimate | None:
        """The estimate that stands for a window: over several versions where there is one, else the newest's."""
        own = self.own(label)
        return self.combined.get(label) or (own[0] if own else None)

    @property
    def latest(self) -> Estimate | None:
        """The estimate that stands for the last window."""
        windows = self.windows
        return self.main(windows[-1]) if windows else None

    @property
    def single(self) -> list[Estimate]:
        """Those of single versions, of all windows."""
        return [estimate for estimates in self.versions.values() for estimate in estimates.values()]

    def series(self) -> list[Estimate]:
        """Estimates that may be compared along time, oldest first: where versions must not be mixed, the newest's."""
        if self.side_by_side:
            newest = max(version for version, estimates in self.versions.items() if estimates)
            return sorted(self.versions[newest].values(), key=lambda estimate: estimate.window.start)
        return [found for label in self.windows if (found := self.main(label)) is not None]


def read_history(service: Service, name: str, selection: Selection) -> History:
    """What is published about a metric, by a selection of one text of dimensions.

    Raises:
        StoreUnavailable: the store cannot be read now.
    """
    return as_history(name, service.store.published(name, selection))


def as_history(name: str, published: Published, *, simultaneous: bool = False) -> History:
    """The same for what was read already. `estimates_document` decides what is shown, as it does for the API.

    Args:
        name: of the metric.
        published: its estimates.
        simultaneous: whether their intervals cover all values at once.
    """
    document = estimates_document(name, published, simultaneous=simultaneous)
    damaged = 0
    versions: dict[int, dict[str, Estimate]] = {}
    for entry in document["versions"]:  # type: ignore[attr-defined]  # a list of dicts, by its own definition
        found, lost = read_estimates(entry["estimates"])
        versions[entry["version"]] = {estimate.key: estimate for estimate in found}
        damaged += lost
    combined, lost = read_estimates(document["combined"])  # type: ignore[arg-type]
    definitions = {version.version: _definition(version.definition) for version in published.versions}
    return History(
        versions,
        {estimate.key: estimate for estimate in combined},
        document["combination"],  # type: ignore[arg-type]
        {version: metric for version, metric in definitions.items() if metric is not None},
        damaged + lost,
    )


def _definition(text: bytes) -> Metric | None:
    try:
        return decode_definition(text)
    except RegistryError:
        return None


def windows_until(metric: Metric, when: datetime, count: int) -> list[Window]:
    """The window that contains ``when``, or the metric's last one, and those before it: ``count``, oldest first."""
    if metric.expires is not None and metric.period != ONCE:
        last = datetime(metric.expires.year, metric.expires.month, metric.expires.day, tzinfo=UTC)
        when = min(when, last + timedelta(days=1, seconds=-1))
    window = metric.window_at(when)
    found = [window]
    while metric.period != ONCE and len(found) < count:
        window = metric.window_at(window.start - timedelta(seconds=1))
        found.append(window)
    return found[::-1]


def affordable(metric: Metric, count: int) -> int:
    """How many windows to read: fewer where each has very many values, at least two."""
    return max(2, min(count, _MANY_VALUES // max(1, len(metric.labels))))
