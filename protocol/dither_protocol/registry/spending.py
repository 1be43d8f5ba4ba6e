"""What one device can spend at most by a registry: on a day, in a week, in a year and for life. Pure.

All of it is about a device that answers every metric, in every window, for every combination of its dimensions: no
device can spend more. Epsilons are added up (basic composition); `spending_bounds` has better bounds beside the sum.

An answer is charged on the day on which it is recorded, which lies inside its window; when it is delivered changes
nothing. So a span of days is charged with every window that is open on one of them, not only with those that begin.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from dither_protocol.registry.metric import FRESH, Metric
from dither_protocol.registry.model import Registry
from dither_protocol.windows import ONCE

DAY: Final = "day"
WEEK: Final = "week"
YEAR: Final = "year"
LIFE: Final = "life"
SPANS: Final = (DAY, WEEK, YEAR, LIFE)
"""One UTC day; one week, Monday to Sunday; `YEAR_DAYS` from a first day on; from that day to the last expiry."""

DEFAULT_DELTA: Final = 1e-6

YEAR_DAYS: Final = 366
"""From a day to the same date of the next year, both included; a leap year fits in, too."""

# Most windows that are open within one UTC day, or one calendar week; 1 where a period is not named. A week can touch
# two months, but only one week.
_MOST_WINDOWS: Final[dict[str, dict[str, int]]] = {
    DAY: {"hour": 24},
    WEEK: {"hour": 168, "day": 7, "month": 2},
}
_LENGTH_DAYS: Final = {"day": 1, "week": 7}
_SPAN_DAYS: Final = {DAY: 1, WEEK: 7, YEAR: YEAR_DAYS}


class Charge(NamedTuple):
    """So many times so much epsilon.

    Attributes:
        epsilon: of each.
        times: how many; None for no end.
        metric: which has the mechanism; of a group the one with the largest epsilon.
        permanent: whether these are memoised answers, charged once for life.
        alone: whether it is the charge of this metric alone; else the metric stands for its group.
    """

    epsilon: float
    times: int | None
    metric: Metric
    permanent: bool = False
    alone: bool = True

    @property
    def total(self) -> float | None:
        """Their plain sum."""
        return None if self.times is None else self.epsilon * self.times


@dataclass(frozen=True, slots=True)
class MetricSpending:
    """What one metric can cost a device, each by span.

    Attributes:
        metric: it.
        combinations: of its dimensions: a device may report once for each, in each window.
        windows: how many it can answer; None for no end.
        reports: how many it can send; None for no end.
        charges: what they cost, by what they tell. In a group the ledger charges each with the group's `charged`.
        group: the metrics of which a device answers one per window, this one included; it alone without `one_of`.
    """

    metric: Metric
    combinations: int
    windows: Mapping[str, int | None]
    reports: Mapping[str, int | None]
    charges: Mapping[str, Sequence[Charge]]
    group: Sequence[Metric]

    @property
    def charged(self) -> float:
        """What the ledger charges a fresh report with: the largest epsilon of the group."""
        return max(each.epsilon for each in self.group)

    def epsilon(self, span: str) -> float | None:
        """Plain sum of epsilons; None for no end."""
        return total(self.charges[span])


@dataclass(frozen=True, slots=True)
class Spending:
    """What all metrics of a registry can cost a device.

    Attributes:
        first: the day on which the device begins.
        metrics: each by itself, in the order of the registry.
        reports: how many reports it can send, by span; None for no end.
        charges: what they cost, by span; of a group of metrics what the group costs.
        limits: what plain sum the registry allows, by span; None where it sets no such limit. (With ``delta`` the limit
            for life is none on a plain sum.)
        delta: at which closer bounds are shown: that of the registry, else `DEFAULT_DELTA`.
        life_filter: (epsilon, delta) that the device keeps for life where the registry has a delta; else None.
    """

    first: date
    metrics: Sequence[MetricSpending]
    reports: Mapping[str, int | None]
    charges: Mapping[str, Sequence[Charge]]
    limits: Mapping[str, float | None]
    life_filter: tuple[float, float] | None
    delta: float

    def epsilon(self, span: str) -> float | None:
        """Plain sum of epsilons over all metrics; None for no end."""
        return total(self.charges[span])

    def at_most(self, span: str) -> float | None:
        """The sum, or where the device's ledger stops by the limits, whichever is less; None for no end."""
        per_day, days = self.limits[DAY], _SPAN_DAYS.get(span)
        ceilings = [
            self.epsilon(span),
            self.limits[LIFE],
            None if per_day is None or days is None else days * per_day,
        ]
        return min((each for each in ceilings if each is not None), default=None)


def spending(registry: Registry, first: date) -> Spending:
    """What a device spends at most that begins on the day ``first``, while the registry stays as it is."""
    together = groups(registry)
    limits: dict[str, float | None] = dict.fromkeys(SPANS)
    limits[DAY] = registry.privacy.max_epsilon_per_day
    life, delta = registry.privacy.max_epsilon_lifetime, registry.privacy.delta
    limits[LIFE] = life if delta is None else None
    return Spending(
        first=first,
        metrics=[
            metric_spending(metric, first, registry.groups.get(metric.one_of or "", ()))
            for metric in registry
        ],
        reports={span: _sum(_most_reports(group, span, first) for group in together) for span in SPANS},
        charges={
            span: [each for group in together for each in group_charges(group, span, first)] for span in SPANS
        },
        limits=limits,
        life_filter=None if life is None or delta is None else (life, delta),
        delta=DEFAULT_DELTA if delta is None else delta,
    )


def metric_spending(metric: Metric, first: date, group: Sequence[Metric] = ()) -> MetricSpending:
    """What one metric costs, by itself; ``group`` are the metrics of its group, if it has one."""
    return MetricSpending(
        metric=metric,
        combinations=combinations(metric),
        windows={span: open_windows(metric, span, first) for span in SPANS},
        reports={span: _most_reports([metric], span, first) for span in SPANS},
        charges={span: group_charges([metric], span, first) for span in SPANS},
        group=group or (metric,),
    )


def groups(registry: Registry) -> list[list[Metric]]:
    """Metrics of which a device answers one per window, together; a metric without `one_of` is a group of its own."""
    found: list[list[Metric]] = []
    for metric in registry:
        if metric.one_of is None:
            found.append([metric])
        elif registry.groups[metric.one_of][0] is metric:
            found.append(list(registry.groups[metric.one_of]))
    return found


def group_charges(group: Sequence[Metric], span: str, first: date | None) -> list[Charge]:
    """What a group costs within a span of days.

    Of fresh answers the largest epsilon of the group for every window that any of them has, and as often within it as
    the member with the most combinations of dimensions: a device answers one of them per window, and charges each of
    its reports with the largest epsilon, whichever was drawn. A member whose windows are over counts no more. Memoised
    metrics are charged once for life, at the first report, each for itself (a registry has none in a group).

    Args:
        group: one metric, or several of which a device answers one per window.
        span: one of `SPANS`.
        first: the day on which the device begins; None as though nothing ever expired, for a day or a week.
    """
    windows = {metric.name: open_windows(metric, span, first) for metric in group}
    charges = [
        Charge(epsilon, values, metric, permanent=True)
        for metric in group
        if windows[metric.name] != 0
        for epsilon, values in permanent_answers(metric)
    ]
    fresh = [metric for metric in group if metric.collection == FRESH]
    if fresh:
        fresh = [metric for metric in fresh if windows[metric.name] != 0] or fresh
        dearest = max(fresh, key=lambda metric: metric.epsilon)
        each = max(combinations(metric) for metric in fresh)
        most = _most(windows[metric.name] for metric in fresh)
        charges.append(Charge(dearest.epsilon, _times(most, each), dearest, alone=len(fresh) == 1))
    return charges


def permanent_answers(metric: Metric) -> list[tuple[float, int]]:
    """(epsilon_permanent, max_distinct_values) of a memoised metric; empty for a fresh one.

    Their product is the bound for life (design section 6), under the assumption that `guarantees` names.
    """
    epsilon, values = metric.epsilon_permanent, metric.max_distinct_values
    return [] if epsilon is None or values is None else [(epsilon, values)]


def combinations(metric: Metric) -> int:
    """How many reports a device can send in one window: one for each combination of its dimensions."""
    return math.prod(len(values) for values in metric.dimensions.values())


def open_windows(metric: Metric, span: str, first: date | None) -> int | None:
    """How many windows a device that begins on ``first`` can answer within a span; None for no end.

    Raises:
        KeyError: no such span, or one that needs a first day.
    """
    if first is None:
        return _MOST_WINDOWS[span].get(metric.period, 1)
    if span == YEAR:
        return windows_between(metric, first, first + timedelta(days=YEAR_DAYS - 1))
    left = windows_between(metric, first, None)
    if span == LIFE:
        return left
    most = _MOST_WINDOWS[span].get(metric.period, 1)
    return most if left is None else min(most, left)


def windows_between(metric: Metric, first: date, last: date | None) -> int | None:
    """Windows that are open on one of the days from ``first`` to ``last``; None for no end.

    The one that contains ``first`` counts in full, and none begins after the last day of the metric.
    """
    if metric.period == ONCE:
        return int(metric.expires is None or metric.expires >= first)
    ends = [day for day in (last, metric.expires) if day is not None]
    if not ends:
        return None
    end = min(ends)
    begin = metric.window_at(datetime(first.year, first.month, first.day, tzinfo=UTC)).start.date()
    if end < begin:
        return 0
    if metric.period == "month":
        return (end.year - begin.year) * 12 + end.month - begin.month + 1
    days = (end - begin).days
    return (days + 1) * 24 if metric.period == "hour" else days // _LENGTH_DAYS[metric.period] + 1


def worst_case_per_day(registry: Registry) -> float:
    """Plain sum of the epsilons of one UTC day, as though no metric ever expired."""
    charges = [each for group in groups(registry) for each in group_charges(group, DAY, None)]
    return total(charges) or 0.0


def total(charges: Iterable[Charge]) -> float | None:
    """Plain sum of epsilons; None for no end."""
    sums = [charge.total for charge in charges]
    known = [each for each in sums if each is not None]
    return math.fsum(known) if len(known) == len(sums) else None


def _most_reports(group: Sequence[Metric], span: str, first: date) -> int | None:
    return _most(_times(open_windows(metric, span, first), combinations(metric)) for metric in group)


def _times(windows: int | None, each: int) -> int | None:
    return None if windows is None else windows * each


def _most(counts: Iterable[int | None]) -> int | None:
    found = list(counts)
    known = [count for count in found if count is not None]
    return max(known, default=0) if len(known) == len(found) else None


def _sum(counts: Iterable[int | None]) -> int | None:
    found = list(counts)
    known = [count for count in found if count is not None]
    return sum(known) if len(known) == len(found) else None
