"""What a server says became of the reports, and what it published about them, as an operator reads it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dither_fleet.expectation import Cell
from dither_protocol.registry import canonical_dimensions
from dither_protocol.registry.metric import Dimensions

Get = Callable[[str, Mapping[str, str]], Any]
"""The JSON of one GET: path and parameters."""

_TERMS: Final = ("received", "accepted", "counted", "duplicate", "dead", "in_flight")
_PAGE: Final = "1000"


@dataclass(frozen=True)
class Books:
    """The ledger of a server at one moment.

    Attributes:
        terms: reports by metric and term; ``_unknown`` is one of the metrics.
        rejected: rejected reports of all metrics by reason.
        imbalance: reports that are missing or too many.
    """

    terms: Mapping[str, Mapping[str, int]]
    rejected: Mapping[str, int]
    imbalance: int

    @property
    def in_flight(self) -> int:
        """Accepted reports that are not counted yet."""
        return sum(terms["in_flight"] for terms in self.terms.values())


class Place(NamedTuple):
    """What an estimate is about; ``dimensions`` is None for the sum over all."""

    metric: str
    version: int
    window: str
    dimensions: Dimensions | None


Published = Mapping[Place, Mapping[str, Any]]
"""Estimate documents by place."""


@dataclass(frozen=True)
class Snapshot:
    """The books, and the estimates of the windows that a run is about."""

    books: Books
    published: Published


def read_books(get: Get) -> Books:
    """The ledger now."""
    document = get("/v1/ledger", {})
    rejected: dict[str, int] = {}
    for row in document["metrics"]:
        for reason, reports in row["rejected"].items():
            rejected[reason] = rejected.get(reason, 0) + reports
    terms = {row["metric"]: {term: int(row[term]) for term in _TERMS} for row in document["metrics"]}
    return Books(terms, rejected, int(document["imbalance"]))


def read_published(get: Get, cells: Iterable[Cell]) -> dict[Place, Mapping[str, Any]]:
    """Estimates of the metrics and windows of these cells."""
    windows: dict[str, set[str]] = {}
    for cell in cells:
        windows.setdefault(cell.metric, set()).add(cell.window)
    found: dict[Place, Mapping[str, Any]] = {}
    for metric, labels in windows.items():
        for document in _documents(get, metric, labels):
            label = document["window"]["label"]
            if label in labels:
                given = document["dimensions"]
                dimensions = None if given is None else canonical_dimensions(given)
                found[Place(metric, document["version"], label, dimensions)] = document
    return found


def _documents(get: Get, metric: str, labels: set[str]) -> Iterable[Mapping[str, Any]]:
    """All documents from the first of these windows to the last."""
    parameters = {"limit": _PAGE}
    if (
        len({len(label) for label in labels}) == 1 and "once" not in labels
    ):  # of one period: they sort by time
        parameters |= {"from": min(labels), "to": max(labels)}
    cursor: str | None = ""
    while cursor is not None:
        more = {"cursor": cursor} if cursor else {}
        page = get(f"/v1/metrics/{metric}/estimates", parameters | more)
        for version in page["versions"]:
            yield from (document | {"version": version["version"]} for document in version["estimates"])
        cursor = page["next"]


def sent_places(cells: Mapping[Cell, int]) -> dict[Place, int]:
    """Reports by place: of each cell, and of each window over all dimensions."""
    found: dict[Place, int] = {}
    for cell, reports in cells.items():
        everywhere = Place(cell.metric, cell.version, cell.window, None)
        found[everywhere] = found.get(everywhere, 0) + reports
        if cell.dimensions:
            apart = Place(*cell)
            found[apart] = found.get(apart, 0) + reports
    return found
