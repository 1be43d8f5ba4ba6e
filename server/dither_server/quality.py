"""The answer of ``GET /v1/metrics/{name}/quality``: how far the estimates of a metric may be trusted, and why. Pure.

Nothing is estimated here: errors and intervals are those that the estimator published, and the expected ones beside
them follow from the mechanism alone.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from dither_protocol.registry import Metric
from dither_protocol.utility import (
    POPULATION,
    PredictedUtility,
    RealUtility,
    predicted_utility,
    real_utility,
)
from dither_server.conservation import Conservation, Terms
from dither_server.documents import Estimate, read_estimates
from dither_server.published import readable_definitions
from dither_server.selection import ALL_DIMENSIONS
from dither_server.shuffled import amplified
from dither_server.store_rules import Published, PublishedVersion

DEFAULT_LEVEL: Final = 0.95
"""Of intervals whose document does not say it."""

FAKE_SHARE: Final = 0.01
"""Share of made-up reports for which it is said how far they could move a value."""


def quality_document(name: str, published: Published, found: Conservation) -> dict[str, object]:
    """Estimates of single windows and what became of the reports about them.

    Args:
        name: of the metric.
        published: its estimates, of all dimensions.
        found: the accounts of the same windows.
    """
    metrics = readable_definitions(published)
    return {
        "metric": name,
        "versions": [_version(metric) for metric in metrics.values()],
        "windows": [
            window
            for version in published.versions
            for window in _windows(version, metrics.get(version.version))
        ],
        "accounts": [
            {"window": window} | _account(terms)
            for (metric, window), terms in sorted(found.accounts.items())
            if metric == name
        ],
        "unsettled": found.unsettled,
    }


def _version(metric: Metric) -> dict[str, object]:
    oracle = metric.mechanism
    return {
        "version": metric.version,
        "mechanism": oracle.name,
        "epsilon": oracle.epsilon,
        "p": oracle.p,
        "q": oracle.q,
        "min_reports": metric.min_reports,
        "fakes": {"share": FAKE_SHARE, "margin": oracle.fake_margin(FAKE_SHARE)},
    }


def _windows(version: PublishedVersion, metric: Metric | None) -> Iterator[dict[str, object]]:
    """One entry for each window with an estimate over all dimensions, in order."""
    cells: dict[str, list[Estimate]] = {}
    totals: dict[str, Estimate] = {}
    for (label, dimensions), text in sorted(version.estimates.items()):
        read, _ = read_estimates([text])
        if dimensions == ALL_DIMENSIONS:
            totals.update(zip([label], read, strict=False))  # none where it cannot be read
        else:
            cells.setdefault(label, []).extend(read)
    for label, estimate in sorted(totals.items(), key=lambda each: (each[1].window.start, each[0])):
        yield _window(version.version, estimate, cells.get(label, [estimate]), metric)


def _window(
    version: int, estimate: Estimate, cells: Sequence[Estimate], metric: Metric | None
) -> dict[str, object]:
    suppressed = sum(cell.suppressed for cell in cells)
    total = estimate.support_total
    return {
        "version": version,
        "window": estimate.window,
        "status": estimate.status,
        "final": estimate.final,
        "revision": estimate.revision,
        "watermark": estimate.watermark,
        "n": estimate.n,
        "min_reports": estimate.min_reports,
        "level": estimate.level,
        "target": estimate.target,
        "expected_rmse": _expected_rmse(metric, estimate.n),
        "rmse": _rmse(estimate),
        "half_width": _half_width(estimate),
        "utility": utility(metric, estimate),
        "shuffled": _shuffled(estimate),
        "cells": {
            "published": len(cells) - suppressed,
            "suppressed": suppressed,
            "suppressed_share": suppressed / len(cells),
        },
        "support_total": total,
    }


def _shuffled(estimate: Estimate) -> Mapping[str, object] | None:
    """What one report would reveal had an anonymous channel mixed all of this estimate; information alone."""
    bound = amplified(estimate)
    if bound is None:
        return None
    return {"epsilon": bound.epsilon, "delta": bound.delta, "assumption": bound.assumption}


def _expected_rmse(metric: Metric | None, n: int) -> float | None:
    """Root of the mean squared error among ``n`` reporters where all values are equally frequent."""
    if metric is None or n == 0:
        return None
    oracle = metric.mechanism
    return math.sqrt(oracle.n_variance(1 / oracle.d) / n)


def _rmse(estimate: Estimate) -> float | None:
    """The same by the published standard errors."""
    if estimate.suppressed:
        return None
    return math.sqrt(statistics.fmean(value.std_error**2 for value in estimate.values))


@dataclass(frozen=True, slots=True)
class Utility:
    """How far off the estimates of one window are (`dither_protocol.utility`).

    Attributes:
        shares: what the prediction takes for the true shares: "truth" of a calibration metric, else "norm_sub" of what
            is published, else "uniform".
        predicted: from the mechanism and n alone.
        real: against the truth of a calibration metric; None where nobody knows it, and of a suppressed estimate.
    """

    shares: str
    predicted: PredictedUtility
    real: RealUtility | None


def utility(metric: Metric | None, estimate: Estimate) -> Utility | None:
    """Of one estimate of one version.

    Args:
        metric: that version; None where this server cannot read its definition.
        estimate: of one window.

    Returns:
        None without reports, or where the values are not the metric's.
    """
    rows = () if estimate.suppressed else estimate.values
    if metric is None or estimate.n == 0 or (rows and len(rows) != len(metric.labels)):
        return None
    source, shares = _shares(metric, [row.norm_sub for row in rows])
    level, target = estimate.level or DEFAULT_LEVEL, estimate.target or POPULATION
    truth = metric.true_shares
    real = None
    if truth is not None and rows:
        intervals = [row.interval for row in rows]
        real = real_utility([row.estimate for row in rows], intervals, truth, estimate.n)
    return Utility(source, predicted_utility(metric.mechanism, shares, estimate.n, level, target), real)


def _shares(metric: Metric, norm_sub: Sequence[float | None]) -> tuple[str, Sequence[float]]:
    known = [share for share in norm_sub if share is not None]
    if metric.true_shares is not None:
        return "truth", metric.true_shares
    if len(known) == len(metric.labels):
        return "norm_sub", known
    return "uniform", [1 / len(metric.labels)] * len(metric.labels)


def _half_width(estimate: Estimate) -> Mapping[str, float] | None:
    if estimate.suppressed:
        return None
    widths = [value.half_width for value in estimate.values]
    return {"median": statistics.median(widths), "largest": max(widths)}


def _account(terms: Terms) -> dict[str, object]:
    refused = sum(terms.rejected.values())
    received = max(1, terms.received)
    return asdict(terms) | {
        "duplicate_share": terms.duplicate / received,
        "rejected_share": refused / received,
    }
