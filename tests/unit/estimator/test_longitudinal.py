"""Several memoised reports of one device: the design effect, and estimates that are widened by it."""

import json
from typing import Any

import numpy as np
import pytest

from dither_estimator import EstimationError, estimate
from dither_estimator.longitudinal import design_effect, estimate_repeated, std_error_floor, widened
from dither_estimator.plan import plan_document
from dither_estimator.publication import (
    combined_document,
    encode_document,
    estimate_document,
    rollup_scope,
    window_scope,
)
from dither_estimator.serving import restate
from dither_protocol.mechanisms import Memoized, mechanism, memoized
from dither_protocol.registry import Metric, registry_from_document
from dither_protocol.windows import windows_until
from support.memo import memo_document

NAMES = pytest.mark.parametrize("name", ["grr", "sue", "oue"])
COUNTERS = np.array([900, 700, 300, 250, 200], dtype=np.int64)
N = 2_000


def _metric(name: str = "oue", **keys: Any) -> Metric:
    return registry_from_document(memo_document(name, **keys)).metric("mood")


def _chain(name: str) -> Memoized:
    return memoized(name, 1.0, 5, 2.0)


@NAMES
def test_the_design_effect_lies_between_one_and_the_repeats(name: str) -> None:
    """One report each: 1. It grows with the repeats, and never by more than they do."""
    effects = [design_effect(_chain(name), repeats) for repeats in (1, 2, 7, 90, 10_000)]
    assert effects[0] == 1.0
    assert effects == sorted(set(effects))
    assert all(effect <= repeats for effect, repeats in zip(effects, (1, 2, 7, 90, 10_000), strict=True))


@NAMES
def test_many_reports_are_worth_the_permanent_answers(name: str) -> None:
    """N reports of n/r devices: the standard error tends to the floor of these devices, from above."""
    chain = _chain(name)
    for share in (0.0, 0.3):
        counters = np.full(5, 0, dtype=np.int64)
        for repeats in (10, 1_000, 100_000):
            n = 400 * repeats
            counters = np.rint(np.full(5, n * (chain.q + share * chain.gap))).astype(np.int64)
            error = estimate_repeated(chain, counters, n, repeats).std_error[0]
            assert error > std_error_floor(chain, 400, share) * (1 - 1e-6)
        assert error == pytest.approx(std_error_floor(chain, 400, share), rel=1e-3)


@NAMES
def test_one_report_each_changes_nothing(name: str) -> None:
    """And the estimate itself is never changed."""
    chain = _chain(name)
    counters = COUNTERS if name != "grr" else COUNTERS - 70
    n = int(counters.sum()) if name == "grr" else N
    plain = estimate(chain, counters, n, target="reporters")
    assert estimate_repeated(chain, counters, n, 1).lower.tolist() == plain.lower.tolist()
    wide = estimate_repeated(chain, counters, n, 7)
    assert wide.estimate.tolist() == plain.estimate.tolist()
    assert (wide.n, wide.supporters.tolist()) == (n, plain.supporters.tolist())
    assert (wide.lower < plain.lower).all()
    assert (wide.upper > plain.upper).all()
    assert (wide.std_error > plain.std_error).all()


def test_the_extremes_are_no_special_case() -> None:
    """No report, one report, no support and full support: finite intervals that hold the estimate."""
    chain = _chain("grr")
    for counters, n in (([0] * 5, 0), ([1, 0, 0, 0, 0], 1), ([7, 0, 0, 0, 0], 7)):
        found = estimate_repeated(chain, np.array(counters), n, 90)
        assert np.isfinite([found.lower, found.upper, found.std_error]).all()
        assert ((found.lower <= found.estimate) & (found.estimate <= found.upper)).all()


@pytest.mark.parametrize("repeats", [0, -1, 1.5, True])
def test_repeats_are_a_whole_number(repeats: Any) -> None:
    """From one."""
    with pytest.raises(EstimationError, match="repeats"):
        estimate_repeated(_chain("grr"), [1, 0, 0, 0, 0], 1, repeats)


def _rollup(metric: Metric, windows: int) -> Any:
    last = metric.parse_window("2026-11-29")
    return rollup_scope(windows_until(last, windows), metric.closes_at(last), windows)


def test_documents_say_the_floor_and_the_guarantees() -> None:
    """Of one window: one report each. Over several: the total of supports has no known spread."""
    metric = _metric()
    window = metric.parse_window("2026-11-29")
    one = estimate_document(
        metric, window_scope(window, metric.closes_at(window), final=True), None, COUNTERS, N
    )
    over = estimate_document(metric, _rollup(metric, 7), None, COUNTERS, N)
    assert (one["memoized"]["repeats"], over["memoized"]["repeats"]) == (1, 7)
    assert one["support_total"] is not None
    assert over["support_total"] is None
    assert over["memoized"]["std_error_floor"] == pytest.approx(7**0.5 * one["memoized"]["std_error_floor"])
    assert [each["about"] for each in one["memoized"]["guarantees"]] == ["report", "life", "reports"]
    fresh = registry_from_document(
        memo_document("oue", collection=None, epsilon_permanent=None, max_distinct_values=None)
    ).metric("mood")
    assert "memoized" not in estimate_document(fresh, _rollup(fresh, 7), None, COUNTERS, N)


@pytest.mark.parametrize("simultaneous", [False, True])
@pytest.mark.parametrize("windows", [1, 7])
def test_another_level_is_widened_alike(windows: int, simultaneous: bool) -> None:
    """From the published document alone."""
    metric = _metric()
    document = json.loads(
        encode_document(estimate_document(metric, _rollup(metric, windows), None, COUNTERS, N))
    )
    found = restate(document, 0.8, simultaneous=simultaneous)
    assert found is not None
    chain = metric.mechanism
    assert isinstance(chain, Memoized)
    plain = estimate(chain, COUNTERS, N, 0.8, "reporters", simultaneous=simultaneous)
    truth = widened(plain, chain, windows)
    assert [row["interval"] for row in found["values"]] == [
        list(pair) for pair in zip(truth.lower.tolist(), truth.upper.tolist(), strict=True)
    ]


def test_versions_are_combined_from_widened_parts() -> None:
    """A new version, whose permanent answers are new ones: wider than fresh reports would give, and restated alike."""
    metrics = [_metric(version=version) for version in (1, 2)]
    parts = {metric.version: (COUNTERS, metric, N) for metric in metrics}
    wide = combined_document(_rollup(metrics[0], 7), parts)
    narrow = combined_document(_rollup(metrics[0], 1), parts)
    assert wide is not None
    assert narrow is not None
    for far, near in zip(wide["values"], narrow["values"], strict=True):
        assert far["estimate"] == near["estimate"]
        assert far["interval"][0] < near["interval"][0] < near["interval"][1] < far["interval"][1]
    assert restate(wide, 0.95, simultaneous=False) == wide


@NAMES
def test_plans_name_the_floor(name: str) -> None:
    """At each number of devices and share; a fresh metric has none."""
    chain = _chain(name)
    answer = plan_document(chain, [1_000], 0.05, 0.95)
    assert answer["memoized"]["epsilon_permanent"] == 2.0
    assert (answer["memoized"]["epsilon_second_round"] is None) == (name != "grr")
    for floor, row in zip(answer["memoized"]["floors"], answer["plans"][0]["precision"], strict=True):
        assert floor["std_error"] == pytest.approx((chain.n_floor(floor["share"]) / 1_000) ** 0.5)
        assert floor["std_error"] < row["std_error"]
    assert "memoized" not in plan_document(mechanism(name, 1.0, 5), [1_000], None, 0.95)
