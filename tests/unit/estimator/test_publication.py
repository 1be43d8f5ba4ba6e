"""The published document."""

import json

import numpy as np
import pytest

from dither_estimator import estimate
from dither_estimator.publication import (
    Scope,
    as_final,
    combined_document,
    encode_document,
    estimate_document,
    rollup_scope,
    window_scope,
)
from dither_protocol.registry import Metric, registry_from_document
from support.registries import small_document, small_registry


def _scope(metric: Metric, label: str, *, final: bool = False) -> Scope:
    window = metric.parse_window(label)
    return window_scope(window, metric.closes_at(window), final=final)


def test_an_estimate_is_never_shown_without_what_it_needs() -> None:
    """Window, n, mechanism, epsilon, target, level, method, standard error and interval stand beside it (C3)."""
    metric = small_registry().metric("color")
    scope = _scope(metric, "2026-W48")
    counters = np.array([400, 300, 150, 70, 60], dtype=np.int64)
    document = json.loads(
        encode_document(estimate_document(metric, scope, (("os", "linux"),), counters, 1000))
    )
    values, total = document.pop("values"), document.pop("support_total")
    assert (total["total"], total["flagged"]) == (980, False)
    assert document == {
        "metric": "color",
        "version": 2,
        "versions": [2],
        "window": {"label": "2026-W48", "start": "2026-11-23T00:00:00Z", "end": "2026-11-30T00:00:00Z"},
        "dimensions": {"os": "linux"},
        "status": "open",
        "final": False,
        "closes": "2026-12-03T00:00:00Z",
        "n": 1000,
        "min_reports": 1,
        "mechanism": "oue",
        "epsilon": 2.0,
        "p": metric.mechanism.p,
        "q": metric.mechanism.q,
        "target": "population",
        "level": 0.95,
        "simultaneous": False,
    }
    result = estimate(metric.mechanism, counters, 1000)
    assert [row["support"] for row in values] == counters.tolist()
    assert [row["value"] for row in values] == list(metric.labels)
    assert [row["estimate"] for row in values] == result.estimate.tolist()
    assert [row["interval"] for row in values] == list(
        map(list, zip(result.lower.tolist(), result.upper.tolist(), strict=True))
    )
    assert {row["interval_method"] for row in values} == {"wilson"}
    assert min(row["estimate"] for row in values) < 0.01


def test_negative_estimates_are_published_as_they_are() -> None:
    """Clipping is for displays: the document keeps what is below zero, with an interval that is no point (C4)."""
    metric = small_registry().metric("color")
    counters = np.array([900, 0, 50, 500, 60], dtype=np.int64)
    document = estimate_document(metric, _scope(metric, "2026-W48"), None, counters, 1000)
    row = document["values"][1]
    assert row["estimate"] < 0
    assert row["interval"][0] < row["interval"][1]
    assert document["dimensions"] is None


def test_too_few_reports_are_suppressed_and_said_to_be() -> None:
    """One report below min_reports: no values, a status that says why; at min_reports there are values."""
    document = small_document()
    document["metrics"]["dark_mode"]["min_reports"] = 100
    metric = registry_from_document(document).metric("dark_mode")
    for final, status in ((False, "open"), (True, "final")):
        scope = _scope(metric, "2026-11-29", final=final)
        below = estimate_document(metric, scope, None, np.array([50, 49]), 99)
        assert (below["status"], below["values"], below["n"]) == ("suppressed", [], 99)
        at = estimate_document(metric, scope, None, np.array([50, 50]), 100)
        assert (at["status"], len(at["values"])) == (status, 2)
        assert below["final"] is at["final"] is final


def test_a_suppressed_estimate_tells_nothing_of_its_counters() -> None:
    """Whatever they are, the document is the same."""
    document = small_document()
    document["metrics"]["dark_mode"]["min_reports"] = 100
    metric = registry_from_document(document).metric("dark_mode")
    scope = _scope(metric, "2026-11-29")
    texts = {
        encode_document(estimate_document(metric, scope, None, np.array([yes, 99 - yes]), 99))
        for yes in (0, 42, 99)
    }
    assert len(texts) == 1


def test_a_final_document_differs_in_nothing_but_that() -> None:
    """What becomes final later is what would have been final at once; what is suppressed stays so."""
    metric = small_registry().metric("dark_mode")
    for n in (0, 9):
        documents = [
            estimate_document(metric, _scope(metric, "2026-11-29", final=final), None, np.array([n, 0]), n)
            for final in (False, True)
        ]
        assert as_final(documents[0]) == documents[1] == as_final(documents[1])
        assert documents[0]["final"] is False


def test_nan_is_refused_rather_than_written() -> None:
    """No JSON of ours ever has NaN."""
    with pytest.raises(ValueError, match="JSON"):
        encode_document({"estimate": float("nan")})


def _versions(min_reports: int) -> dict[int, Metric]:
    found = {}
    for version in (1, 2, 3):
        document = small_document()
        document["metrics"]["color"] |= {"version": version, "min_reports": min_reports}
        found[version] = registry_from_document(document).metric("color")
    return found


def test_a_version_with_too_few_reports_is_left_out_of_the_combination() -> None:
    """Two of three have enough: these two are combined, and named; with one alone there is nothing to combine."""
    metrics = _versions(min_reports=10)
    scope = _scope(metrics[1], "2026-W48", final=True)
    counters = np.array([9, 5, 4, 3, 2])
    parts = {version: (counters, metric, 9 if version == 3 else 12) for version, metric in metrics.items()}
    document = combined_document(scope, parts)
    assert document is not None
    assert (document["versions"], document["n"], document["status"]) == ([1, 2], 24, "final")
    assert [part["version"] for part in document["parts"]] == [1, 2]
    few = {version: (counters, metric, 9 if version > 1 else 12) for version, metric in metrics.items()}
    assert combined_document(scope, few) is None


def test_a_rollup_says_which_windows_it_is_over() -> None:
    """First and last label, how many had reports, the whole interval, and the target that it is right for."""
    metric = small_registry().metric("color")
    windows = [metric.parse_window(f"2026-W{week}") for week in (46, 47, 48)]
    scope = rollup_scope(windows, metric.closes_at(windows[-1]), with_reports=2)
    document = estimate_document(metric, scope, None, np.array([400, 300, 250, 200, 120]), 1000)
    assert document["rollup"] == 3
    assert document["windows"] == {"first": "2026-W46", "last": "2026-W48", "with_reports": 2}
    assert document["window"] == {
        "label": "2026-W46/2026-W48",
        "start": "2026-11-09T00:00:00Z",
        "end": "2026-11-30T00:00:00Z",
    }
    assert (document["status"], document["final"], document["target"]) == ("final", True, "reporters")
    result = estimate(metric.mechanism, np.array([400, 300, 250, 200, 120]), 1000, target="reporters")
    assert [row["std_error"] for row in document["values"]] == result.std_error.tolist()
