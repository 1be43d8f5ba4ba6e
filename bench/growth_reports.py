"""Growth with the number of reports: from the stream to the cells, and the estimate of what they hold."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from dither_estimator import count_packed, estimate
from dither_fleet import randomize_many
from dither_protocol.registry import registry_from_document
from growth_cost import Point, cost, cost_each
from growth_parts import Ground, count_all, ground, worker_peak_bytes
from own_store import used_bytes

SIZES: Final = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
QUICK_SIZES: Final = (1_000, 10_000, 100_000)
_D: Final = 128
_PER_BATCH: Final = 20
_DIFFERENT_BATCHES: Final = 500
_WINDOW: Final = "2100-01-01"
_DOCUMENT: Final[dict[str, Any]] = {
    "schema": 1,
    "project": "growth",
    "metrics": {
        "m": {
            "version": 1,
            "type": "categorical",
            "description": "Something with many values",
            "categories": [f"value {i}" for i in range(_D)],
            "epsilon": 1.0,
            "mechanism": "oue",
        }
    },
}


def measure(reports: int) -> Iterator[Point]:
    """The costs of so many reports of `oue`, d = 128, in batches of 20 about one cell."""
    registry = registry_from_document(_DOCUMENT)
    oracle = registry.metrics["m"].mechanism
    values = np.random.default_rng(1).integers(0, _D, _DIFFERENT_BATCHES * _PER_BATCH)
    packed = [oracle.pack(data) for data in randomize_many(oracle, values)]
    batches = [packed[start : start + _PER_BATCH] for start in range(0, len(packed), _PER_BATCH)]
    with ground(registry, _DOCUMENT) as store:
        empty = _bytes_besides_ids(store)
        _fill(store, batches, reports)
        with store.worker() as worker:
            took = cost(lambda: count_all(worker), store.redis)
        yield Point("reports/worker", reports, took.own_s)
        yield Point("reports/worker-store", reports, took.store_s)
        yield Point("reports/store-memory", reports, _bytes_besides_ids(store) - empty)
        yield Point("reports/ids-memory", reports, _bytes_of_ids(store))
        _fill(store, batches, reports)
        yield Point("reports/worker-memory", reports, worker_peak_bytes(store))
    counters, n = count_packed(oracle, b"".join(packed))
    many = counters * (reports / n)  # as they would be after so many
    yield Point(
        "reports/estimate", reports, cost_each(lambda: estimate(oracle, many.astype(np.int64), reports))
    )


def _fill(store: Ground, batches: Sequence[list[bytes]], reports: int) -> None:
    """So many reports into the streams."""
    cell = f"m:1:{_WINDOW}:"
    store.admit([(cell, batches[place % len(batches)])] for place in range(reports // _PER_BATCH))


def _bytes_of_ids(store: Ground) -> float:
    """What the sets of remembered batch ids take; they expire with the last day of their batches."""
    keys = list(store.redis.scan_iter("dither:{*}:seen:*", count=1_000))
    return float(sum(store.redis.memory_usage(key, samples=0) or 0 for key in keys))


def _bytes_besides_ids(store: Ground) -> float:
    return used_bytes(store.redis) - _bytes_of_ids(store)
