"""What may change in a registry: pairs of old and new files, each with the right verdict and the right move."""

import dataclasses
from datetime import UTC, datetime

import pytest

from dither_protocol.registry import Registry, parse_registry
from dither_protocol.registry.diff import diff_registries, last_close, verdict_of
from dither_protocol.registry.difference import Difference, Verdict
from support.registry_pairs import (
    BREAKING,
    COMPATIBLE,
    DARK_MODE,
    NOTICE,
    NOW,
    OLD,
    PAIRS,
    RETIRED,
    V3,
    V4,
    Pair,
)


def _new(edits: tuple[tuple[str, str], ...]) -> Registry:
    text = OLD
    for was, becomes in edits:
        assert text.count(was) == 1, was
        text = text.replace(was, becomes)
    return parse_registry(text)


def _diff(old: str | Registry, new: str | Registry) -> list[Difference]:
    pair = [parse_registry(each) if isinstance(each, str) else each for each in (old, new)]
    return diff_registries(pair[0], pair[1], NOW)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_every_change_has_the_right_verdict_and_move(pair: Pair) -> None:
    """It is found where it is, said with its reason and what to do, and decides the verdict of the whole."""
    found = _diff(OLD, _new(pair.edits))
    by_path = {each.path: each for each in found}
    assert len(by_path) == len(found)
    difference = by_path[pair.path]
    assert difference.verdict == pair.verdict, difference
    assert pair.says in f"{difference.reason}: {difference.move}"
    assert verdict_of(found) == pair.verdict
    assert difference.move or difference.verdict is not BREAKING  # a breaking change has a right move
    assert {each.path for each in found} - {pair.path} <= _BESIDE.get(pair.path, {"metrics.browser.version"})


_BESIDE = {
    "metrics.browser.description": {"metrics.browser.owner"},
    "metrics.dark_mode": {"metrics.night_mode"},
}
"""What changes together with it; a new version may always."""


def test_there_are_thirty_pairs_and_every_verdict_is_among_them() -> None:
    """No kind of change is left to chance."""
    assert len(PAIRS) >= 30
    assert {pair.verdict for pair in PAIRS.values()} == set(Verdict)


def test_equal_registries_have_no_difference() -> None:
    """Not in another order of metrics or dimension values, nor with `auto` written as what it stands for."""
    assert _diff(OLD, OLD) == []
    assert _diff(OLD, OLD.replace('["linux", "macos"]', '["macos", "linux"]')) == []
    moved = OLD.replace(DARK_MODE, "") + DARK_MODE
    assert _diff(OLD, moved) == []
    named = DARK_MODE.replace("epsilon = 1.0", 'epsilon = 1.0\nmechanism = "grr"')
    assert _diff(OLD, OLD.replace(DARK_MODE, named)) == []


def test_a_new_version_of_permanent_answers_is_paid_for_in_full() -> None:
    """They are drawn for each version: whatever else has changed, that is never compatible."""
    found = _diff(MEMOIZED, MEMOIZED.replace(V3, V4).replace("values = 2", "values = 1"))
    version = next(each for each in found if each.key == "version")
    assert (version.verdict, "every device pays epsilon 3 for life again" in version.reason) == (NOTICE, True)


def test_strict_takes_a_notice_for_breaking() -> None:
    """For projects where somebody has to say yes to every weakened promise."""
    found = _diff(OLD, OLD.replace("per_day = 8.0", "per_day = 9.0"))
    assert verdict_of(found) == Verdict.NOTICE
    assert verdict_of(found, strict=True) == Verdict.BREAKING
    assert verdict_of([], strict=True) == Verdict.COMPATIBLE


def test_a_lowered_schema_is_breaking_and_a_raised_one_a_notice() -> None:
    """Of documents that some version reads both; this one reads a single schema."""
    old = parse_registry(OLD)
    raised = dataclasses.replace(old, document={**old.document, "schema": 2})
    (lower,) = _diff(raised, old)
    assert (lower.path, lower.verdict) == ("schema", Verdict.BREAKING)
    (higher,) = _diff(old, raised)
    assert (higher.path, higher.verdict) == ("schema", Verdict.NOTICE)


def _with_table(registry: Registry, **changes: object) -> Registry:
    """The registry with keys of ``browser`` that this version does not know."""
    metrics = dict(registry.document["metrics"])
    metrics["browser"] = {**metrics["browser"], **changes}
    return dataclasses.replace(registry, document={**registry.document, "metrics": metrics})


def test_a_key_without_a_rule_is_judged_by_params_hash() -> None:
    """Breaking where it is part of the meaning, a notice where it is not: never passed over."""
    old, changed = parse_registry(OLD), _new(PAIRS["epsilon raised"].edits)
    (same,) = _diff(_with_table(old, later_key=1), _with_table(old, later_key=2))
    assert (same.path, same.verdict) == ("metrics.browser.later_key", Verdict.NOTICE)
    other = {
        each.key: each for each in _diff(_with_table(old, later_key=1), _with_table(changed, later_key=2))
    }
    assert other["later_key"].verdict == Verdict.BREAKING
    renewed = _with_table(_new(PAIRS["epsilon raised in a new version"].edits), max_distinct_values=9)
    more = {each.key: each for each in _diff(_with_table(old, max_distinct_values=3), renewed)}
    assert more["max_distinct_values"].verdict == Verdict.NOTICE


MEMOIZED = OLD.replace(
    'mechanism = "grr"',
    'mechanism = "grr"\ncollection = "memoized"\nepsilon_permanent = 3.0\nmax_distinct_values = 2',
)


@pytest.mark.parametrize(
    ("was", "becomes", "key", "in_place", "in_a_new_version"),
    [
        ("permanent = 3.0", "permanent = 4.0", "epsilon_permanent", BREAKING, NOTICE),
        ("permanent = 3.0", "permanent = 2.0", "epsilon_permanent", BREAKING, COMPATIBLE),
        ("values = 2", "values = 3", "max_distinct_values", BREAKING, NOTICE),
        ("values = 2", "values = 1", "max_distinct_values", BREAKING, COMPATIBLE),
    ],
)
def test_memoised_answers_that_cost_more_need_a_version_and_are_said(
    was: str, becomes: str, key: str, in_place: Verdict, in_a_new_version: Verdict
) -> None:
    """The charge for life is their product: a device that has paid the old one must not be asked for the new one."""
    changed = MEMOIZED.replace(was, becomes)
    (found,) = _diff(MEMOIZED, changed)
    assert (found.key, found.verdict) == (key, in_place)
    renewed = {
        each.key: each.verdict for each in _diff(MEMOIZED, changed.replace("version = 3", "version = 4"))
    }
    assert renewed == {"version": NOTICE, key: in_a_new_version}


def test_another_collection_is_another_guarantee() -> None:
    """From fresh to memoised and back: breaking in place, a notice in a new version."""
    for old, new in ((OLD, MEMOIZED), (MEMOIZED, OLD)):
        in_place = {each.key: each.verdict for each in _diff(old, new)}
        assert in_place["collection"] == BREAKING
        renewed = {each.key: each.verdict for each in _diff(old, new.replace("version = 3", "version = 4"))}
        assert renewed["collection"] == NOTICE
        assert BREAKING not in renewed.values()


def test_the_last_close_is_that_of_the_last_window() -> None:
    """The window that contains the last day, whatever the period, and its late days."""
    registry = parse_registry(OLD)
    closes = {metric.name: last_close(metric) for metric in registry}
    assert closes["retired"] == datetime(2026, 11, 24, tzinfo=UTC)
    assert closes["browser"] == datetime(2027, 7, 4, tzinfo=UTC)
    assert closes["first_run"] == datetime(2027, 1, 4, tzinfo=UTC)
    assert closes["dark_mode"] is None
    hourly = parse_registry(OLD.replace('period = "day"', 'period = "hour"')).metric("browser")
    assert last_close(hourly) == datetime(2027, 7, 4, tzinfo=UTC)


def test_a_metric_may_go_at_the_instant_its_last_window_closes() -> None:
    """Not a moment before: reports on their way would be refused."""
    registry, without = parse_registry(OLD), parse_registry(OLD.replace(RETIRED, ""))
    closed = datetime(2026, 11, 24, tzinfo=UTC)
    (at_close,) = diff_registries(registry, without, closed)
    assert at_close.verdict == Verdict.COMPATIBLE
    (before,) = diff_registries(registry, without, closed.replace(day=23, hour=23, minute=59))
    assert (before.verdict, before.move) == (
        Verdict.BREAKING,
        "let it expire: leave it until 2026-11-24, when its last window has closed",
    )


def test_a_difference_has_a_document() -> None:
    """In JSON's types; the registry itself has no metric's name."""
    (found,) = _diff(OLD, OLD.replace("per_day = 8.0", "per_day = 7.0"))
    assert found.document() == {
        "metric": None,
        "key": "privacy.max_epsilon_per_day",
        "verdict": "compatible",
        "reason": "lowered from 8 to 7: devices above it answer nothing more",
        "move": None,
    }
