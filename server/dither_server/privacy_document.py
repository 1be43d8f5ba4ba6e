"""The answer of ``GET /v1/privacy``: what the privacy page says, as plain objects. Pure."""

from dataclasses import asdict

from dither_protocol.registry import Registry
from dither_server.privacy import Budget, MetricPrivacy, PrivacyView


def privacy_document(registry: Registry, view: PrivacyView) -> dict[str, object]:
    """Epsilon per metric, the worst case of a device per day and for life beside its limits, and the guidance."""
    return {
        "project": registry.project,
        "composition": "basic",
        "per_day": _budget(view.day),
        "lifetime": _budget(view.life),
        "days_to_lifetime_limit": view.days_to_limit,
        "metrics": [_metric(each) for each in view.metrics],
        "breaches": [
            {"metric": each.metric.name, "reason": each.breach} for each in view.metrics if each.breach
        ],
    }


def _budget(budget: Budget) -> dict[str, object]:
    return asdict(budget) | {"over": budget.over}


def _metric(each: MetricPrivacy) -> dict[str, object]:
    metric = each.metric
    return {
        "metric": metric.name,
        "version": metric.version,
        "mechanism": metric.mechanism.name,
        "epsilon": metric.epsilon,
        "collection": metric.collection,
        "period": metric.period,
        "combinations": each.combinations,
        "reports_per_day": each.reports_per_day,
        "epsilon_per_day": each.per_day,
        "windows_left": each.windows_left,
        "epsilon_lifetime": each.lifetime,
        "use_case": metric.use_case,
        "guidance": each.guidance,
        "breach": each.breach or None,
    }
