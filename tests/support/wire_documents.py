"""The wire form as plain objects, said a second time: what the encoder is compared with, and what is spoilt."""

from typing import Any

from dither_protocol.wire import Report


def report_document(report: Report) -> dict[str, Any]:
    """The JSON object of one report."""
    return {
        "metric": report.metric,
        "version": report.version,
        "params": report.params,
        "window": report.window,
        "dimensions": dict(sorted(report.dimensions.items())),
        "data": report.data,
    }
