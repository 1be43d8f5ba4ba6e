"""Estimates over 7, 28 and 90 consecutive windows, from the totals of the closed ones.

Of one device there may be a report in each window, so the reports are not independent draws from a population: the
target is "reporters", the share among these reports (design section 6). Fresh reports have noise of their own each;
memoised ones of one device share the noise of its permanent answer, and `longitudinal` widens what is said of them.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime

from dither_estimator.cells import Counts, add, packed_size, unpack, zeros
from dither_estimator.definitions import Definitions
from dither_estimator.publication import Part, combined_document, estimate_document, rollup_scope
from dither_estimator.published import Draft, Published
from dither_estimator.sums import SLICE_BYTES
from dither_protocol.errors import StorageError
from dither_protocol.registry import Metric
from dither_protocol.storage import COMBINED, ROLLUPS
from dither_protocol.windows import ONCE, Window, windows_from, windows_until


def rolls_up(metric: Metric) -> bool:
    """Whether there are estimates over several windows of this metric."""
    return metric.period != ONCE


@dataclass
class _Sum:
    """What the closed windows of one version hold together.

    Attributes:
        n: reports.
        counters: their counters.
        labels: the windows that had reports.
    """

    n: int
    counters: Counts
    labels: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Task:
    """The rollups that end at one window.

    Attributes:
        metric: the version of which a window has just been closed or revised.
        versions: all that may be combined with it, itself among them, by number.
        labels: the closed windows with reports of each, as far as these rollups reach.
        end: the last window of each rollup.
        watermark: before which every report is counted.
    """

    metric: Metric
    versions: Mapping[int, Metric]
    labels: Mapping[int, Set[str]]
    end: Window
    watermark: datetime


class Rollups:
    """Publishes estimates over several windows.

    Args:
        published: where totals are, and where estimates go.
        definitions: gives the metrics.
    """

    def __init__(self, published: Published, definitions: Definitions) -> None:
        self._published = published
        self._definitions = definitions

    def publish(self, metric: Metric, window: Window, watermark: datetime) -> Iterator[None]:
        """Publish every rollup that contains a closed window, whose total has just been written.

        A rollup ends at each closed window that had reports. Another publisher may be closing a later window at the
        same time: it wrote its total before it read this one, so whichever of the two reads last has both.

        Raises:
            StorageError, EstimationError: a total is damaged.
            StoreFullError: the store has no memory for it.
        """
        versions = {each.version: each for each in self._definitions.versions(metric.name)}
        versions = {
            version: each
            for version, each in versions.items()
            if rolls_up(each) and each.period == metric.period
        } | {metric.version: metric}
        reach = windows_from(window, ROLLUPS[-1])
        near = [each.label for each in (*windows_until(window, ROLLUPS[-1])[:-1], *reach)]
        labels = {
            version: self._published.labels_with_totals(metric.name, version, near) for version in versions
        }
        for distance, end in enumerate(reach):
            if any(end.label in known for known in labels.values()):
                task = _Task(metric, versions, labels, end, watermark)
                yield from self._publish_end(task, [size for size in ROLLUPS if size > distance])

    def _publish_end(self, task: _Task, sizes: Sequence[int]) -> Iterator[None]:
        """Publish the rollups of these sizes that end at one window; totals are read once, the latest first."""
        windows = windows_until(task.end, sizes[-1])
        sums = {version: _Sum(*zeros(each.mechanism.counters)) for version, each in task.versions.items()}
        read = 0
        for size in sizes:
            if size > len(windows):
                return
            more = [window.label for window in windows[-size : len(windows) - read]]
            for version, metric in task.versions.items():
                yield from self._add(
                    metric, [label for label in more if label in task.labels[version]], sums[version]
                )
            read = size
            self._publish_own(task, windows[-size:], sums[task.metric.version])
            yield
            self._publish_combined(task, windows[-size:], sums)
            yield

    def _add(self, metric: Metric, labels: Sequence[str], total: _Sum) -> Iterator[None]:
        """Add the totals of some windows; stops after each slice of them."""
        size = metric.mechanism.counters
        step = max(1, SLICE_BYTES // packed_size(size))
        for start in range(0, len(labels), step):
            some = labels[start : start + step]
            for label, packed in zip(
                some, self._published.totals(metric.name, metric.version, some), strict=True
            ):
                if packed is not None:
                    try:
                        total.n, total.counters = add(total.n, total.counters, *unpack(packed, size))
                    except StorageError as error:
                        raise StorageError(
                            f"total of {metric.name}:{metric.version}:{label}: {error}"
                        ) from None
                    total.labels.add(label)
            yield

    def _publish_own(self, task: _Task, windows: Sequence[Window], total: _Sum) -> None:
        if task.end.label not in total.labels:
            return  # this version has no rollup that ends here
        metric = task.metric
        scope = rollup_scope(windows, metric.closes_at(task.end), len(total.labels))
        document = estimate_document(metric, scope, None, total.counters, total.n)
        draft = Draft(task.end.label, total.n, final=True, document=document)
        self._published.publish_rollup(metric.name, metric.version, len(windows), draft, task.watermark)

    def _publish_combined(self, task: _Task, windows: Sequence[Window], sums: Mapping[int, _Sum]) -> None:
        found = {version: total for version, total in sums.items() if total.n}
        if len(found) < 2:
            return
        parts: dict[int, Part] = {
            version: (total.counters, task.versions[version], total.n) for version, total in found.items()
        }
        closes = max(task.versions[version].closes_at(task.end) for version in found)
        with_reports = set[str]().union(*(total.labels for total in found.values()))
        document = combined_document(rollup_scope(windows, closes, len(with_reports)), parts)
        n = sum(total.n for total in found.values())
        draft = Draft(task.end.label, n, final=True, document=document)
        self._published.publish_rollup(task.metric.name, COMBINED, len(windows), draft, task.watermark)
