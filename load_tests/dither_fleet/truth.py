"""A truth about any registry: shares that are known, uneven and the same in every run."""

from collections.abc import Iterable, Mapping, Sequence

from dither_fleet.fleet import MetricTruth
from dither_protocol.registry import Metric

_TRUE_SHARE = 0.37


def falling_shares(count: int) -> list[float]:
    """Zipf's shares: the k-th is proportional to 1/k."""
    total = sum(1 / k for k in range(1, count + 1))
    return [1 / k / total for k in range(1, count + 1)]


def truth_of(metric: Metric) -> MetricTruth:
    """True shares of a metric: those that it is calibrated by, 37 % of a boolean, else falling ones."""
    shares: Sequence[float]
    if metric.true_shares is not None:
        shares = metric.true_shares
    elif metric.type == "boolean":
        shares = [1 - _TRUE_SHARE, _TRUE_SHARE]
    else:
        shares = falling_shares(len(metric.labels))
    dimensions = {
        name: dict(zip(values, falling_shares(len(values)), strict=True))
        for name, values in metric.dimensions.items()
    }
    return MetricTruth(shares, dimensions)


def truths_of(metrics: Iterable[Metric]) -> Mapping[tuple[str, int], MetricTruth]:
    """The truth by metric and version."""
    return {(metric.name, metric.version): truth_of(metric) for metric in metrics}
