"""What a device spends, in numbers that the registry alone decides. Pure.

Everything here is the plain sum of epsilons (basic composition) of a device that answers every metric, in every
window, for every combination of its dimensions: no device can spend more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from dither_protocol.registry import Metric, Registry
from dither_protocol.registry.fields import USE_CASES
from dither_protocol.windows import ONCE

_DAYS: Final = {"day": 1, "week": 7}
_ROUNDING: Final = 1 + 1e-12  # a sum of decimals may be off by one


@dataclass(frozen=True, slots=True)
class MetricPrivacy:
    """What one metric costs a device.

    Attributes:
        metric: it.
        combinations: of its dimensions: a device may report once for each, in each window.
        reports_per_day: most reports of one device on one UTC day: of the windows that can begin on it.
        per_day: epsilon of those.
        windows_left: how many windows it still has, this one included; None where it does not expire.
        lifetime: epsilon of those; None where it does not expire.
        guidance: range of epsilon that is usual for its use case; None where it has none.
        breach: what is outside of that range, in words; empty where nothing is.
    """

    metric: Metric
    combinations: int
    reports_per_day: int
    per_day: float
    windows_left: int | None
    lifetime: float | None
    guidance: tuple[float, float] | None
    breach: str

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
        day: over all metrics, on one UTC day.
        life: over all metrics, from today until they expire; without a sum where one does not expire.
        days_to_limit: after how many days the worst case reaches the limit for life; None without one.
    """

    metrics: Sequence[MetricPrivacy]
    day: Budget
    life: Budget
    days_to_limit: float | None


def privacy_view(registry: Registry, today: date) -> PrivacyView:
    """Add it all up."""
    metrics = [metric_privacy(metric, today) for metric in registry]
    lives = [each.lifetime for each in metrics]
    finite = [life for life in lives if life is not None]
    limits, per_day = registry.privacy, registry.worst_case_per_day()
    life = Budget(math.fsum(finite) if len(finite) == len(lives) else None, limits.max_epsilon_lifetime)
    mean = math.fsum(_mean_per_day(each) for each in metrics)
    reached = life.limit / mean if life.limit is not None and mean > 0 else None
    return PrivacyView(metrics, Budget(per_day, limits.max_epsilon_per_day), life, reached)


def metric_privacy(metric: Metric, today: date) -> MetricPrivacy:
    """What one metric costs."""
    combinations = math.prod(len(values) for values in metric.dimensions.values())
    per_day = combinations * (24 if metric.period == "hour" else 1)
    left = _windows_left(metric, today)
    return MetricPrivacy(
        metric=metric,
        combinations=combinations,
        reports_per_day=per_day,
        per_day=per_day * metric.epsilon,
        windows_left=left,
        lifetime=None if left is None else left * combinations * metric.epsilon,
        guidance=None if metric.use_case is None else USE_CASES[metric.use_case],
        breach=_breach(metric),
    )


def _breach(metric: Metric) -> str:
    if metric.use_case is None:
        return ""
    low, high = USE_CASES[metric.use_case]
    if metric.epsilon > high:
        return f"above the usual {low:g} to {high:g}: answers are protected less than is usual"
    if metric.epsilon < low:
        return f"below the usual {low:g} to {high:g}: estimates need many more devices than is usual"
    return ""


def _windows_left(metric: Metric, today: date) -> int | None:
    """Windows that begin until the last day of the metric, with the one that contains today."""
    if metric.period == ONCE:
        return int(metric.expires is None or metric.expires >= today)
    if metric.expires is None:
        return None
    if metric.expires < today:
        return 0
    first = metric.window_at(datetime(today.year, today.month, today.day, tzinfo=UTC)).start.date()
    if metric.period == "month":
        return (metric.expires.year - first.year) * 12 + metric.expires.month - first.month + 1
    days = (metric.expires - first) // timedelta(days=1)
    return (days + 1) * 24 if metric.period == "hour" else days // _DAYS[metric.period] + 1


def _mean_per_day(each: MetricPrivacy) -> float:
    """Epsilon per day, averaged over the metric's period; nothing for what is asked once."""
    days = {"week": 7.0, "month": 365.25 / 12, ONCE: math.inf}.get(each.metric.period, 1.0)
    return each.per_day / days if each.windows_left != 0 else 0.0
