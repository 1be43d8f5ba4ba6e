"""Calibration metrics: the registry's shares are kept exactly, and are part of what a report means."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dither_protocol import RegistryError, ValueTypeError, registry_from_document
from dither_protocol.registry import Metric, decode_definition, encode_definition
from dither_protocol.registry.diff import diff_registries
from support.protocol_samples import browser, document


def _metric(shares: object, **changes: Any) -> Metric:
    return browser(calibration=shares, **changes)


@pytest.mark.parametrize(
    ("shares", "weights"),
    [
        ([0.5, 0.3, 0.2], (5, 3, 2)),
        ([0.1, 0.2, 0.7], (1, 2, 7)),  # whose doubles are no tenths, and whose sum is no one
        ([1, 0, 0], (1, 0, 0)),
        ([0.3333333333, 0.3333333333, 0.3333333333], (1, 1, 1)),
        ([5e-324, 0.5, 0.5], (1, 10**323, 10**323)),  # 5 over 10^324 beside 5 over 10,
    ],
)
def test_shares_become_whole_weights(shares: list[float], weights: tuple[int, ...]) -> None:
    """By the decimal text of each share, so that every device draws by the same law."""
    found = _metric(shares).calibration
    assert found is not None
    assert found == weights
    assert all(type(each) is int for each in found)
    total = sum(found)
    assert _metric(shares).true_shares == tuple(each / total for each in found)


def test_a_metric_that_asks_has_no_truth() -> None:
    """Nobody knows it."""
    assert browser().calibration is None
    assert browser().true_shares is None


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ([0.5, 0.5], "a list of 3 shares"),
        ("0.5", "a list of 3 shares"),
        ([0.5, 0.3, 0.2 + 2e-9], "must sum to 1"),
        ([0.5, 0.3, 0.1], "must sum to 1"),
        ([1.1, -0.1, 0.0], r"calibration\[0\].* from 0 to 1"),
        ([0.6, -0.1, 0.5], r"calibration\[1\].* from 0 to 1"),
        ([float("nan"), 0.5, 0.5], r"calibration\[0\].* from 0 to 1"),
        ([True, 0.0, 0.0], r"calibration\[0\].* from 0 to 1"),
        (["1", 0.0, 0.0], r"calibration\[0\].* from 0 to 1"),
    ],
)
def test_other_shares_are_refused(shares: object, words: str) -> None:
    """One number for each label, none below zero, of sum one."""
    with pytest.raises(RegistryError, match=words):
        _metric(shares)


def test_a_tiny_deviation_of_the_sum_is_decimals_of_thirds() -> None:
    """Up to 1e-9; the shares count in relation to each other."""
    assert sum(_metric([0.5, 0.3, 0.2 - 9e-10]).true_shares or ()) == pytest.approx(1, abs=1e-15)


def test_only_fresh_answers_are_drawn() -> None:
    """A permanent answer would be drawn once: many reports of a device would say the same."""
    with pytest.raises(RegistryError, match="fresh"):
        _metric(
            [0.5, 0.3, 0.2],
            collection="memoized",
            epsilon_permanent=2.0,
            max_distinct_values=2,
            mechanism="grr",
        )


def test_too_many_labels_are_refused() -> None:
    """What is read again and again to judge it stays small."""
    many = [str(each) for each in range(1_025)]
    with pytest.raises(RegistryError, match="at most 1024 labels"):
        _metric([1.0] + [0.0] * 1_024, categories=many)


def test_a_boolean_has_two_shares() -> None:
    """False first, as its labels."""
    changed = document()
    changed["metrics"]["dark_mode"] |= {"calibration": [0.25, 0.75]}
    assert registry_from_document(changed).metric("dark_mode").true_shares == (0.25, 0.75)


def test_another_truth_is_another_meaning() -> None:
    """The hash follows the truth, not how it is written."""
    metrics = (browser(), _metric([0.5, 0.3, 0.2]), _metric([0.5, 0.2, 0.3]))
    assert len({metric.params_hash for metric in metrics}) == 3
    assert _metric([1, 0, 0]).params_hash == _metric([1.0, 0.0, 0.0]).params_hash


def test_the_definition_in_the_store_keeps_it() -> None:
    """Servers and workers without the registry file know the truth, too."""
    changed = document()
    changed["metrics"]["dark_mode"] |= {"calibration": [0.1, 0.9]}
    registry = registry_from_document(changed)
    assert decode_definition(encode_definition(registry, "dark_mode")) == registry.metric("dark_mode")
    again = registry_from_document(dict(registry.document))
    assert again.metric("dark_mode").calibration == (1, 9)


def test_an_answer_from_the_app_is_refused() -> None:
    """The device draws it; an app that gives one has taken the metric for another."""
    with pytest.raises(ValueTypeError, match="'browser' is a calibration metric and takes no value"):
        _metric([0.5, 0.3, 0.2]).index_of("chrome")


@pytest.mark.parametrize("renewed", [False, True])
@pytest.mark.parametrize(
    ("was", "now"), [(None, [0.5, 0.5]), ([0.5, 0.5], None), ([0.5, 0.5], [0.4, 0.6])], ids=str
)
def test_another_truth_needs_another_name(was: object, now: object, *, renewed: bool) -> None:
    """Versions of one name are combined: drawn answers with those of people, or two truths."""
    registries = []
    for version, shares in ((1, was), (2 if renewed else 1, now)):
        changed = document()
        table = changed["metrics"]["dark_mode"]
        table["version"] = version
        if shares is not None:
            table["calibration"] = shares
        registries.append(registry_from_document(changed))
    found = [
        each
        for each in diff_registries(*registries, datetime(2026, 11, 29, tzinfo=UTC))
        if each.metric == "dark_mode"
    ]
    assert [(each.key, each.verdict) for each in found] == [("calibration", "breaking")]
    assert "another name" in found[0].move
