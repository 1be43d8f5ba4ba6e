"""The curves of growth: what each of them measures, and which processes measure them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import growth_cells
import growth_domain
import growth_registry
import growth_reports
from growth_cost import Point
from growth_fit import MOST_EXPONENT, Points, exponent, knee_words, line, upper

SECONDS: Final = "s"
BYTES: Final = "B"


@dataclass(frozen=True)
class Suite:
    """What is measured at each of some sizes, each in a process of its own.

    Attributes:
        key: before the slash of its curves' keys.
        title: for people.
        sizes: what it is measured at; ``quick`` for a short run.
        what: the name of a size, in the plural.
        measure: gives the points of one size.
    """

    key: str
    title: str
    sizes: Sequence[int]
    quick: Sequence[int]
    what: str
    measure: Callable[[int], Iterable[Point]]


SUITES: Final = (
    Suite(
        "reports", "Number of reports (n)", growth_reports.SIZES, growth_reports.QUICK_SIZES, "reports",
        growth_reports.measure,
    ),
    Suite(
        "domain", "Size of the domain (d)", growth_domain.SIZES, growth_domain.QUICK_SIZES, "values",
        growth_domain.measure,
    ),
    Suite(
        "metrics", "Metrics in the registry", growth_registry.SIZES, growth_registry.QUICK_SIZES, "metrics",
        growth_registry.measure,
    ),
    Suite(
        "cells", "Cells (windows x dimensions)", growth_cells.SIZES, growth_cells.QUICK_SIZES, "cells",
        growth_cells.measure,
    ),
    Suite(
        "windows", "Closed windows of a metric", growth_cells.WINDOWS, growth_cells.QUICK_WINDOWS, "windows",
        growth_cells.measure_windows,
    ),
    Suite(
        "combinations", "Combinations of dimensions in a window", growth_cells.COMBINATIONS,
        growth_cells.QUICK_COMBINATIONS, "combinations", growth_cells.measure_combinations,
    ),
)  # fmt: skip

_MECHANISMS: Final = growth_domain.MECHANISMS

TITLES: Final[Mapping[str, tuple[str, str]]] = {
    "reports/worker": ("worker, stream to cells, all of them", SECONDS),
    "reports/worker-store": ("the store meanwhile", SECONDS),
    "reports/worker-memory": ("memory of the process that counts, peak", BYTES),
    "reports/store-memory": ("store, after counting, without remembered ids", BYTES),
    "reports/ids-memory": ("store, remembered batch ids (20 reports a batch)", BYTES),
    "reports/estimate": ("one estimate of the counters", SECONDS),
    **{f"domain/encode {name}": (f"encode a report, {name}", SECONDS) for name in _MECHANISMS},
    **{f"domain/wire {name}": (f"a report's data on the wire, {name}", BYTES) for name in _MECHANISMS},
    **{f"domain/count {name}": (f"count a report, {name}", SECONDS) for name in _MECHANISMS},
    **{f"domain/estimate {name}": (f"estimate a cell, {name}", SECONDS) for name in _MECHANISMS},
    "domain/document": ("a published document", BYTES),
    "domain/publish": ("estimate and write a document", SECONDS),
    "metrics/registry-load": ("read the registry file", SECONDS),
    "metrics/registry-memory": ("the registry in memory", BYTES),
    "metrics/first-record": ("SDK: Client() and first record()", SECONDS),
    "metrics/record": ("SDK: record()", SECONDS),
    "metrics/server-start": ("server: start", SECONDS),
    "metrics/ingest": ("server: one upload of ten reports", SECONDS),
    "metrics/idle-round": ("worker: a round with nothing to do", SECONDS),
    "metrics/busy-round": ("worker: a round with a report about every metric", SECONDS),
    "metrics/status-metrics": ("GET /v1/metrics", SECONDS),
    "metrics/ledger": ("GET /v1/ledger", SECONDS),
    "metrics/status": ("GET /v1/status", SECONDS),
    "metrics/scrape": ("GET /metrics (a scrape)", SECONDS),
    "metrics/overview": ("dashboard: overview", SECONDS),
    "cells/commit": ("worker: count a report about every cell", SECONDS),
    "cells/publish-all": ("worker: publish every cell", SECONDS),
    "cells/count-few": ("worker: count a report about each of ten cells", SECONDS),
    "cells/publish-few": ("worker: publish ten changed cells", SECONDS),
    "cells/idle-round": ("worker: a round with nothing to do", SECONDS),
    "cells/restart": ("worker: start, take over all partitions, look once", SECONDS),
    "cells/worker-memory": ("memory of the process of the worker, ten cells changed, peak", BYTES),
    "cells/store-counters": ("store: counters and accounts", BYTES),
    "cells/store-memory": ("store: counters, accounts and published estimates", BYTES),
    "cells/ledger": ("GET /v1/ledger (a look at conservation)", SECONDS),
    "cells/scrape": ("GET /metrics (a scrape)", SECONDS),
    "cells/window": ("GET estimates of the newest window, 100 cells", SECONDS),
    "cells/history": ("GET estimates of all windows over all dimensions", SECONDS),
    "cells/metric-page": ("dashboard: page of the metric", SECONDS),
    "windows/close": ("worker: one more window closes, with its rollups", SECONDS),
    "combinations/publish-one": ("worker: publish one changed cell", SECONDS),
}
"""By curve: what it is the cost of, and its unit. A unit of seconds is processor time, worker and store together."""


@dataclass(frozen=True)
class Curve:
    """One cost over sizes.

    Attributes:
        key: ``suite/name``.
        points: by rising size.
    """

    key: str
    points: Points

    @property
    def suite(self) -> Suite:
        """What it was measured by."""
        return next(suite for suite in SUITES if suite.key == self.key.partition("/")[0])

    @property
    def exponent(self) -> float:
        """Over the upper half of the sizes."""
        return exponent(upper(self.points))

    def as_json(self) -> dict[str, Any]:
        """The curve as it stands in growth.json."""
        title, unit = TITLES[self.key]
        fitted = line(self.points)
        return {
            "curve": self.key,
            "title": title,
            "unit": unit,
            "size": self.suite.what,
            "points": [[size, float(f"{cost:.4g}")] for size, cost in self.points],
            "exponent": round(self.exponent, 3),
            "faster_than_linear": self.exponent > MOST_EXPONENT,
            "fixed": float(f"{fitted.fixed:.3g}"),
            "each": float(f"{fitted.each:.3g}"),
            "fit_error": round(fitted.error, 3),
            "knee": knee_words(self.points, self.suite.what),
        }


def curves(points: Iterable[Point]) -> Iterator[Curve]:
    """The points by curve, in the order of `TITLES`."""
    found: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        found.setdefault(point.curve, []).append((point.size, point.cost))
    for key in TITLES:
        if len(found.get(key, ())) > 1:
            yield Curve(key, sorted(found[key]))
