"""Published estimates as CSV, one row for each value, each with all that it must not be shown without. Pure."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

from dither_protocol.storage import dimensions_text
from dither_server.documents import Estimate

COLUMNS: Final = (
    "metric", "versions", "window", "start", "end", "dimensions", "status", "final", "revision", "watermark", "n",
    "mechanism", "epsilon", "target", "level", "simultaneous", "value", "estimate", "std_error", "lower", "upper",
    "interval_method", "norm_sub", "present",
)  # fmt: skip

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def estimates_csv(estimates: Iterable[Estimate]) -> str:
    """The rows of all estimates below one header (RFC 4180). A suppressed estimate has one row without a value."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for estimate in estimates:
        writer.writerows(_rows(estimate))
    return text.getvalue()


def _rows(estimate: Estimate) -> Iterator[list[object]]:
    dimensions = tuple(sorted((estimate.dimensions or {}).items()))
    head: list[object] = [
        estimate.metric,
        " ".join(map(str, estimate.versions)) or estimate.version,
        estimate.window.label,
        estimate.window.start.isoformat(),
        estimate.window.end.isoformat(),
        "*" if estimate.dimensions is None else _text(dimensions_text(dimensions)),
        estimate.status,
        estimate.final,
        estimate.revision,
        estimate.watermark and estimate.watermark.isoformat(),
        estimate.n,
        " ".join(name for name, _ in estimate.mechanisms),
        " ".join(str(epsilon) for _, epsilon in estimate.mechanisms),
        estimate.target,
        estimate.level,
        estimate.simultaneous,
    ]
    for value in estimate.values:
        yield [
            *head,
            _text(value.value),
            value.estimate,
            value.std_error,
            *value.interval,
            value.interval_method,
            value.norm_sub,
            value.present,
        ]
    if not estimate.values:
        yield [*head, *[""] * (len(COLUMNS) - len(head))]


def _text(text: str) -> str:
    """A text that no spreadsheet takes for a formula: such a one gets an apostrophe before it."""
    return f"'{text}" if text.startswith(_FORMULA) else text
