"""The demo's verdict: is everything counted, and do the intervals cover the truth as often as they say? Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dither_fleet import FleetResult, MetricTruth, most_misses
from dither_protocol.registry import Metric, Registry


@dataclass(frozen=True)
class ValueRow:
    """One value beside its truth."""

    value: str
    truth: float
    estimate: float
    lower: float
    upper: float

    @property
    def covers(self) -> bool:
        """Whether the interval holds the true share."""
        return self.lower <= self.truth <= self.upper


@dataclass(frozen=True)
class MetricReport:
    """One metric of the demo: reports by stage, and its values beside the truth.

    Attributes:
        metric: what was asked.
        sent: reports posted.
        accepted: reports the server took.
        counted: reports in the published estimate.
        rows: one per value, over all dimensions.
        dimension_rows: one per value and combination of dimensions.
    """

    metric: Metric
    sent: int
    accepted: int
    counted: int
    rows: Sequence[ValueRow]
    dimension_rows: Sequence[ValueRow]


@dataclass(frozen=True)
class Verdict:
    """Whether the demo passed, and why not."""

    reports: Sequence[MetricReport]
    problems: Sequence[str]
    summary: str

    @property
    def passed(self) -> bool:
        """No problem was found."""
        return not self.problems


def counted(documents: Sequence[Mapping[str, Any]]) -> int:
    """Reports in the published estimates over all dimensions, summed over windows."""
    return sum(document["n"] for document in documents if document["dimensions"] is None)


def _rows(metric: Metric, truth: MetricTruth, documents: Sequence[Mapping[str, Any]]) -> list[ValueRow]:
    shares = dict(zip(metric.labels, truth.shares, strict=True))
    return [
        ValueRow(row["value"], shares[row["value"]], row["estimate"], *row["interval"])
        for document in documents
        for row in document["values"]
    ]


def judge(
    registry: Registry,
    truths: Mapping[str, MetricTruth],
    sent: FleetResult,
    published: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Verdict:
    """Compare what was sent with what was published.

    Args:
        registry: the metrics of the run.
        truths: what is true of the population.
        sent: what the devices sent, and what the server said.
        published: all estimate documents by metric.
    """
    reports = []
    for metric in registry:
        documents = published[metric.name]
        everywhere = [d for d in documents if d["dimensions"] is None]
        apart = [d for d in documents if d["dimensions"] is not None]
        truth = truths[metric.name]
        reports.append(
            MetricReport(
                metric,
                sent.sent[metric.name],
                sent.accepted[metric.name],
                counted(documents),
                _rows(metric, truth, everywhere),
                _rows(metric, truth, apart),
            )
        )
    problems = [*_losses(reports), *(f"a batch was given up: {reason}" for reason in sent.failures)]
    coverage, misses = _coverage(reports)
    return Verdict(reports, problems + misses, coverage)


def _losses(reports: Sequence[MetricReport]) -> list[str]:
    return [
        f"{r.metric.name}: sent {r.sent:,}, accepted {r.accepted:,}, counted {r.counted:,} are not equal"
        for r in reports
        if not r.sent == r.accepted == r.counted
    ]


def _coverage(reports: Sequence[MetricReport]) -> tuple[str, list[str]]:
    """One sentence on coverage, and what is wrong with it."""
    sentences, problems = [], []
    for scope, rows, expected in (
        ("over all devices", [row for r in reports for row in r.rows], True),
        ("by dimension", [row for r in reports for row in r.dimension_rows], False),
    ):
        if not rows:
            if expected:
                problems.append("no estimate was published")
            continue
        missed = sum(not row.covers for row in rows)
        limit = most_misses(len(rows), 0.95)
        sentences.append(f"{len(rows) - missed} of {len(rows)} intervals {scope} cover the truth")
        if missed > limit:
            problems.append(f"{missed} of {len(rows)} intervals {scope} miss the truth, at most {limit} may")
    return "; ".join(sentences), problems
