"""From counts to the published document of an estimate (invariant C3). Pure: no store, no clock."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dither_estimator.combination import Combined, combine
from dither_estimator.estimation import Estimates, estimate
from dither_protocol.registry import Metric
from dither_protocol.registry.metric import Dimensions
from dither_protocol.windows import Window

LEVEL: Final = 0.95
TARGET: Final = "population"


Part = tuple[npt.NDArray[np.int64], Metric, int]
"""What one version contributes: its counters over all dimensions, the metric, and n."""


def _instant(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def _values(metric: Metric, result: Estimates | Combined) -> list[dict[str, Any]]:
    columns = zip(
        metric.labels,
        result.estimate.tolist(),
        result.std_error.tolist(),
        result.lower.tolist(),
        result.upper.tolist(),
        result.method,
        result.norm_sub.tolist(),
        result.present.tolist(),
        strict=True,
    )
    return [
        {
            "value": label,
            "estimate": estimated,
            "std_error": std_error,
            "interval": [lower, upper],
            "interval_method": str(method),
            "norm_sub": projected,
            "present": present,
        }
        for label, estimated, std_error, lower, upper, method, projected, present in columns
    ]


def estimate_document(
    metric: Metric,
    window: Window,
    dimensions: Dimensions | None,
    counters: npt.NDArray[np.int64],
    n: int,
) -> dict[str, Any]:
    """The published estimate of one cell, or of a window over all dimensions.

    The unbiased estimate and its raw interval stand as they are, negatives included (invariant C4); ``norm_sub``
    stands beside them. Below the metric's ``min_reports`` the values are suppressed, and the status says so.

    Args:
        metric: what was asked.
        window: when.
        dimensions: of the cell; None for the sum over all dimensions.
        counters: int64 array of the mechanism's counters.
        n: number of reports.
    """
    suppressed = n < metric.min_reports
    mechanism = metric.mechanism
    result = None if suppressed else estimate(mechanism, counters, n, level=LEVEL, target=TARGET)
    return {
        "metric": metric.name,
        "version": metric.version,
        "window": {"label": window.label, "start": _instant(window.start), "end": _instant(window.end)},
        "dimensions": None if dimensions is None else dict(dimensions),
        "status": "suppressed" if suppressed else "open",
        "n": n,
        "min_reports": metric.min_reports,
        "mechanism": mechanism.name,
        "epsilon": mechanism.epsilon,
        "p": mechanism.p,
        "q": mechanism.q,
        "target": TARGET,
        "level": LEVEL,
        "values": [] if result is None else _values(metric, result),
    }


def combined_document(metric: Metric, window: Window, parts: Mapping[int, Part]) -> dict[str, Any] | None:
    """The published estimate over several versions of a metric in one window, and what it is made of.

    Args:
        metric: any of the versions.
        window: when.
        parts: by version, (counters, its metric, n) over all dimensions.

    Returns:
        None where the versions must stand side by side: their domains differ, or fewer than two of them have
        their ``min_reports``. A version with fewer reports than that is left out.
    """
    if len({version.labels for _, version, _ in parts.values()}) > 1:
        return None
    versions = [part for _, part in sorted(parts.items()) if part[2] >= part[1].min_reports]
    if len(versions) < 2:
        return None
    result = combine(
        [
            estimate(version.mechanism, counters, n, level=LEVEL, target=TARGET)
            for counters, version, n in versions
        ]
    )
    return {
        "metric": metric.name,
        "versions": [version.version for _, version, _ in versions],
        "window": {"label": window.label, "start": _instant(window.start), "end": _instant(window.end)},
        "dimensions": None,
        "status": "combined",
        "n": result.n,
        "parts": [
            {
                "version": version.version,
                "n": n,
                "mechanism": version.mechanism.name,
                "epsilon": version.mechanism.epsilon,
            }
            for _, version, n in versions
        ],
        "target": TARGET,
        "level": LEVEL,
        "values": _values(metric, result),
    }


def encode_document(document: dict[str, Any]) -> str:
    """A document as JSON text; NaN and infinities are refused rather than written."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False)
