"""Growth with the size of a domain: what one report, one count, one estimate and one published document cost."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import numpy as np

from dither_client import randomize
from dither_estimator import count_packed, estimate
from dither_estimator.publication import encode_document, estimate_document, window_scope
from dither_fleet import randomize_many
from dither_protocol import mechanism
from dither_protocol.registry import registry_from_document
from growth_cost import Point, cost_each

MECHANISMS: Final = ("grr", "oue", "subset", "olh", "hadamard", "projective")
SIZES: Final = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096)
QUICK_SIZES: Final = (4, 32, 256, 1_024)
_REPORTS: Final = 2_000
_N: Final = 1_000_000
_EPSILON: Final = 1.0
_WINDOW: Final = "2100-01-01"


def measure(d: int) -> Iterator[Point]:
    """The costs of a domain of d values, at epsilon 1, by each mechanism; those of publishing by `oue`."""
    values = np.random.default_rng(1).integers(0, d, _REPORTS)
    for name in MECHANISMS:
        oracle = mechanism(name, _EPSILON, d)
        wire = list(randomize_many(oracle, values))
        packed = b"".join(map(oracle.pack, wire))
        counters, n = count_packed(oracle, packed)
        many = np.asarray(counters) * (_N // n)
        if name == "grr":  # of so few reports many values have none, as of many reports no value would
            many = np.random.default_rng(2).multinomial(_N, [1 / d] * d)
        yield Point(f"domain/encode {name}", d, cost_each(partial(randomize, oracle, d // 2)))
        counting = cost_each(partial(count_packed, oracle, packed))
        yield Point(f"domain/count {name}", d, counting / n)
        decoding = cost_each(partial(estimate, oracle, many, _N))
        yield Point(f"domain/estimate {name}", d, decoding)
        yield Point(f"domain/wire {name}", d, sum(len(json.dumps(data)) for data in wire) / len(wire))
        if name == "oue":
            yield from _published(d, many)


def _published(d: int, counters: Any) -> Iterator[Point]:
    document = {
        "schema": 1,
        "project": "growth",
        "metrics": {
            "m": {
                "version": 1,
                "type": "categorical",
                "description": "Something with many values",
                "categories": [f"value {i}" for i in range(d)],
                "epsilon": _EPSILON,
                "mechanism": "oue",
            }
        },
    }
    metric = registry_from_document(document).metrics["m"]
    window = metric.parse_window(_WINDOW)
    scope = window_scope(window, datetime(2100, 1, 5, tzinfo=UTC), final=False)

    def text() -> str:
        return encode_document(estimate_document(metric, scope, None, counters, _N))

    yield Point("domain/document", d, len(text()))
    yield Point("domain/publish", d, cost_each(text))
