"""What servers ask for beyond what is published."""

import json
from typing import Any

import numpy as np
import pytest

from dither_estimator import estimate
from dither_estimator.combination import combine
from dither_estimator.publication import (
    combined_document,
    encode_document,
    estimate_document,
    value_rows,
    window_scope,
)
from dither_estimator.serving import restate
from dither_protocol.mechanisms import MECHANISMS
from dither_protocol.registry import Metric, registry_from_document
from support.exact_draws import draw_counters
from support.registries import small_document

LEVELS = (0.6, 0.95, 0.999)


def _metric(name: str = "oue", version: int = 1) -> Metric:
    document = small_document()
    values = ["yes", "no"] if name == "rr" else [f"value {number}" for number in range(6)]
    document["metrics"]["color"] |= {"mechanism": name, "version": version, "categories": values}
    return registry_from_document(document).metric("color")


def _published(metric: Metric, counters: Any, n: int) -> dict[str, Any]:
    window = metric.parse_window("2026-W48")
    scope = window_scope(window, metric.closes_at(window), final=True)
    found: dict[str, Any] = json.loads(encode_document(estimate_document(metric, scope, None, counters, n)))
    return found


@pytest.mark.parametrize("simultaneous", [False, True])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_another_level_is_what_the_estimator_gives_for_it(
    name: str, level: float, simultaneous: bool
) -> None:
    """To the last bit, for every mechanism, from the published document alone."""
    metric = _metric(name)
    holders = np.array([[300, 100] + [7] * (metric.mechanism.d - 2)])
    counters, n = draw_counters(metric.mechanism, holders, np.random.default_rng(1))[0], int(holders.sum())
    document = _published(metric, counters, n)
    found = restate(document, level, simultaneous=simultaneous)
    assert found is not None
    truth = estimate(metric.mechanism, counters, n, level, simultaneous=simultaneous)
    assert found["values"] == value_rows(metric.labels, truth)
    changed = {"values", "level", "simultaneous"}
    assert {key: value for key, value in found.items() if key not in changed} == {
        key: value for key, value in document.items() if key not in changed
    }
    assert (found["level"], found["simultaneous"]) == (level, simultaneous)


def test_the_published_level_gives_the_published_document() -> None:
    """Nothing is lost on the way through JSON."""
    metric = _metric()
    document = _published(metric, np.array([300, 200, 100, 120, 110, 90]), 500)
    assert restate(document, 0.95, simultaneous=False) == document


@pytest.mark.parametrize("level", LEVELS)
def test_versions_are_combined_anew(level: float) -> None:
    """By the same rule, from the counts of each part; simultaneous intervals over versions there are none."""
    metrics = {1: _metric("oue", 1), 2: _metric("grr", 2)}
    counters = {1: np.array([300, 200, 100, 120, 110, 90]), 2: np.array([200, 100, 50, 40, 60, 50])}
    window = metrics[1].parse_window("2026-W48")
    scope = window_scope(window, metrics[1].closes_at(window), final=True)
    document = combined_document(
        scope, {version: (counters[version], metrics[version], 500) for version in (1, 2)}
    )
    assert document is not None
    document = json.loads(encode_document(document))
    found = restate(document, level, simultaneous=False)
    truth = combine(
        [estimate(metrics[version].mechanism, counters[version], 500, level) for version in (1, 2)]
    )
    assert found is not None
    assert found["values"] == value_rows(metrics[1].labels, truth)
    assert restate(document, level, simultaneous=True) is None


def test_a_document_without_counts_is_left_alone() -> None:
    """One of an earlier version, or of a mechanism with other numbers here; a suppressed one only says the level."""
    document = _published(_metric(), np.array([300, 200, 100, 120, 110, 90]), 500)
    assert restate(document | {"p": 0.4}, 0.9, simultaneous=False) is None
    assert restate(document | {"mechanism": "later"}, 0.9, simultaneous=False) is None
    for row in document["values"]:
        del row["support"]
    assert restate(document, 0.9, simultaneous=False) is None
    assert restate(document | {"values": []}, 0.9, simultaneous=True) == document | {
        "values": [],
        "level": 0.9,
        "simultaneous": True,
    }
