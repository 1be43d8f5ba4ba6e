"""Metrics as the API describes them: with everything that their estimates depend on. Pure."""

from collections.abc import Iterable

from dither_protocol.registry import Metric
from dither_protocol.registry.guarantees import guarantees
from dither_protocol.registry.metric import MEMOIZED


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
        "memoized": memoized_document(metric),
        "calibration": metric.true_shares,
        "period": metric.period,
        "dimensions": metric.dimensions,
    }


def memoized_document(metric: Metric) -> dict[str, object] | None:
    """Of a memoised metric: what its epsilons guarantee, each with its assumption; None of a fresh one."""
    if metric.collection != MEMOIZED:
        return None
    return {
        "epsilon_permanent": metric.epsilon_permanent,
        "max_distinct_values": metric.max_distinct_values,
        "guarantees": [each._asdict() for each in guarantees(metric)],
    }
