"""What the little programs of the SDK's process tests have in common: a registry of many questions, and a client.

Question number n is metric ``q<n // 1000>`` with dimension ``slot`` = n % 1000, so each number is a ledger row and a
cell of its own: whatever arrives twice, or not at all, can be named. The reports are 256 random bits, so two equal
ones are two reports that share randomness.
"""

import os
from datetime import UTC, datetime
from functools import cache
from typing import Any

from dither_client import Client, RecordResult
from dither_protocol.registry import Registry, registry_from_document

INGEST_KEY = "ingest_test"
PERIOD = "month"
METRICS = 6
CATEGORIES = [f"c{index}" for index in range(256)]
SLOTS = [f"s{index}" for index in range(1_000)]


def document(metrics: int = METRICS) -> dict[str, Any]:
    """The registry, as an app would bundle it."""
    metric = {
        "version": 1,
        "type": "categorical",
        "description": "A question with many cells",
        "categories": CATEGORIES,
        "epsilon": 0.5,
        "mechanism": "oue",
        "period": PERIOD,
        "dimensions": {"slot": SLOTS},
        "min_reports": 1,
    }
    return {"schema": 1, "project": "sdk-app", "metrics": {f"q{index}": metric for index in range(metrics)}}


@cache
def registry() -> Registry:
    """`document` as a registry."""
    return registry_from_document(document())


def question(number: int) -> tuple[str, dict[str, str]]:
    """Metric and dimensions of a question."""
    return f"q{number // 1_000}", {"slot": SLOTS[number % 1_000]}


def number_of(report: dict[str, Any]) -> int:
    """The question that a report answers."""
    return int(report["metric"][1:]) * 1_000 + int(report["dimensions"]["slot"][1:])


def fixed_clock() -> datetime:
    """The instant at which the program began: no window may end in the middle of a test."""
    return _STARTED


_STARTED = datetime.now(UTC)


def make_client(url: str | None = None, state_dir: str | None = None, **settings: Any) -> Client:
    """A client with no delay; endpoint and state directory are those of the environment where not given."""
    settings = {"ingest_key": INGEST_KEY, "delay_s": 0, "clock": fixed_clock} | settings
    state = state_dir if state_dir is not None else os.environ.get("SDK_STATE_DIR")
    return Client(url or os.environ["SDK_URL"], registry(), state_dir=state, **settings)


def ask(client: Client, number: int) -> RecordResult:
    """Answer a question."""
    metric, dimensions = question(number)
    return client.record(metric, CATEGORIES[number % 256], dimensions)
