"""The registry as frozen objects."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dither_protocol.errors import UnknownMetricError
from dither_protocol.registry.metric import Metric

_WINDOWS_PER_DAY: Final = {"hour": 24}


@dataclass(frozen=True)
class Privacy:
    """Limits on what one device may spend over all metrics; None where the registry sets none.

    Attributes:
        max_epsilon_per_day: sum of the epsilons of one UTC day.
        max_epsilon_lifetime: sum of the epsilons of one state directory.
    """

    max_epsilon_per_day: float | None = None
    max_epsilon_lifetime: float | None = None


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

    def worst_case_per_day(self) -> float:
        """Upper bound on the plain sum of epsilons that one device spends on one UTC day.

        Every metric is counted once for each of its windows that begin on the day and each combination of
        its dimensions, since a device may report once for each (a week, a month and `once` can begin today).
        """
        return math.fsum(
            metric.epsilon
            * _WINDOWS_PER_DAY.get(metric.period, 1)
            * math.prod(len(values) for values in metric.dimensions.values())
            for metric in self
        )
