"""Metrics as the API describes them: with everything that their estimates depend on. Pure."""

from collections.abc import Iterable

from dither_protocol.registry import Metric


def metric_document(metric: Metric, versions: Iterable[Metric]) -> dict[str, object]:
    """A metric of the registry.

    Args:
        metric: its current version.
        versions: all that reports are accepted of, the current one among them, in order.
    """
    return _meaning(metric) | {
        "description": metric.description,
        "owner": metric.owner,
        "collection": metric.collection,
        "expires": metric.expires,
        "min_reports": metric.min_reports,
        "late_days": metric.late_days,
        "retention_days": metric.retention_days,
        "use_case": metric.use_case,
        "versions": [_meaning(version) | {"current": version == metric} for version in versions],
    }


def _meaning(metric: Metric) -> dict[str, object]:
    """What may differ between versions."""
    oracle = metric.mechanism
    return {
        "name": metric.name,
        "version": metric.version,
        "params": metric.params_hash,
        "type": metric.type,
        "labels": metric.labels,
        "mechanism": {
            "name": oracle.name,
            "epsilon": oracle.epsilon,
            "d": oracle.d,
            "p": oracle.p,
            "q": oracle.q,
        },
        "period": metric.period,
        "dimensions": metric.dimensions,
    }
