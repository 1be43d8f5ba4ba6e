"""record() of a calibration metric: no value, an answer by lot, and otherwise a metric like any other."""

from collections import Counter
from typing import Any

import pytest

import dither_client
from dither_client import RecordResult, RecordStatus, calibration, entropy
from dither_client.testing import MemoryTransport
from dither_protocol.errors import ValueTypeError
from dither_protocol.registry import Registry, registry_from_document
from support.clients import LINUX, make_client
from support.registries import small_document

QUEUED = RecordResult(RecordStatus.QUEUED)


def _registry(**changes: Any) -> Registry:
    """``dark_mode`` asks; ``color`` and ``coin`` are calibration metrics, with next to no noise."""
    document = small_document()
    metrics = document["metrics"]
    metrics["color"] |= {"calibration": [0.0, 1.0, 0.0, 0.0, 0.0], "epsilon": 20.0} | changes
    metrics["coin"] = metrics["dark_mode"] | {"calibration": [0.0, 1.0], "epsilon": 20.0}
    return registry_from_document(document)


def test_the_device_draws_the_answer_and_charges_it() -> None:
    """Without a value, with dimensions by name; once per window; charged like any report."""
    transport = MemoryTransport()
    with make_client(transport, registry=_registry(), max_epsilon=20.0) as client:
        assert client.record("coin") == QUEUED
        assert client.record("coin").status is RecordStatus.ALREADY_REPORTED
        assert client.record("color", dimensions=LINUX) == QUEUED
        assert client.privacy_ledger().spent_today == 40.0
        client.flush()
    sent = {report["metric"]: report for report in transport.reports}
    assert sent["coin"]["data"] == 1  # a lie in e^-20
    assert sent["color"]["dimensions"] == LINUX
    assert sent["color"]["params"] == _registry().metric("color").params_hash


@pytest.mark.parametrize("value", [True, False, "green", None, 1])
def test_a_value_is_a_mistake(value: Any) -> None:
    """The app has taken the metric for one that asks: nothing is charged, and the value is not repeated."""
    with make_client(MemoryTransport(), registry=_registry(), max_epsilon=20.0) as client:
        with pytest.raises(ValueTypeError, match="'coin' is a calibration metric and takes no value"):
            client.record("coin", value)
        assert client.privacy_ledger().spent_today == 0


@pytest.mark.parametrize(
    ("metric", "words"), [("dark_mode", "takes True or False"), ("first_color", "takes a str")]
)
def test_any_other_metric_needs_a_value(metric: str, words: str) -> None:
    """No answer is no answer; the error is that of any wrong type."""
    with (
        make_client(MemoryTransport(), registry=_registry()) as client,
        pytest.raises(ValueTypeError, match=words),
    ):
        client.record(metric)


def test_the_whole_program_does_the_same() -> None:
    """`dither_client.record` passes on that there is no value."""
    transport = MemoryTransport()
    dither_client.init(
        "http://127.0.0.1:9",
        _registry(),
        ingest_key="dik_x",
        state_dir=None,
        transport=transport,
        max_epsilon=20.0,
    )
    try:
        assert dither_client.record("coin") == QUEUED
        assert dither_client.record("color", dimensions=LINUX) == QUEUED
    finally:
        dither_client.shutdown()


def test_explain_says_that_nothing_is_asked() -> None:
    """To the person at the device; of a metric that asks it says no such thing."""
    with make_client(MemoryTransport(), registry=_registry()) as client:
        assert "asks nothing about you" in client.explain("coin")
        assert "asks nothing about you" not in client.explain("dark_mode")


@pytest.mark.parametrize("weights", [(1,), (5, 3, 0, 2), (0, 0, 1), (2, 0, 3)])
def test_every_weight_is_drawn_exactly(weights: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all numbers below the sum, each index comes as often as its weight says."""
    drawn: Counter[int] = Counter()
    for number in range(sum(weights)):
        monkeypatch.setattr(entropy, "below", lambda bound, number=number: number % bound)
        drawn[calibration.draw(weights)] += 1
    assert [drawn[index] for index in range(len(weights))] == list(weights)
