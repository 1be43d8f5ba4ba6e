"""The verdict on a run: is anything lost, is anything counted twice, and are the estimates as exact as they say? Pure.

What was on the server before is taken off: the ledger is compared by differences, and an estimate that holds earlier
reports is judged by what was added to its supports.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.special import bdtrc

from dither_estimator.estimation import estimate_of_support
from dither_fleet.expectation import Cell
from dither_fleet.sealing import Truths
from dither_fleet.server_view import Books, Place, Published, Snapshot, sent_places
from dither_fleet.tally import Tally
from dither_protocol.registry import Metric

FALSE_ALARM: Final = 1e-6
"""How often a faultless run may fail."""

LEVEL: Final = 0.95
"""Of the published intervals."""


@dataclass(frozen=True)
class MetricLine:
    """Reports of one metric, all its versions and windows together.

    Attributes:
        metric: its name.
        sent: unique reports that had to be accepted, of all batches that were made.
        accepted: those that an answer says were accepted.
        ledger_accepted: what the server's ledger says that it accepted.
        counted: what the ledger says that was counted.
        published: n of the published estimates over all dimensions.
    """

    metric: str
    sent: int
    accepted: int
    ledger_accepted: int
    counted: int
    published: int


@dataclass(frozen=True)
class Judged:
    """One estimate beside the truth.

    Attributes:
        place: what it is about.
        mechanism: name of its mechanism.
        epsilon: of one report.
        n: reports of this run in it.
        error: root of the mean squared error over all values.
        theory: what that is expected to be at the true shares and this n.
        intervals: how many intervals it has.
        missed: how many of them do not hold the truth.
    """

    place: Place
    mechanism: str
    epsilon: float
    n: int
    error: float
    theory: float
    intervals: int
    missed: int


@dataclass(frozen=True)
class Coverage:
    """Intervals of one scope, and how many of them may miss the truth by chance."""

    scope: str
    intervals: int
    missed: int
    limit: int


@dataclass(frozen=True)
class Verdict:
    """Whether a run passed, and why not.

    Attributes:
        problems: sentences.
        lines: reports by metric.
        judged: estimates beside the truth.
        coverage: intervals by scope.
        left_out: estimates that could not be judged.
    """

    problems: Sequence[str]
    lines: Sequence[MetricLine]
    judged: Sequence[Judged]
    coverage: Sequence[Coverage]
    left_out: int

    @property
    def passed(self) -> bool:
        """No problem was found."""
        return not self.problems


def most_misses(intervals: int, level: float) -> int:
    """The largest number of misses that is no alarm.

    Exact binomial limit: with k misses among m intervals the run fails where Pr[X >= k] <= FALSE_ALARM for
    X ~ Binomial(m, 1 - level). 12 of 47 and 22 of 141 at 95 %.
    """
    numbers = np.arange(1, intervals + 1)
    return int((bdtrc(numbers - 1.0, intervals, 1 - level) > FALSE_ALARM).sum())


def judge(
    metrics: Iterable[Metric], truths: Truths, tally: Tally, before: Snapshot, after: Snapshot
) -> Verdict:
    """Compare what was sent with what the server says and published.

    Args:
        metrics: every version that reports were made of.
        truths: what is true of the population, by metric and version.
        tally: what was sent, and what was answered.
        before: the server before the run, with nothing in flight.
        after: the server when everything was counted, or the patience was over.
    """
    sent, accepted = tally.sent_cells(), tally.cells()
    lines = _lines(sent, accepted, before, after)
    judged, left_out = _judged(metrics, truths, sent_places(sent), before.published, after.published)
    coverage = [
        _coverage("over all devices", [each for each in judged if each.place.dimensions is None]),
        _coverage("by dimension", [each for each in judged if each.place.dimensions is not None]),
    ]
    problems = [
        *(f"{batches:,} times: {what}" for what, batches in tally.surprises.items()),
        *_server_faults(tally),
        *_losses(lines),
        *_accounts(tally, before.books, after.books),
        *_doubles(sent_places(sent), before.published, after.published),
        *_misses(coverage),
    ]
    if sent and not judged:
        problems.append("no estimate could be judged: none was published, or none is free of earlier reports")
    return Verdict(problems, lines, judged, [each for each in coverage if each.intervals], left_out)


def _server_faults(tally: Tally) -> list[str]:
    """An overload is 503 with a time to come back; nothing else of the 5xx is in order."""
    faults = [
        f"{tries:,} answers were {reason.removeprefix('http:')}"
        for reason, tries in tally.retries.items()
        if reason.startswith("http:5") and reason != "http:503"
    ]
    if tally.untimed:
        faults.append(f"{tally.untimed:,} answers 429 or 503 did not say when to come back")
    return faults


def _by_metric(cells: Mapping[Cell, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for cell, reports in cells.items():
        found[cell.metric] += reports
    return found


def _lines(
    sent: Mapping[Cell, int], accepted: Mapping[Cell, int], before: Snapshot, after: Snapshot
) -> list[MetricLine]:
    made, answered = _by_metric(sent), _by_metric(accepted)
    published: Counter[str] = Counter()
    for place in sent_places(sent):
        if place.dimensions is None:
            published[place.metric] += _n(after.published, place) - _n(before.published, place)
    return [
        MetricLine(
            name,
            made[name],
            answered[name],
            _difference(before.books, after.books, name, "accepted"),
            _difference(before.books, after.books, name, "counted"),
            published[name],
        )
        for name in made
    ]


def _n(published: Published, place: Place) -> int:
    document = published.get(place)
    return 0 if document is None else int(document["n"])


def _difference(before: Books, after: Books, metric: str, term: str) -> int:
    return after.terms.get(metric, {}).get(term, 0) - before.terms.get(metric, {}).get(term, 0)


def _losses(lines: Sequence[MetricLine]) -> list[str]:
    return [
        f"{line.metric}: sent {line.sent:,}, accepted {line.accepted:,}, by the ledger {line.ledger_accepted:,}, "
        f"counted {line.counted:,}, published {line.published:,} are not equal"
        for line in lines
        if not line.sent == line.accepted == line.ledger_accepted == line.counted == line.published
    ]


def _accounts(tally: Tally, before: Books, after: Books) -> list[str]:
    """What is wrong with the ledger as a whole."""
    problems = []
    if after.imbalance:
        problems.append(f"the server's ledger does not balance: {after.imbalance:,} reports")
    if after.in_flight:
        problems.append(f"{after.in_flight:,} reports are still not counted")
    dead = sum(_difference(before, after, metric, "dead") for metric in after.terms)
    if dead:
        problems.append(f"{dead:,} reports were set aside because they could not be counted")
    expected = tally.rejections()
    for reason in sorted(expected.keys() | after.rejected.keys()):
        found = after.rejected.get(reason, 0) - before.rejected.get(reason, 0)
        if found != expected[reason]:
            problems.append(f"{found:,} reports were rejected as {reason}, not {expected[reason]:,}")
    duplicates = sum(_difference(before, after, metric, "duplicate") for metric in after.terms)
    if duplicates < tally.duplicates:
        problems.append(f"the ledger has {duplicates:,} duplicates, answers named {tally.duplicates:,}")
    return problems


def _doubles(sent: Mapping[Place, int], before: Published, after: Published) -> list[str]:
    """Cells with more reports than devices sent to them."""
    problems = []
    for place, reports in sent.items():
        added = _n(after, place) - _n(before, place)
        if added > reports:
            problems.append(f"{_name(place)}: {added:,} counted of {reports:,} unique reports")
    return problems


def _name(place: Place) -> str:
    where = ", ".join(f"{name}={value}" for name, value in place.dimensions or ()) or "all"
    return f"{place.metric} v{place.version} {place.window} {where}"


def _judged(
    metrics: Iterable[Metric], truths: Truths, sent: Mapping[Place, int], before: Published, after: Published
) -> tuple[list[Judged], int]:
    """Estimates beside the truth, and how many could not be judged."""
    known = {(metric.name, metric.version): metric for metric in metrics}
    judged, left_out = [], 0
    for place in sent:
        document = after.get(place)
        if document is None:
            continue
        metric, truth = known[place.metric, place.version], truths[place.metric, place.version]
        found = _added(metric, before.get(place), document)
        if found is None:
            left_out += 1
            continue
        judged.append(_beside(place, metric, np.asarray(truth.shares), *found))
    return judged, left_out


def _added(
    metric: Metric, before: Mapping[str, Any] | None, after: Mapping[str, Any]
) -> tuple[int, np.ndarray[Any, Any]] | None:
    """n, and rows of (estimate, lower, upper), of what was added; None where that cannot be told."""
    if after["status"] == "suppressed" or (before is not None and before["status"] == "suppressed"):
        return None
    if before is None:
        return after["n"], np.array([[row["estimate"], *row["interval"]] for row in after["values"]])
    n = after["n"] - before["n"]
    pairs = zip(after["values"], before["values"], strict=True)
    supports = np.array([new["support"] - old["support"] for new, old in pairs], dtype=np.int64)
    if n <= 0 or supports.min() < 0 or supports.max() > n:
        return None
    result = estimate_of_support(metric.mechanism, supports, n, LEVEL, "population", simultaneous=False)
    return n, np.stack([result.estimate, result.lower, result.upper], axis=1)


def _beside(
    place: Place, metric: Metric, truth: np.ndarray[Any, Any], n: int, rows: np.ndarray[Any, Any]
) -> Judged:
    mechanism = metric.mechanism
    supports = mechanism.q + truth * mechanism.gap
    variance = supports * (1 - supports) / (n * mechanism.gap**2)
    missed = (truth < rows[:, 1]) | (truth > rows[:, 2])
    return Judged(
        place=place,
        mechanism=mechanism.name,
        epsilon=mechanism.epsilon,
        n=n,
        error=float(np.sqrt(np.mean((rows[:, 0] - truth) ** 2))),
        theory=float(np.sqrt(np.mean(variance))),
        intervals=len(rows),
        missed=int(missed.sum()),
    )


def _coverage(scope: str, judged: Sequence[Judged]) -> Coverage:
    intervals = sum(each.intervals for each in judged)
    missed = sum(each.missed for each in judged)
    return Coverage(scope, intervals, missed, most_misses(intervals, LEVEL))


def _misses(coverage: Sequence[Coverage]) -> list[str]:
    return [
        f"{each.missed:,} of {each.intervals:,} intervals {each.scope} miss the truth, at most {each.limit:,} may"
        for each in coverage
        if each.missed > each.limit
    ]
