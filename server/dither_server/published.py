"""The answer to a query for estimates, and how versions go together in it (design section 5).

Pure; the documents themselves are the estimator's and pass through unread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from dither_protocol.errors import DimensionError, RegistryError
from dither_protocol.labels import NAME
from dither_protocol.registry import Metric, decode_definition
from dither_protocol.storage import parse_dimensions_text
from dither_server.problems import Problem
from dither_server.selection import ALL_DIMENSIONS, position
from dither_server.store_rules import Published, PublishedVersion

_REMEMBERED_DEFINITIONS: Final = 256


class Rule(StrEnum):
    """How the versions of a metric that have estimates in a selection go together."""

    WEIGHTED = "weighted-by-n"
    SIDE_BY_SIDE = "side-by-side"
    SINGLE = "single-version"


@dataclass(frozen=True, slots=True)
class Combination:
    """What `Rule` holds, and why, in words for people."""

    rule: Rule
    reason: str


def estimates_document(
    name: str, published: Published, *, rollup: bool = False, simultaneous: bool = False
) -> dict[str, object]:
    """The chosen estimates of a metric: each version's own side by side, beside them those over several versions.

    Where the versions cannot be combined there is no combined estimate either, even if an earlier selection of
    versions had one: what is shown never contradicts the rule.
    """
    versions = [version for version in published.versions if version.estimates]
    combination = _combination(versions, combined=bool(published.combined), rollup=rollup)
    if simultaneous and combination.rule is Rule.WEIGHTED:
        combination = Combination(
            Rule.SIDE_BY_SIDE, "there are no simultaneous intervals over several versions"
        )
    return {
        "metric": name,
        "versions": [
            {
                "version": version.version,
                "params": msgspec.json.decode(version.definition)["params"],
                "estimates": _raw(version.estimates),
            }
            for version in published.versions
        ],
        "combined": _raw(published.combined) if combination.rule is Rule.WEIGHTED else [],
        "combination": combination,
    }


def _raw(estimates: Mapping[tuple[str, str], bytes]) -> list[msgspec.Raw]:
    """By windows, then by dimensions: labels of one period sort as text in the order of time."""
    return [msgspec.Raw(document) for _, document in sorted(estimates.items())]


def _combination(versions: Sequence[PublishedVersion], *, combined: bool, rollup: bool) -> Combination:
    """How the versions that have estimates go together, by their stored definitions.

    Args:
        versions: those with an estimate in the selection.
        combined: whether the selection has an estimate over several of them.
        rollup: whether these are over several windows; then others may have reports about earlier ones.
    """
    if len(versions) < 2:
        return _few(versions, combined=combined and rollup)
    known = [_question(version.definition) for version in versions]
    questions = [question for question in known if question is not None]
    if len(questions) < len(known):
        return Combination(Rule.SIDE_BY_SIDE, "a version's definition cannot be read by this server")
    labels, periods = zip(*questions, strict=True)
    if len(set(labels)) > 1:
        return Combination(Rule.SIDE_BY_SIDE, "the versions have different labels")
    if len(set(periods)) > 1:
        return Combination(Rule.SIDE_BY_SIDE, "the versions have different periods")
    if combined:
        return Combination(Rule.WEIGHTED, "the versions have the same labels and period")
    return Combination(
        Rule.WEIGHTED,
        "the versions have the same labels and period, but no window here is combined: "
        "at least two versions need their min_reports in it, and only sums over all dimensions are combined",
    )


def _few(versions: Sequence[PublishedVersion], *, combined: bool) -> Combination:
    if combined:
        reason = "the rollups here contain windows of other versions, with the same labels and period"
        return Combination(Rule.WEIGHTED, reason)
    return Combination(Rule.SINGLE, f"{'one' if versions else 'no'} version has estimates here")


def first_windows(published: Published, most: int, weight: Callable[[bytes], int]) -> Published:
    """The earliest windows whose documents together weigh no more than ``most``, whole; at the least one.

    Where windows are left out, ``last`` names the last one that is there.
    """
    weights: dict[str, int] = {}
    for (label, _), document in _documents(published):
        weights[label] = weights.get(label, 0) + weight(document)
    windows = sorted(weights, key=position)
    total = 0
    for kept, label in enumerate(windows):
        total += weights[label]
        if kept and total > most:
            return replace(_only(published, windows[:kept]), last=windows[kept - 1])
    return published


def latest_windows(published: Published, count: int) -> Published:
    """The latest windows alone."""
    windows = sorted({label for (label, _), _ in _documents(published)}, key=position)
    return _only(published, windows[-count:])


def _documents(published: Published) -> Iterator[tuple[tuple[str, str], bytes]]:
    for version in published.versions:
        yield from version.estimates.items()
    yield from published.combined.items()


def _only(published: Published, windows: Sequence[str]) -> Published:
    kept = frozenset(windows)

    def chosen(estimates: Mapping[tuple[str, str], bytes]) -> dict[tuple[str, str], bytes]:
        return {key: document for key, document in estimates.items() if key[0] in kept}

    versions = [replace(version, estimates=chosen(version.estimates)) for version in published.versions]
    return replace(published, versions=versions, combined=chosen(published.combined))


def readable_definitions(published: Published) -> dict[int, Metric]:
    """The versions that this version of Dither can read, by number."""
    found = {version.version: _metric(version.definition) for version in published.versions}
    return {version: metric for version, metric in found.items() if metric is not None}


def check_dimensions(dimensions: str | None, published: Published) -> None:
    """Refuse dimensions that no version of the metric has ever had.

    Args:
        dimensions: their text; None or ``*`` are right for every metric.
        published: has the definitions. One that this server cannot read may allow anything.

    Raises:
        Problem: query-invalid, naming the dimension.
    """
    if dimensions in (None, ALL_DIMENSIONS) or not published.versions:
        return
    given = dict(parse_dimensions_text(str(dimensions)))
    metrics = [_metric(version.definition) for version in published.versions]
    if not any(metric is None or _takes(metric, given) for metric in metrics):
        latest = metrics[-1]
        known = {} if latest is None else latest.dimensions
        raise Problem("query-invalid", _wrong_dimensions(given, known), "dimensions")


def _takes(metric: Metric, given: Mapping[str, str]) -> bool:
    try:
        metric.check_dimensions(given)
    except DimensionError:
        return False
    return True


def _wrong_dimensions(given: Mapping[str, str], known: Mapping[str, Sequence[str]]) -> str:
    for name in given:
        if name not in known:
            which = f" '{name}'" if NAME.fullmatch(name) else " of this name"
            return f"the metric has no dimension{which}; it has {', '.join(known) or 'none'}"
    for name, values in known.items():
        if name not in given:
            return f"must give every dimension of the metric: {', '.join(known)}; or * for the sum over all"
        if given[name] not in values:
            return f"'{name}' has no such value; it has {', '.join(values)}"
    return "no version of the metric has had these"


def _question(definition: bytes) -> tuple[tuple[str, ...], str] | None:
    """(labels, period) of an announced version; None where this version of Dither cannot read it."""
    metric = _metric(definition)
    return None if metric is None else (metric.labels, metric.period)


@lru_cache(_REMEMBERED_DEFINITIONS)
def _metric(definition: bytes) -> Metric | None:
    """An announced version; None where this version of Dither cannot read it."""
    try:
        return decode_definition(definition)
    except RegistryError:
        return None
