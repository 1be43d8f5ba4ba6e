"""Choosing among published estimates, and saying how versions go together (design section 5).

Pure; the documents themselves are the estimator's and pass through unread.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final, Self

import msgspec

from dither_protocol.errors import RegistryError, WindowError
from dither_protocol.registry import decode_definition
from dither_protocol.storage import dimensions_text, parse_dimensions_text
from dither_protocol.windows import ONCE, PERIODS, Window, parse_window
from dither_server.problems import Problem
from dither_server.store_rules import Published, PublishedVersion

_COMPANION: Final = "n|"
"""Begins the fields in which the worker keeps how many reports an estimate is from: for its own script alone."""
_ALL_DIMENSIONS: Final = "*"
_REMEMBERED_DEFINITIONS: Final = 256
_PARAMETERS: Final = ("from", "to", "dimensions")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}", re.ASCII)


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


@lru_cache(maxsize=4_096)
def _interval(label: str) -> Window | None:
    """The window of a label of any period but ``once``; None where it is no label."""
    for period in PERIODS:
        if period != ONCE:
            try:
                return parse_window(period, label)
            except WindowError:
                continue
    return None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which estimates are asked for.

    Attributes:
        start: only windows that begin then or later; None for all.
        end: only windows that begin before; None for all.
        dimensions: only this text of dimensions, ``*`` for the sum over all; None for every one.
    """

    start: datetime | None = None
    end: datetime | None = None
    dimensions: str | None = None

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Self:
        """Read ``from``, ``to`` (labels of any period, both included) and ``dimensions`` (``os=linux`` or ``*``).

        Raises:
            Problem: query-invalid, naming the parameter: it is unknown, not understood, or a ``from`` after ``to``.
        """
        _refuse_unknown(query)
        first, last = _bound(query, "from"), _bound(query, "to")
        if first is not None and last is not None and first.start >= last.end:
            raise Problem("query-invalid", "must not be after 'to'", "from")
        return cls(
            start=None if first is None else first.start,
            end=None if last is None else last.end,
            dimensions=_dimensions(query.get("dimensions")),
        )

    def takes(self, window: str, dimensions: str) -> bool:
        """Whether an estimate is asked for. A ``once`` window lies in every range."""
        if self.dimensions is not None and dimensions != self.dimensions:
            return False
        found = _interval(window)
        if found is None:
            return True
        return (self.start is None or self.start <= found.start) and (
            self.end is None or found.start < self.end
        )

    def takes_field(self, field: str) -> bool:
        """The same for the field of an estimate; a companion of the worker's script is never asked for."""
        window, _, dimensions = field.partition("|")
        return not field.startswith(_COMPANION) and self.takes(window, dimensions)


def _refuse_unknown(query: Mapping[str, str]) -> None:
    for name in query:
        if name not in _PARAMETERS:
            known = ", ".join(_PARAMETERS)
            field = name if _PLAIN_NAME.fullmatch(name) else "query"
            raise Problem("query-invalid", f"is not a parameter here; known are {known}", field)


def _bound(query: Mapping[str, str], name: str) -> Window | None:
    label = query.get(name)
    if label is None:
        return None
    found = _interval(label) if len(label) <= 16 else None
    if found is None:
        raise Problem(
            "query-invalid", "must be a window such as 2026-11-29, 2026-11-29T13, 2026-W48 or 2026-11", name
        )
    return found


def _dimensions(text: str | None) -> str | None:
    if text is None or text == _ALL_DIMENSIONS:
        return text
    try:
        return dimensions_text(tuple(sorted(parse_dimensions_text(text))))
    except ValueError:
        raise Problem("query-invalid", "must be such as os=linux,channel=beta, or *", "dimensions") from None


def estimates_document(name: str, published: Published, selection: Selection) -> dict[str, object]:
    """The chosen estimates of a metric: each version's own side by side, beside them those over several versions.

    Where the versions cannot be combined there is no combined estimate either, even if an earlier selection of
    versions had one: what is shown never contradicts the rule.
    """
    chosen = [(version, _chosen(version.estimates, selection)) for version in published.versions]
    combined = _chosen(published.combined, selection)
    combination = _combination([version for version, documents in chosen if documents], bool(combined))
    return {
        "metric": name,
        "versions": [
            {
                "version": version.version,
                "params": msgspec.json.decode(version.definition)["params"],
                "estimates": _raw(documents),
            }
            for version, documents in chosen
        ],
        "combined": _raw(combined) if combination.rule is Rule.WEIGHTED else [],
        "combination": combination,
    }


def _raw(documents: Iterable[bytes]) -> list[msgspec.Raw]:
    return [msgspec.Raw(document) for document in documents]


def _combination(versions: Sequence[PublishedVersion], combined: bool) -> Combination:
    """How the versions that have estimates go together, by their stored definitions.

    Args:
        versions: those with an estimate in the selection.
        combined: whether the selection has an estimate over several of them.
    """
    if len(versions) < 2:
        return Combination(Rule.SINGLE, f"{'one' if versions else 'no'} version has estimates here")
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


@lru_cache(_REMEMBERED_DEFINITIONS)
def _question(definition: bytes) -> tuple[tuple[str, ...], str] | None:
    """(labels, period) of an announced version; None where this version of Dither cannot read it."""
    try:
        metric = decode_definition(definition)
    except RegistryError:
        return None
    return metric.labels, metric.period


def _chosen(estimates: Mapping[str, bytes], selection: Selection) -> list[bytes]:
    """Labels of one period sort as text in the order of time."""
    fields = (field.partition("|") for field in estimates if not field.startswith(_COMPANION))
    wanted = sorted(
        (window, dimensions) for window, _, dimensions in fields if selection.takes(window, dimensions)
    )
    return [estimates[f"{window}|{dimensions}"] for window, dimensions in wanted]
