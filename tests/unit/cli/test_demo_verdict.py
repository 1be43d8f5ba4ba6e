"""The demo's verdict: it passes the truth and fails losses and wrong intervals."""

from typing import Any

import pytest
from scipy.special import bdtrc

from dither_cli.demo_population import DemoError, demo_truths
from dither_cli.demo_verdict import Verdict, judge
from dither_cli.parts import example_registry
from dither_fleet import FleetResult, MetricTruth, most_misses
from dither_protocol.registry import load_registry
from support.registries import COLORS, small_registry

REGISTRY = small_registry()
SHARES = {"dark_mode": [0.7, 0.3], "color": [0.5, 0.2, 0.1, 0.1, 0.1], "first_color": [0.2] * 5}
TRUTHS = {name: MetricTruth(shares) for name, shares in SHARES.items()}


def _documents(n: int = 10, shift: float = 0.0) -> dict[str, list[dict[str, Any]]]:
    return {
        metric.name: [
            {
                "n": n,
                "dimensions": None,
                "values": [
                    {"value": label, "estimate": f + shift, "interval": [f + shift - 0.05, f + shift + 0.05]}
                    for label, f in zip(metric.labels, SHARES[metric.name], strict=True)
                ],
            }
        ]
        for metric in REGISTRY
    }


def _sent(sent: int = 10, accepted: int = 10) -> FleetResult:
    result = FleetResult()
    for metric in REGISTRY:
        result.sent[metric.name] = sent
        result.accepted[metric.name] = accepted
    return result


def _judge(sent: FleetResult, documents: dict[str, list[dict[str, Any]]]) -> Verdict:
    return judge(REGISTRY, TRUTHS, sent, documents)


def test_a_run_without_fault_passes() -> None:
    """Everything counted, every interval covers."""
    verdict = _judge(_sent(), _documents())
    assert verdict.passed
    assert verdict.summary == "12 of 12 intervals over all devices cover the truth"


@pytest.mark.parametrize(
    ("sent", "accepted", "counted"), [(11, 10, 10), (10, 9, 9), (10, 10, 9), (10, 10, 11)]
)
def test_a_report_lost_or_doubled_anywhere_fails(sent: int, accepted: int, counted: int) -> None:
    """Sent = accepted = counted, per metric."""
    verdict = _judge(_sent(sent, accepted), _documents(counted))
    assert not verdict.passed
    assert len(verdict.problems) == 3


def test_intervals_that_miss_the_truth_fail() -> None:
    """A bias larger than the intervals is no chance."""
    verdict = _judge(_sent(), _documents(shift=0.06))
    assert not verdict.passed
    assert "12 of 12 intervals over all devices miss the truth" in verdict.problems[0]


def test_a_run_without_estimates_fails() -> None:
    """Nothing published is no success."""
    verdict = _judge(_sent(0, 0), {metric.name: [] for metric in REGISTRY})
    assert verdict.problems == ["no estimate was published"]


def test_a_batch_given_up_fails() -> None:
    """Even where the sums agree."""
    sent = _sent()
    sent.failures["http:401"] = 1
    assert _judge(sent, _documents()).problems == ["a batch was given up: http:401"]


@pytest.mark.parametrize(("intervals", "misses"), [(47, 12), (141, 22)])
def test_the_limit_is_the_exact_binomial_one_at_one_in_a_million(intervals: int, misses: int) -> None:
    """One more miss would happen by chance in at most one of a million faultless runs; this many may."""
    assert most_misses(intervals, 0.95) == misses
    assert bdtrc(misses, intervals, 0.05) <= 1e-6 < bdtrc(misses - 1, intervals, 0.05)


def test_the_demo_knows_the_truth_about_its_own_registry() -> None:
    """Every metric of the example registry has shares that sum to one."""
    registry = load_registry(example_registry())
    truths = demo_truths(registry)
    assert truths.keys() == registry.metrics.keys()
    for metric in registry:
        assert len(truths[metric.name].shares) == len(metric.labels)
        assert sum(truths[metric.name].shares) == pytest.approx(1)


def test_a_registry_that_the_demo_knows_nothing_about_is_refused() -> None:
    """The error names the metric."""
    assert COLORS
    with pytest.raises(DemoError, match="color"):
        demo_truths(REGISTRY)
