"""What may change in a registry: pairs of old and new files, each with the right verdict and the right move."""

import dataclasses
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from dither_protocol.registry import Registry, parse_registry
from dither_protocol.registry.diff import diff_registries, last_close, verdict_of
from dither_protocol.registry.difference import Difference, Verdict

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
OLD = """
schema = 1
project = "editor"
[privacy]
max_epsilon_per_day = 8.0
max_epsilon_lifetime = 200.0
[metrics.browser]
version = 3
type = "categorical"
description = "Browser that opens links"
owner = "team@example.org"
expires = 2027-06-30
categories = ["chrome", "firefox", "safari", "other"]
epsilon = 1.0
mechanism = "grr"
period = "day"
dimensions = { os = ["linux", "macos"] }
min_reports = 100
late_days = 3
retention_days = 400
use_case = "product_analytics"
[metrics.dark_mode]
version = 1
type = "boolean"
description = "Whether the dark theme is on"
epsilon = 1.0
period = "week"
[metrics.first_run]
version = 1
type = "boolean"
description = "Whether the tour was taken"
epsilon = 1.0
period = "once"
expires = 2026-12-31
[metrics.retired]
version = 1
type = "boolean"
description = "No longer asked"
epsilon = 1.0
expires = 2026-11-20
late_days = 3
"""
_DARK_MODE = OLD[OLD.index("[metrics.dark_mode]") : OLD.index("[metrics.first_run]")]
_RETIRED = OLD[OLD.index("[metrics.retired]") :]
_BROWSER = OLD[OLD.index("[metrics.browser]") : OLD.index("[metrics.dark_mode]")]
_LABELS = 'categories = ["chrome", "firefox", "safari", "other"]'
V3, V4 = "version = 3", "version = 4"
BREAKING, NOTICE, COMPATIBLE = Verdict.BREAKING, Verdict.NOTICE, Verdict.COMPATIBLE


class Pair(NamedTuple):
    """An edit of the old file, and the difference that it makes beside the version.

    Attributes:
        edits: texts to replace, with what replaces them.
        path: where the difference is.
        verdict: of that difference.
        says: part of its reason and move.
    """

    edits: tuple[tuple[str, str], ...]
    path: str
    verdict: Verdict
    says: str


def _edit(*edits: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return edits


PAIRS = {
    # A change of meaning under the same version
    "epsilon raised": Pair(
        _edit(("epsilon = 1.0\nmechanism", "epsilon = 2.0\nmechanism")),
        "metrics.browser.epsilon", BREAKING, "raise version to 4",
    ),
    "epsilon raised by next to nothing": Pair(
        _edit(("epsilon = 1.0\nmechanism", "epsilon = 1.0000001\nmechanism")),
        "metrics.browser.epsilon", BREAKING, "raised from 1 to 1.0000001",
    ),
    "epsilon lowered": Pair(
        _edit(("epsilon = 1.0\nmechanism", "epsilon = 0.5\nmechanism")),
        "metrics.browser.epsilon", BREAKING, "raise version to 4",
    ),
    "mechanism changed": Pair(
        _edit(('"grr"', '"oue"')), "metrics.browser.mechanism", BREAKING, "from grr to oue",
    ),
    "period changed": Pair(
        _edit(('period = "day"', 'period = "week"')), "metrics.browser.period", BREAKING, "raise version to 4",
    ),
    "label appended": Pair(
        _edit((', "other"]', ', "other", "edge"]')), "metrics.browser.categories", BREAKING, "appended 'edge'",
    ),
    "label inserted": Pair(
        _edit((', "other"]', ', "edge", "other"]')),
        "metrics.browser.categories", BREAKING, "keep the label order and append in a new version",
    ),
    "labels reordered": Pair(
        _edit(('"chrome", "firefox"', '"firefox", "chrome"')),
        "metrics.browser.categories", BREAKING, "another order",
    ),
    "label removed": Pair(
        _edit(('"safari", ', "")), "metrics.browser.categories", BREAKING, "removed 'safari'",
    ),
    "label renamed": Pair(
        _edit(('"safari"', '"Safari"')), "metrics.browser.categories", BREAKING, "removed 'safari' and added 'Safari'",
    ),
    "dimension value added": Pair(
        _edit(('["linux", "macos"]', '["linux", "macos", "windows"]')),
        "metrics.browser.dimensions", BREAKING, "3 cells a window, and 2 before",
    ),
    "dimension removed": Pair(
        _edit(('dimensions = { os = ["linux", "macos"] }\n', "")),
        "metrics.browser.dimensions", BREAKING, "raise version to 4",
    ),
    # The same with a new version
    "epsilon raised in a new version": Pair(
        _edit((V3, V4), ("epsilon = 1.0\nmechanism", "epsilon = 2.0\nmechanism")),
        "metrics.browser.epsilon", NOTICE, "less than people were told",
    ),
    "epsilon lowered in a new version": Pair(
        _edit((V3, V4), ("epsilon = 1.0\nmechanism", "epsilon = 0.5\nmechanism")),
        "metrics.browser.epsilon", COMPATIBLE, "protected more",
    ),
    "mechanism changed in a new version": Pair(
        _edit((V3, V4), ('"grr"', '"oue"')), "metrics.browser.mechanism", COMPATIBLE, "from grr to oue",
    ),
    "label appended in a new version": Pair(
        _edit((V3, V4), (', "other"]', ', "other", "edge"]')),
        "metrics.browser.categories", COMPATIBLE, "side by side",
    ),
    "labels reordered in a new version": Pair(
        _edit((V3, V4), ('"chrome", "firefox"', '"firefox", "chrome"')),
        "metrics.browser.categories", NOTICE, "another order",
    ),
    "period changed in a new version": Pair(
        _edit((V3, V4), ('period = "day"', 'period = "week"')), "metrics.browser.period", NOTICE, "side by side",
    ),
    "dimension value added in a new version": Pair(
        _edit((V3, V4), ('["linux", "macos"]', '["linux", "macos", "windows"]')),
        "metrics.browser.dimensions", NOTICE, "spends more",
    ),
    "dimension exchanged in a new version": Pair(
        _edit((V3, V4), ('os = ["linux", "macos"]', 'region = ["eu", "us"]')),
        "metrics.browser.dimensions", NOTICE, "region leaves in the clear",
    ),
    "dimension value renamed in a new version": Pair(
        _edit((V3, V4), ('["linux", "macos"]', '["linux", "mac"]')),
        "metrics.browser.dimensions", NOTICE, "os leaves in the clear",
    ),
    "dimension value removed in a new version": Pair(
        _edit((V3, V4), ('["linux", "macos"]', '["linux"]')),
        "metrics.browser.dimensions", COMPATIBLE, "1 cells a window, and 2 before",
    ),
    "period shortened in a new version": Pair(
        _edit((V3, V4), ('period = "day"', 'period = "hour"')), "metrics.browser.period", NOTICE, "spends more",
    ),
    # Versions
    "version lowered": Pair(_edit((V3, "version = 2")), "metrics.browser.version", BREAKING, "raise version to 4"),
    "version raised for nothing": Pair(_edit((V3, V4)), "metrics.browser.version", NOTICE, "keep version 3"),
    "once asked again": Pair(
        _edit(("version = 1\ntype = \"boolean\"\ndescription = \"Whether the tour", "version = 2\ntype = \"boolean\"\n"
               "description = \"Whether the tour")),
        "metrics.first_run.version", NOTICE, "every device is asked again",
    ),
    # Metrics that come and go
    "metric added": Pair(
        _edit((_DARK_MODE, _DARK_MODE + _DARK_MODE.replace("dark_mode", "zoom"))),
        "metrics.zoom", COMPATIBLE, "at most 6 on one day, and 5 before",
    ),
    "metric added above the limit of a day": Pair(
        _edit((_DARK_MODE, _DARK_MODE + _DARK_MODE.replace("dark_mode", "zoom").replace("1.0", "4.0"))),
        "metrics.zoom", NOTICE, "above the limit of 8",
    ),
    "metric without an expiry removed": Pair(
        _edit((_DARK_MODE, "")), "metrics.dark_mode", BREAKING, "let it expire: set `expires`",
    ),
    "metric removed before it expires": Pair(
        _edit((_BROWSER, "")), "metrics.browser", BREAKING, "leave it until 2027-07-04",
    ),
    "metric removed after its last window": Pair(
        _edit((_RETIRED, "")), "metrics.retired", COMPATIBLE, "closed on 2026-11-24",
    ),
    "metric renamed": Pair(
        _edit(("[metrics.dark_mode]", "[metrics.night_mode]")),
        "metrics.dark_mode", BREAKING, "keep the name 'dark_mode'",
    ),
    "name reused for another type": Pair(
        _edit((V3, V4), ('type = "categorical"\n', 'type = "boolean"\n'), (_LABELS + "\n", ""), ('"grr"', '"rr"')),
        "metrics.browser.type", BREAKING, "choose another name",
    ),
    # What changes in place
    "description and owner": Pair(
        _edit(("Browser that opens links", "Browser that opens a link"), ("team@", "telemetry@")),
        "metrics.browser.description", COMPATIBLE, "if the question itself is another one now, raise version to 4",
    ),
    "use case": Pair(
        _edit(('"product_analytics"', '"ab_test"')), "metrics.browser.use_case", COMPATIBLE, "for people",
    ),
    "min_reports lowered": Pair(
        _edit(("min_reports = 100", "min_reports = 50")), "metrics.browser.min_reports", NOTICE, "keep 100",
    ),
    "min_reports raised": Pair(
        _edit(("min_reports = 100", "min_reports = 200")), "metrics.browser.min_reports", COMPATIBLE, "suppressed",
    ),
    "late_days shortened": Pair(
        _edit(("late_days = 3\nretention", "late_days = 1\nretention")),
        "metrics.browser.late_days", BREAKING, "raise version to 4: the windows of version 3 keep their 3 days",
    ),
    "late_days shortened in a new version": Pair(
        _edit((V3, V4), ("late_days = 3\nretention", "late_days = 1\nretention")),
        "metrics.browser.late_days", COMPATIBLE, "windows of version 3 keep theirs",
    ),
    "late_days lengthened": Pair(
        _edit(("late_days = 3\nretention", "late_days = 9\nretention")),
        "metrics.browser.late_days", NOTICE, "final take reports again",
    ),
    "retention shortened": Pair(
        _edit(("retention_days = 400", "retention_days = 40")), "metrics.browser.retention_days", NOTICE, "for good",
    ),
    "retention lengthened": Pair(
        _edit(("retention_days = 400\n", "")), "metrics.browser.retention_days", NOTICE, "longer than people were told",
    ),
    "expiry moved on": Pair(
        _edit(("2027-06-30", "2027-12-31")), "metrics.browser.expires", NOTICE, "asked for longer",
    ),
    "expiry removed": Pair(
        _edit(("expires = 2027-06-30\n", "")), "metrics.browser.expires", NOTICE, "without end",
    ),
    "expiry moved to the past": Pair(
        _edit(("2027-06-30", "2026-11-28")), "metrics.browser.expires", BREAKING, "set it to 2026-11-29 or later",
    ),
    "expiry moved from the past to an earlier day": Pair(
        _edit(("2026-11-20", "2026-11-10")), "metrics.retired.expires", BREAKING, "keep 2026-11-20",
    ),
    "expiry moved to the past in a new version": Pair(
        _edit((V3, V4), ("2027-06-30", "2026-11-28")), "metrics.browser.expires", NOTICE, "no device answers version 4",
    ),
    "expiry moved to today": Pair(
        _edit(("2027-06-30", "2026-11-29")), "metrics.browser.expires", COMPATIBLE, "shorter time",
    ),
    # The registry as a whole
    "project renamed": Pair(_edit(('"editor"', '"writer"')), "project", BREAKING, "keep 'editor'"),
    "daily limit raised": Pair(
        _edit(("per_day = 8.0", "per_day = 9.0")), "privacy.max_epsilon_per_day", NOTICE, "more on one day",
    ),
    "daily limit lowered": Pair(
        _edit(("per_day = 8.0", "per_day = 7.0")), "privacy.max_epsilon_per_day", COMPATIBLE, "answer nothing more",
    ),
    "limit for life removed": Pair(
        _edit(("max_epsilon_lifetime = 200.0\n", "")), "privacy.max_epsilon_lifetime", NOTICE, "more in its life",
    ),
    "delta set": Pair(
        _edit(("lifetime = 200.0", "lifetime = 200.0\ndelta = 1e-6")), "privacy.delta", NOTICE, "for this probability",
    ),
    "expected devices": Pair(
        _edit(("lifetime = 200.0", "lifetime = 200.0\nexpected_devices = 9")),
        "privacy.expected_devices", COMPATIBLE, "devices do nothing with it",
    ),
}  # fmt: skip


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
    moved = OLD.replace(_DARK_MODE, "") + _DARK_MODE
    assert _diff(OLD, moved) == []
    named = _DARK_MODE.replace("epsilon = 1.0", 'epsilon = 1.0\nmechanism = "grr"')
    assert _diff(OLD, OLD.replace(_DARK_MODE, named)) == []


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
    registry, without = parse_registry(OLD), parse_registry(OLD.replace(_RETIRED, ""))
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
