"""From counts to the published document of an estimate (invariant C3). Pure: no store, no clock."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dither_estimator.combination import Combined, combine
from dither_estimator.estimation import Estimates, Target, estimate
from dither_estimator.longitudinal import design_effect, std_error_floor, widened
from dither_estimator.support_total import support_total
from dither_protocol.mechanisms import Memoized
from dither_protocol.registry import Metric
from dither_protocol.registry.guarantees import guarantees
from dither_protocol.registry.metric import MEMOIZED, Dimensions
from dither_protocol.windows import Window

LEVEL: Final = 0.95

OPEN: Final = "open"
FINAL: Final = "final"
SUPPRESSED: Final = "suppressed"

Document = dict[str, Any]

Part = tuple[npt.NDArray[np.int64], Metric, int]
"""What one version contributes: its counters over all dimensions, the metric, and n."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What an estimate is about, and how far that is settled.

    Attributes:
        window: as in the document: label, start and end.
        closes: when reports about it, or about the last window of several, are no longer accepted.
        final: whether every report that came in time is counted.
        target: "population"; "reporters" over several windows, since these may hold several reports of one device.
        more: further fields of the document.
        repeats: most reports of one device; where answers are memoised, these share noise.
    """

    window: Document
    closes: datetime
    final: bool
    target: Target = "population"
    more: Document = field(default_factory=dict)
    repeats: int = 1

    def head(self, metric: Metric, versions: Document, status: str) -> Document:
        """The fields with which a document begins."""
        return {
            "metric": metric.name,
            **versions,
            **self.more,
            "window": self.window,
            "status": status,
            "final": self.final,
            "closes": instant(self.closes),
        }


def window_scope(window: Window, closes: datetime, *, final: bool) -> Scope:
    """One window."""
    return Scope(_span(window.label, window.start, window.end), closes, final)


def rollup_scope(windows: Sequence[Window], closes: datetime, with_reports: int) -> Scope:
    """Several consecutive closed windows, in order, of which ``with_reports`` had any."""
    first, last = windows[0], windows[-1]
    more = {
        "rollup": len(windows),
        "windows": {"first": first.label, "last": last.label, "with_reports": with_reports},
    }
    window = _span(f"{first.label}/{last.label}", first.start, last.end)
    return Scope(window, closes, final=True, target="reporters", more=more, repeats=max(1, with_reports))


def instant(when: datetime) -> str:
    """A time in UTC by RFC 3339, to the second."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def _span(label: str, start: datetime, end: datetime) -> Document:
    return {"label": label, "start": instant(start), "end": instant(end)}


def _status(scope: Scope, *, suppressed: bool = False) -> str:
    if suppressed:
        return SUPPRESSED
    return FINAL if scope.final else OPEN


def as_final(document: Document) -> Document:
    """The same document where every report that came in time is counted."""
    return document | {
        "final": True,
        "status": FINAL if document["status"] == OPEN else document["status"],
    }


def value_rows(labels: Sequence[str], result: Estimates | Combined) -> list[Document]:
    """What a document says about each value. ``support`` is the number of reports that support it (C_v)."""
    columns = zip(
        labels,
        result.estimate.tolist(),
        result.std_error.tolist(),
        result.lower.tolist(),
        result.upper.tolist(),
        result.method,
        result.norm_sub.tolist(),
        result.present.tolist(),
        strict=True,
    )
    rows: list[Document] = [
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
    if isinstance(result, Estimates):
        for row, supporters in zip(rows, result.supporters.tolist(), strict=True):
            row["support"] = supporters
    return rows


def estimate_document(
    metric: Metric,
    scope: Scope,
    dimensions: Dimensions | None,
    counters: npt.NDArray[np.int64],
    n: int,
) -> Document:
    """The published estimate of one cell, or over all dimensions.

    The unbiased estimate and its raw interval stand as they are, negatives included (invariant C4); ``norm_sub``
    stands beside them. Below the metric's ``min_reports`` the values are suppressed, and the status says so.

    Args:
        metric: what was asked.
        scope: when.
        dimensions: of the cell; None for the sum over all dimensions.
        counters: int64 array of the mechanism's counters.
        n: number of reports.

    Raises:
        EstimationError: n reports cannot have these counters.
    """
    suppressed = n < metric.min_reports
    mechanism = metric.mechanism
    result = None if suppressed else _estimated(metric, counters, n, scope)
    return {
        **scope.head(
            metric,
            {"version": metric.version, "versions": [metric.version]},
            _status(scope, suppressed=suppressed),
        ),
        "dimensions": None if dimensions is None else dict(dimensions),
        "n": n,
        "min_reports": metric.min_reports,
        "mechanism": mechanism.name,
        "epsilon": mechanism.epsilon,
        "p": mechanism.p,
        "q": mechanism.q,
        **memoized_fields(metric, n, scope.repeats),
        "target": scope.target,
        "level": LEVEL,
        "simultaneous": False,
        # The spread of the total is that of independent reports.
        "support_total": None if result is None or _dependent(metric, scope) else _support_total(result),
        "values": [] if result is None else value_rows(metric.labels, result),
    }


def combined_document(scope: Scope, parts: Mapping[int, Part]) -> Document | None:
    """The published estimate over several versions of a metric, and what it is made of.

    Args:
        scope: when.
        parts: by version, (counters, its metric, n) over all dimensions; at least one.

    Returns:
        None where the versions must stand side by side: their domains differ, or fewer than two of them have
        their ``min_reports``. A version with fewer reports than that is left out.

    Raises:
        EstimationError: the reports of a version cannot have its counters.
    """
    if len({version.labels for _, version, _ in parts.values()}) > 1:
        return None
    versions = [part for _, part in sorted(parts.items()) if part[2] >= part[1].min_reports]
    if len(versions) < 2:
        return None
    results = [_estimated(version, counters, n, scope) for counters, version, n in versions]
    result = combine(results)
    metric = versions[-1][1]
    return {
        **scope.head(metric, {"versions": [version.version for _, version, _ in versions]}, _status(scope)),
        "dimensions": None,
        "n": result.n,
        "parts": [
            {
                "version": version.version,
                "n": n,
                "mechanism": version.mechanism.name,
                "epsilon": version.mechanism.epsilon,
                "p": version.mechanism.p,
                "q": version.mechanism.q,
                **memoized_fields(version, n, scope.repeats),
                "support": part.supporters.tolist(),
            }
            for (_, version, n), part in zip(versions, results, strict=True)
        ],
        "target": scope.target,
        "level": LEVEL,
        "simultaneous": False,
        "values": value_rows(metric.labels, result),
    }


def _dependent(metric: Metric, scope: Scope) -> bool:
    return metric.collection == MEMOIZED and scope.repeats > 1


def _estimated(metric: Metric, counters: npt.NDArray[np.int64], n: int, scope: Scope) -> Estimates:
    mechanism = metric.mechanism
    plain = estimate(mechanism, counters, n, level=LEVEL, target=scope.target)
    return widened(plain, mechanism, scope.repeats) if isinstance(mechanism, Memoized) else plain


def memoized_fields(metric: Metric, n: int, repeats: int) -> Document:
    """What a document says about a memoised metric: the floor of its errors, and what its epsilons guarantee.

    ``std_error_floor`` is what stays of the standard error at a share of zero, however many more reports the same
    devices send; there are n / repeats of them at least.
    """
    mechanism = metric.mechanism
    if not isinstance(mechanism, Memoized):
        return {}
    return {
        "memoized": {
            "epsilon_permanent": mechanism.epsilon_permanent,
            "max_distinct_values": metric.max_distinct_values,
            "repeats": repeats,
            "design_effect": design_effect(mechanism, repeats),
            "std_error_floor": None if n == 0 else std_error_floor(mechanism, n / repeats, 0.0),
            "guarantees": [each._asdict() for each in guarantees(metric)],
        }
    }


def _support_total(result: Estimates) -> Document:
    found = support_total(result.mechanism, result.supporters, result.n)
    return {
        "total": found.total,
        "expected": found.expected,
        "std_dev": found.std_dev,
        "flagged": found.flagged,
    }


def encode_document(document: Document) -> str:
    """A document as JSON text; NaN and infinities are refused rather than written."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False)
