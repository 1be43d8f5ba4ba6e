"""Edits of a registry file, each with the difference that it makes, its verdict and the right move."""

from datetime import UTC, datetime
from typing import NamedTuple

from dither_protocol.registry.difference import Verdict

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
DARK_MODE = OLD[OLD.index("[metrics.dark_mode]") : OLD.index("[metrics.first_run]")]
RETIRED = OLD[OLD.index("[metrics.retired]") :]
BROWSER = OLD[OLD.index("[metrics.browser]") : OLD.index("[metrics.dark_mode]")]
LABELS = 'categories = ["chrome", "firefox", "safari", "other"]'
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
        _edit((DARK_MODE, DARK_MODE + DARK_MODE.replace("dark_mode", "zoom"))),
        "metrics.zoom", COMPATIBLE, "at most 6 on one day, and 5 before",
    ),
    "metric added above the limit of a day": Pair(
        _edit((DARK_MODE, DARK_MODE + DARK_MODE.replace("dark_mode", "zoom").replace("1.0", "4.0"))),
        "metrics.zoom", NOTICE, "above the limit of 8",
    ),
    "metric without an expiry removed": Pair(
        _edit((DARK_MODE, "")), "metrics.dark_mode", BREAKING, "let it expire: set `expires`",
    ),
    "metric removed before it expires": Pair(
        _edit((BROWSER, "")), "metrics.browser", BREAKING, "leave it until 2027-07-04",
    ),
    "metric removed after its last window": Pair(
        _edit((RETIRED, "")), "metrics.retired", COMPATIBLE, "closed on 2026-11-24",
    ),
    "metric renamed": Pair(
        _edit(("[metrics.dark_mode]", "[metrics.night_mode]")),
        "metrics.dark_mode", BREAKING, "keep the name 'dark_mode'",
    ),
    "name reused for another type": Pair(
        _edit((V3, V4), ('type = "categorical"\n', 'type = "boolean"\n'), (LABELS + "\n", ""), ('"grr"', '"rr"')),
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
