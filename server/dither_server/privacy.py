"""What a device spends, in numbers that the registry alone decides, beside its limits and the guidance. Pure.

The arithmetic is the protocol's (`dither_protocol.registry.spending`): of a device that answers every metric, in every
window, for every combination of its dimensions. No device can spend more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from dither_protocol.accounting.bounds import Bound
from dither_protocol.registry import Metric, Registry
from dither_protocol.registry.fields import USE_CASES
from dither_protocol.registry.spending import DAY, LIFE, SPANS, Charge, MetricSpending, Spending, spending
from dither_protocol.registry.spending_bounds import below_the_sum, bounds
from dither_protocol.windows import ONCE

_ROUNDING: Final = 1 + 1e-12  # a sum of decimals may be off by one
_MEAN_DAYS: Final = {"week": 7.0, "month": 365.25 / 12, ONCE: math.inf}


@dataclass(frozen=True, slots=True)
class MetricPrivacy:
    """What one metric costs a device.

    Attributes:
        spending: it, by span.
        guidance: range of epsilon that is usual for its use case; None where it has none.
        breach: what is outside of that range, in words; empty where nothing is.
    """

    spending: MetricSpending
    guidance: tuple[float, float] | None
    breach: str

    @property
    def metric(self) -> Metric:
        """The metric."""
        return self.spending.metric

    @property
    def per_day(self) -> float:
        """Most epsilon on one UTC day."""
        return self.spending.epsilon(DAY) or 0.0

    @property
    def lifetime(self) -> float | None:
        """Most epsilon from today until it expires; None where it does not."""
        return self.spending.epsilon(LIFE)

    @property
    def odds(self) -> float:
        """By which factor one report can change the odds of one answer against another, at most."""
        return math.exp(min(self.metric.epsilon, 700.0))


@dataclass(frozen=True, slots=True)
class Budget:
    """A worst case beside its limit; None where there is none."""

    spent: float | None
    limit: float | None

    @property
    def over(self) -> bool:
        """Whether the worst case is above the limit."""
        return self.limit is not None and (self.spent is None or self.spent > self.limit * _ROUNDING)

    @property
    def share(self) -> float | None:
        """Worst case over limit."""
        return None if self.limit is None or self.spent is None else self.spent / self.limit


@dataclass(frozen=True, slots=True)
class PrivacyView:
    """Everything of the privacy page.

    Attributes:
        metrics: in the order of the registry.
        spending: of all metrics together, by span.
        budgets: the same beside its limits.
        days_to_limit: after how many days the worst case reaches the limit for life; None without one.
    """

    metrics: Sequence[MetricPrivacy]
    spending: Spending
    budgets: Mapping[str, Budget]
    days_to_limit: float | None

    @property
    def day(self) -> Budget:
        """Over all metrics, on one UTC day."""
        return self.budgets[DAY]

    @property
    def life(self) -> Budget:
        """Over all metrics, from today until they expire; without a sum where one does not expire."""
        return self.budgets[LIFE]

    def closer(self, span: str) -> list[Bound]:
        """What says more than the plain sum about all reports of a span together."""
        return below_the_sum(bounds(self.spending.charges[span], self.spending.delta))

    def assumptions(self, spans: Sequence[str]) -> list[tuple[str, str]]:
        """What those bounds assume: (rule, sentence), each once."""
        found = [(bound.name, bound.assumption) for span in spans for bound in self.closer(span)]
        return list(dict.fromkeys(found))


def privacy_view(registry: Registry, today: date) -> PrivacyView:
    """Add it all up, for a device that begins today."""
    spent = spending(registry, today)
    budgets = {span: Budget(spent.epsilon(span), spent.limits[span]) for span in SPANS}
    mean = math.fsum(_mean_per_day(charge) for charge in spent.charges[DAY] if not charge.permanent)
    limit = spent.limits[LIFE]
    lasting = math.fsum(charge.total or 0.0 for charge in spent.charges[LIFE] if charge.permanent)
    reached = max(0.0, limit - lasting) / mean if limit is not None and mean > 0 else None
    return PrivacyView([_metric_privacy(each) for each in spent.metrics], spent, budgets, reached)


def _metric_privacy(each: MetricSpending) -> MetricPrivacy:
    metric = each.metric
    guidance = None if metric.use_case is None else USE_CASES[metric.use_case]
    return MetricPrivacy(spending=each, guidance=guidance, breach=_breach(metric))


def _breach(metric: Metric) -> str:
    if metric.use_case is None:
        return ""
    low, high = USE_CASES[metric.use_case]
    if metric.epsilon > high:
        return f"above the usual {low:g} to {high:g}: answers are protected less than is usual"
    if metric.epsilon < low:
        return f"below the usual {low:g} to {high:g}: estimates need many more devices than is usual"
    return ""


def _mean_per_day(charge: Charge) -> float:
    """Epsilon per day, averaged over the period, which the metrics of a group share."""
    return (charge.total or 0.0) / _MEAN_DAYS.get(charge.metric.period, 1.0)
