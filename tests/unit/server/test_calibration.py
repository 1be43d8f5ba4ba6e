"""Calibration metrics on the server: what chance explains, the alarm, and the figures of quality."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.special import bdtr, bdtrc

from dither_estimator import count
from dither_estimator.publication import encode_document, estimate_document, window_scope
from dither_fleet import randomize_many
from dither_protocol import mechanism
from dither_protocol.registry import Metric, registry_from_document
from dither_protocol.utility import predicted_utility, real_utility
from dither_server.alarms import METRIC_KINDS, Kind, Level, metric_alarms
from dither_server.calibration import FALSE_ALARM, binomial_tail_bound, calibration_of
from dither_server.conservation import Terms
from dither_server.documents import Estimate, read_estimates
from dither_server.latest import Latest
from dither_server.quality import utility
from dither_server.series import calibration_series

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SHARES = (0.5, 0.3, 0.15, 0.05)
DAYS = ("2026-11-27", "2026-11-28", "2026-11-29")


def _metric(**changes: Any) -> Metric:
    table = {
        "version": 1, "type": "categorical", "description": "d", "categories": ["a", "b", "c", "d"],
        "epsilon": 1.0, "mechanism": "grr", "calibration": list(SHARES),
    } | changes  # fmt: skip
    table = {key: value for key, value in table.items() if value is not None}
    return registry_from_document({"schema": 1, "project": "p", "metrics": {"m": table}}).metrics["m"]


def _estimates(metric: Metric, made: Any, shares: Any = SHARES, n: int = 4_000) -> list[Estimate]:
    """Published estimates of three windows, from real reports of a mechanism ``made``."""
    generator = np.random.default_rng(7)
    texts = []
    for day in DAYS:
        window = metric.parse_window(day)
        held = generator.choice(4, size=n, p=shares).astype(np.int64)
        counters, counted = count(made, randomize_many(made, held))
        scope = window_scope(window, metric.closes_at(window), final=True)
        texts.append(encode_document(estimate_document(metric, scope, None, counters, counted)))
    found, damaged = read_estimates([text.encode() for text in texts])
    assert damaged == 0
    return found


@pytest.mark.parametrize(("n", "pi"), [(1, 0.3), (40, 0.02), (1_000, 0.27), (10**6, 0.5), (10**9, 0.1)])
def test_the_bound_is_above_the_tail_and_close_to_it(n: int, pi: float) -> None:
    """On both sides; where the tail is a false alarm, at most a tenth above it."""
    mean, spread = n * pi, (n * pi * (1 - pi)) ** 0.5
    for steps in (-7, -5, -1, 0, 1, 5, 7, 12):
        number = min(n, max(0, round(mean + steps * spread)))
        tail = bdtrc(number - 1, n, pi) if number > mean else bdtr(number, n, pi)
        found = binomial_tail_bound(number, n, pi)
        assert found >= min(1.0, tail) * (1 - 1e-5)
        if 1e-200 < tail < FALSE_ALARM:
            assert found < 1.1 * tail


def test_a_fault_far_beyond_is_no_error() -> None:
    """Probabilities below the smallest double are zero."""
    assert binomial_tail_bound(10**6, 10**6, 0.5) == 0.0
    assert binomial_tail_bound(0, 10**6, 0.5) == 0.0


def test_honest_reports_ring_nothing() -> None:
    """Real noise by the declared mechanism, over three windows."""
    metric = _metric()
    estimates = _estimates(metric, metric.mechanism)
    found = calibration_of(metric, estimates)
    assert found is not None
    assert found.missed == []
    assert (found.values, list(found.windows)) == (12, list(DAYS))
    assert found.covered >= 5  # fewer in one of 10^6 runs
    assert metric_alarms(metric, estimates[-1], Terms(), NOW, estimates) == []


@pytest.mark.parametrize("epsilon", [0.8, 1.2])
def test_devices_with_another_p_and_q_ring(epsilon: float) -> None:
    """A fifth more or less of epsilon on the devices than the estimator debiases with."""
    metric = _metric()
    estimates = _estimates(metric, mechanism("grr", epsilon, 4), n=40_000)
    found = calibration_of(metric, estimates)
    assert found is not None
    assert found.missed[0] == "a"
    (alarm,) = metric_alarms(metric, estimates[-1], Terms(), NOW, estimates)
    assert (alarm.level, alarm.kind) == (Level.BAD, Kind.CALIBRATION)
    assert "over 3 windows" in alarm.text
    assert Kind.CALIBRATION in METRIC_KINDS


def test_a_wrong_debias_rings() -> None:
    """The counts are right, and the published shares too near to each other: as a wrong p - q would do it."""
    metric = _metric()
    estimates = _estimates(metric, metric.mechanism, n=40_000)
    moved = [
        msgspec.structs.replace(
            each,
            values=[
                msgspec.structs.replace(row, estimate=row.estimate + 0.2 * (0.25 - row.estimate))
                for row in each.values
            ],
        )
        for each in estimates
    ]
    right, wrong = calibration_of(metric, estimates), calibration_of(metric, moved)
    assert right is not None
    assert wrong is not None
    assert (list(right.missed), wrong.missed[0]) == ([], "a")


def test_the_limit_is_one_in_a_million_over_all_values_and_both_sides() -> None:
    """The first count that rings is the first whose bound is below an eighth of it: four values, two sides."""
    metric, n = _metric(), 4_000
    estimate = _estimates(metric, metric.mechanism)[0]
    oracle = metric.mechanism
    pi = oracle.q + SHARES[0] * oracle.gap
    first = next(
        number
        for number in range(round(n * pi) + 1, n)
        if binomial_tail_bound(number, n, pi) < FALSE_ALARM / 8
    )
    for number, missed in ((first - 1, []), (first, ["a"])):
        share = (number / n - oracle.q) / oracle.gap
        rows = [msgspec.structs.replace(estimate.values[0], estimate=share)]
        rows += [
            msgspec.structs.replace(row, estimate=share)
            for row, share in zip(estimate.values[1:], SHARES[1:], strict=True)
        ]
        found = calibration_of(metric, [msgspec.structs.replace(estimate, values=rows)])
        assert found is not None
        assert list(found.missed) == missed


def test_another_truth_rings() -> None:
    """Devices that answer by other shares than the registry's."""
    metric = _metric()
    found = calibration_of(metric, _estimates(metric, metric.mechanism, (0.35, 0.35, 0.25, 0.05)))
    assert found is not None
    assert "a" in found.missed


def test_what_cannot_be_judged_is_left_out() -> None:
    """A metric that asks people, no estimate, a suppressed one, one of another version or over several windows."""
    metric = _metric()
    estimates = _estimates(metric, metric.mechanism)
    assert calibration_of(_metric(calibration=None), estimates) is None
    assert calibration_of(metric, []) is None
    for changes in (
        {"status": "suppressed"},
        {"version": 2},
        {"rollup": 7},
        {"values": estimates[0].values[:3]},
    ):
        assert calibration_of(metric, [msgspec.structs.replace(estimates[0], **changes)]) is None
    assert metric_alarms(_metric(calibration=None), None, Terms(), NOW, estimates) == []


def test_the_series_say_how_many_cover() -> None:
    """One pair for each calibration metric that has estimates; none for a metric that asks people."""
    metric = _metric()
    estimates = _estimates(metric, metric.mechanism)
    registry = registry_from_document(
        {"schema": 1, "project": "p", "metrics": {"m": {
            "version": 1, "type": "categorical", "description": "d", "categories": ["a", "b", "c", "d"],
            "epsilon": 1.0, "mechanism": "grr", "calibration": list(SHARES),
        }, "other": {"version": 1, "type": "boolean", "description": "d", "epsilon": 1.0}}}
    )  # fmt: skip
    last = Latest(estimates[-1], 4_000, None, estimates)
    values, covered = calibration_series(registry, {"m": last, "other": last})
    judged = calibration_of(metric, estimates)
    assert judged is not None
    assert (values.name, values.samples) == ("dither_calibration_values", [(("m",), 12.0)])
    assert (covered.name, covered.samples) == (
        "dither_calibration_covered_values",
        [(("m",), float(judged.covered))],
    )


# -- quality ---------------------------------------------------------------------------------------------------


def test_where_the_truth_is_known_utility_is_predicted_and_real() -> None:
    """By the truth; as the figures of the protocol give them."""
    metric = _metric()
    estimate = _estimates(metric, metric.mechanism)[0]
    found = utility(metric, estimate)
    assert found is not None
    assert found.shares == "truth"
    assert found.predicted == predicted_utility(metric.mechanism, SHARES, 4_000, 0.95)
    rows = estimate.values
    assert found.real == real_utility(
        [row.estimate for row in rows], [row.interval for row in rows], SHARES, 4_000
    )


def test_elsewhere_it_is_predicted_by_what_is_published() -> None:
    """At the shares that sum to one; at equal shares where the estimate is suppressed."""
    metric = _metric(calibration=None)
    estimate = _estimates(metric, metric.mechanism)[0]
    found = utility(metric, estimate)
    assert found is not None
    assert (found.shares, found.real) == ("norm_sub", None)
    published = [row.norm_sub or 0.0 for row in estimate.values]
    assert found.predicted == predicted_utility(metric.mechanism, published, 4_000, 0.95)
    hidden = utility(metric, msgspec.structs.replace(estimate, status="suppressed", values=[], n=7))
    assert hidden is not None
    assert (hidden.shares, hidden.real) == ("uniform", None)
    assert hidden.predicted == predicted_utility(metric.mechanism, [0.25] * 4, 7, 0.95)


def test_without_reports_or_definition_there_is_no_utility() -> None:
    """Nothing can be predicted of nothing, nor without p and q."""
    metric = _metric()
    estimate = _estimates(metric, metric.mechanism)[0]
    assert utility(None, estimate) is None
    assert utility(metric, msgspec.structs.replace(estimate, n=0)) is None
    assert utility(replace(metric, labels=("a", "b")), estimate) is None


def test_a_suppressed_calibration_has_no_real_errors() -> None:
    """There is nothing to hold against the truth."""
    metric = _metric()
    hidden = msgspec.structs.replace(_estimates(metric, metric.mechanism)[0], status="suppressed", values=[])
    found = utility(metric, hidden)
    assert found is not None
    assert (found.shares, found.real) == ("truth", None)
