"""The answer of ``GET /v1/privacy``: what the privacy page says, as plain objects. Pure."""

from collections.abc import Sequence
from dataclasses import asdict

from dither_protocol.registry import Registry
from dither_protocol.registry.spending import DAY, LIFE, SPANS, Charge
from dither_protocol.registry.spending_bounds import BASIC, bounds
from dither_server.privacy import Budget, MetricPrivacy, PrivacyView


def privacy_document(registry: Registry, view: PrivacyView) -> dict[str, object]:
    """Epsilon per metric, the worst case of a device by span beside its limits, and the guidance."""
    return {
        "project": registry.project,
        "first_day": view.spending.first.isoformat(),
        "composition": BASIC,
        "per_day": _budget(view.day),
        "lifetime": _budget(view.life),
        "days_to_lifetime_limit": view.days_to_limit,
        "lifetime_filter": _filter(view.spending.life_filter),
        "spans": {
            span: _span(view.spending.charges[span], view.spending.reports[span], view.spending.delta)
            | {
                "limit": view.budgets[span].limit,
                "over": view.budgets[span].over,
                "at_most": view.spending.at_most(span),
            }
            for span in SPANS
        },
        "metrics": [_metric(each, view.spending.delta) for each in view.metrics],
        "breaches": [
            {"metric": each.metric.name, "reason": each.breach} for each in view.metrics if each.breach
        ],
    }


def _filter(kept: tuple[float, float] | None) -> dict[str, float] | None:
    """Where the device stops for life by another rule than the plain sum."""
    return None if kept is None else {"epsilon": kept[0], "delta": kept[1]}


def _budget(budget: Budget) -> dict[str, object]:
    return asdict(budget) | {"over": budget.over}


def _span(charges: Sequence[Charge], reports: int | None, delta: float) -> dict[str, object]:
    """The plain sum, and every bound of it under its name; both without a number where there is no end."""
    found = bounds(charges, delta)
    basic = next((bound.epsilon for bound in found if bound.name == BASIC), None)
    return {"reports": reports, "epsilon": basic, "bounds": [asdict(bound) for bound in found]}


def _metric(each: MetricPrivacy, delta: float) -> dict[str, object]:
    metric, spent = each.metric, each.spending
    return {
        "metric": metric.name,
        "version": metric.version,
        "mechanism": metric.mechanism.name,
        "epsilon": metric.epsilon,
        "collection": metric.collection,
        "calibration": metric.calibration is not None,
        "period": metric.period,
        "expires": None if metric.expires is None else metric.expires.isoformat(),
        "combinations": spent.combinations,
        "reports_per_day": spent.reports[DAY],
        "epsilon_per_day": each.per_day,
        "windows_left": spent.windows[LIFE],
        "epsilon_lifetime": each.lifetime,
        "spans": {span: _span(spent.charges[span], spent.reports[span], delta) for span in SPANS},
        "one_of": None
        if metric.one_of is None
        else {
            "group": metric.one_of,
            "members": [member.name for member in spent.group],
            "epsilon_charged": spent.charged,
        },
        "use_case": metric.use_case,
        "guidance": each.guidance,
        "breach": each.breach or None,
    }
