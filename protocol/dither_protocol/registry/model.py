"""The registry as frozen objects."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from dither_protocol.errors import UnknownMetricError
from dither_protocol.registry.metric import Metric


class Privacy(NamedTuple):
    """Limits on what one device may spend over all metrics; None where the registry sets none.

    Attributes:
        max_epsilon_per_day: sum of the epsilons of one UTC day.
        max_epsilon_lifetime: sum of the epsilons of one state directory.
        delta: in (0, 1): by how much the limit for life may fail, where it is one of (epsilon, delta).
        expected_devices: how many devices are expected to answer; `dither registry check` judges delta by it.
    """

    max_epsilon_per_day: float | None = None
    max_epsilon_lifetime: float | None = None
    delta: float | None = None
    expected_devices: int | None = None


@dataclass(frozen=True)
class Registry:
    """The metrics of one project.

    Attributes:
        project: name of the project.
        privacy: limits over all metrics.
        metrics: current version of each metric, by name, in the order of the file.
        document: the JSON form, as served by ``GET /v1/registry``.
    """

    project: str
    privacy: Privacy
    metrics: Mapping[str, Metric]
    document: Mapping[str, Any]

    def __iter__(self) -> Iterator[Metric]:
        return iter(self.metrics.values())

    def metric(self, name: str) -> Metric:
        """The current version of a metric.

        Raises:
            UnknownMetricError: the registry has none of this name.
        """
        try:
            return self.metrics[name]
        except (KeyError, TypeError):
            raise UnknownMetricError("the registry has no metric of this name") from None

    @cached_property
    def groups(self) -> Mapping[str, tuple[Metric, ...]]:
        """Metrics of which a device answers one per window, by the name of their group, in the order of the file."""
        found: dict[str, tuple[Metric, ...]] = {}
        for metric in self:
            if metric.one_of is not None:
                found[metric.one_of] = (*found.get(metric.one_of, ()), metric)
        return found

    def worst_case_per_day(self) -> float:
        """Upper bound on the plain sum of epsilons that one device spends on one UTC day.

        Every metric is counted once for each of its windows that are open on the day and each combination of
        its dimensions, since a device may report once for each (a week, a month and `once` can begin today); of a
        group (`one_of`) one metric is counted, at the largest epsilon and the most combinations of its members. No
        date is known here, so metrics that have expired count, too.
        """
        # A device never asks: it need not pay for the import.
        from dither_protocol.registry.spending import worst_case_per_day  # noqa: PLC0415

        return worst_case_per_day(self)
