"""How far off the demo's estimates are, beside what was predicted: the utility of every metric. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dither_cli.demo_verdict import MetricReport
from dither_cli.tables import fitting_table
from dither_cli.utility_rows import Row, predicted_row, real_row
from dither_estimator.utility import exact_coverage
from dither_protocol.utility import PredictedUtility, RealUtility, predicted_utility, real_utility

LEVEL: Final = 0.95
"""Of the published intervals."""


@dataclass(frozen=True)
class MetricUtility:
    """One metric of the demo.

    Attributes:
        name: of the metric.
        predicted: from the mechanism, n and the true shares alone.
        exact_coverage: how often its intervals cover, by the binomial distribution; mean over the values.
        real: what came out.
    """

    name: str
    predicted: PredictedUtility
    exact_coverage: float
    real: RealUtility

    def document(self) -> dict[str, Any]:
        """The same in JSON's types."""
        predicted = asdict(self.predicted) | {"exact_coverage": self.exact_coverage}
        return {"predicted": predicted, "real": asdict(self.real)}


def metric_utility(report: MetricReport) -> MetricUtility | None:
    """Of the estimates over all devices; None where not exactly one window was published."""
    metric, rows, n = report.metric, report.rows, report.counted
    if len(rows) != len(metric.labels) or n == 0:
        return None
    truth = [row.truth for row in rows]
    intervals = [(row.lower, row.upper) for row in rows]
    return MetricUtility(
        metric.name,
        predicted_utility(metric.mechanism, truth, n, LEVEL),
        float(np.mean(exact_coverage(metric.mechanism, truth, n, LEVEL))),
        real_utility([row.estimate for row in rows], intervals, truth, n),
    )


def utility_table(found: Sequence[MetricUtility], console: Console) -> Table:
    """Predicted above real for each metric; at least one."""
    rows = [row for each in found for row in _rows(each)]
    return fitting_table(rows, console, left=("",), optional=())


def _rows(each: MetricUtility) -> list[Row]:
    head: Row = {"metric": Text(each.name)}
    predicted = predicted_row(head, asdict(each.predicted), each.exact_coverage)
    return [predicted, real_row(head, asdict(each.real))]
