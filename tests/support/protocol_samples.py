"""What several tests of the protocol room need: a small registry, and a check that errors keep quiet."""

import copy
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dither_protocol import Metric, registry_from_document

MARKER = "zebra4711"
"""Stands for a raw value in bad input. Never written out in a test, since a traceback prints source lines."""

_DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "project": "example-editor",
    "privacy": {"max_epsilon_per_day": 8.0, "max_epsilon_lifetime": 200},
    "metrics": {
        "browser": {
            "version": 2,
            "type": "categorical",
            "description": "Browser that opens links",
            "owner": "telemetry@example.org",
            "expires": "2027-06-30",
            "categories": ["chrome", "firefox", "other"],
            "epsilon": 1.0,
            "mechanism": "grr",
            "period": "day",
            "collection": "fresh",
            "dimensions": {"os": ["linux", "macos", "windows"], "channel": ["stable", "beta"]},
            "min_reports": 100,
            "late_days": 3,
            "use_case": "product_analytics",
        },
        "dark_mode": {
            "version": 1,
            "type": "boolean",
            "description": "Is the dark theme on?",
            "epsilon": 2,
            "mechanism": "rr",
            "period": "hour",
        },
    },
}


def document() -> dict[str, Any]:
    """A fresh registry in its JSON form; the metric ``browser`` has every key, ``dark_mode`` the fewest."""
    return copy.deepcopy(_DOCUMENT)


def browser_with(**changes: object) -> dict[str, Any]:
    """The registry with keys of ``browser`` set; a key set to None is left out."""
    changed = document()
    table = changed["metrics"]["browser"]
    table.update(changes)
    changed["metrics"]["browser"] = {key: value for key, value in table.items() if value is not None}
    return changed


def browser(**changes: object) -> Metric:
    """The metric ``browser`` with keys set."""
    return registry_from_document(browser_with(**changes)).metric("browser")


@contextmanager
def refused(kind: type[Exception], says: str, secret: object = MARKER) -> Iterator[pytest.ExceptionInfo[Any]]:
    """The block raises ``kind`` with ``says`` in its message, and nothing about it repeats ``secret``.

    Looked at are the message, the repr, the arguments, and the traceback as Python prints it, which shows
    an inner error unless it was suppressed.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert says in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    printed = "".join(traceback.format_exception_only(error)) + "".join(traceback.format_exception(error))
    for shown in (str(error), repr(error), repr(error.args), repr(vars(error)), printed):
        assert str(secret) not in shown
