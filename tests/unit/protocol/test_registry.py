import json
import math
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from dither_protocol import (
    Registry,
    RegistryError,
    UnknownMetricError,
    load_registry,
    mechanism,
    parse_registry,
    registry_from_document,
)
from dither_protocol.labels import MAX_LABEL_LENGTH
from dither_protocol.registry import Privacy, decode_definition, encode_definition
from dither_protocol.registry.fields import MAX_DIMENSIONS, day
from support.protocol_samples import MARKER, browser, browser_with, document, refused

TOML = """
schema = 1
project = "example-editor"

[privacy]
max_epsilon_per_day = 8.0
max_epsilon_lifetime = 200

[metrics.browser]
version = 2
type = "categorical"
description = "Browser that opens links"
owner = "telemetry@example.org"
expires = 2027-06-30
categories = ["chrome", "firefox", "other"]
epsilon = 1.0
mechanism = "grr"
period = "day"
collection = "fresh"
dimensions = { os = ["linux", "macos", "windows"], channel = ["stable", "beta"] }
min_reports = 100
late_days = 3
use_case = "product_analytics"

[metrics.dark_mode]
version = 1
type = "boolean"
description = "Is the dark theme on?"
epsilon = 2
mechanism = "rr"
period = "hour"
"""


def _with(place: str, value: object) -> dict[str, Any]:
    """The sample with the value at a dotted place replaced."""
    changed = document()
    *parents, last = place.split(".")
    table: Any = changed
    for parent in parents:
        table = table[parent]
    table[last] = value
    return changed


def _without(place: str) -> dict[str, Any]:
    changed = _with(place, None)
    *parents, last = place.split(".")
    table: Any = changed
    for parent in parents:
        table = table[parent]
    del table[last]
    return changed


def _path_of(raw: object) -> str:
    with pytest.raises(RegistryError) as caught:
        registry_from_document(raw)
    assert str(caught.value) == f"{caught.value.path}: {caught.value.problem}"
    return caught.value.path


def test_toml_and_json_give_the_same_registry() -> None:
    """A registry read from TOML, from its JSON form, and from that form sent over the wire is one registry."""
    from_toml = parse_registry(TOML)
    assert from_toml == registry_from_document(document())
    again = registry_from_document(json.loads(json.dumps(from_toml.document, allow_nan=False)))
    assert again == from_toml
    assert again.document == from_toml.document
    for metric in from_toml:
        assert again.metric(metric.name).params_hash == metric.params_hash


def test_everything_is_read() -> None:
    """Each key of the file arrives in its attribute."""
    registry = parse_registry(TOML.encode())
    assert (registry.project, registry.privacy) == ("example-editor", Privacy(8.0, 200.0))
    metric = registry.metric("browser")
    assert (metric.name, metric.version, metric.type) == ("browser", 2, "categorical")
    assert (metric.description, metric.owner) == ("Browser that opens links", "telemetry@example.org")
    assert metric.labels == ("chrome", "firefox", "other")
    assert (metric.mechanism.name, metric.epsilon, metric.mechanism.d) == ("grr", 1.0, 3)
    assert (metric.period, metric.collection, metric.expires) == ("day", "fresh", date(2027, 6, 30))
    assert metric.dimensions == {"os": ("linux", "macos", "windows"), "channel": ("stable", "beta")}
    assert (metric.min_reports, metric.late_days, metric.use_case) == (100, 3, "product_analytics")


def test_defaults() -> None:
    """A metric with the required keys alone has these defaults."""
    changed = _without("metrics.dark_mode.period")
    metric = registry_from_document(changed).metric("dark_mode")
    assert (metric.labels, metric.period, metric.collection) == (("false", "true"), "day", "fresh")
    assert (metric.owner, metric.dimensions, metric.expires, metric.use_case) == ("", {}, None, None)
    assert (metric.min_reports, metric.late_days, metric.retention_days) == (100, 3, None)
    assert registry_from_document(_without("privacy")).privacy == Privacy()


def test_delta_and_the_expected_devices_are_read() -> None:
    """Both optional; delta is in (0, 1)."""
    changed = document()
    changed["privacy"] |= {"delta": 1e-6, "expected_devices": 20_000}
    assert registry_from_document(changed).privacy == Privacy(8.0, 200.0, 1e-6, 20_000)


def test_how_long_windows_are_kept_is_the_registrys_to_say() -> None:
    """From one day to a hundred years; it is part of the JSON form, so a server announces it."""
    for days in (1, 36_500):
        registry = registry_from_document(_with("metrics.browser.retention_days", days))
        assert registry.metric("browser").retention_days == days
        assert registry.document["metrics"]["browser"]["retention_days"] == days
        assert decode_definition(encode_definition(registry, "browser")).retention_days == days


def test_order_of_the_file_is_kept() -> None:
    """Metrics are listed in the order of the file."""
    assert [metric.name for metric in parse_registry(TOML)] == ["browser", "dark_mode"]


def test_load_from_a_file(tmp_path: Path) -> None:
    """A file is read by its path, given as a Path or as text; a missing one is an OSError."""
    file = tmp_path / "registry.toml"
    file.write_text(TOML, encoding="utf-8")
    assert load_registry(file) == load_registry(str(file)) == parse_registry(TOML)
    with pytest.raises(FileNotFoundError):
        load_registry(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"\xff\xfe", "is not UTF-8"),
        ("schema = ", "is not TOML"),
        (f"schema = {MARKER}", "is not TOML"),
        ("schema = 1\nschema = 1", "is not TOML"),
        ("schema = " + "1" * 5_000, "is not TOML"),
        ("schema = " + "[" * 50_000, "is not TOML"),
    ],
)
def test_files_that_are_no_toml(text: str | bytes, problem: str) -> None:
    """Damaged files are a RegistryError, however they are damaged, and are not repeated."""
    with refused(RegistryError, f"registry: {problem}"):
        parse_registry(text)


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("extra", "extra"),
        ("privacy.extra", "privacy.extra"),
        ("metrics.browser.extra", "metrics.browser.extra"),
        ("metrics.browser.Epsilon", "metrics.browser.Epsilon"),
    ],
)
def test_unknown_keys_are_errors(place: str, path: str) -> None:
    """A misspelt key, or one of a later version, is refused by name instead of meaning its default."""
    raw = _with(place, 1)
    assert _path_of(raw) == path
    with refused(RegistryError, "unknown key; known are "):
        registry_from_document(_with(place, MARKER))


@pytest.mark.parametrize(
    "place",
    [
        "schema",
        "project",
        "metrics",
        "metrics.browser.version",
        "metrics.browser.type",
        "metrics.browser.description",
        "metrics.browser.categories",
        "metrics.browser.epsilon",
    ],
)
def test_required_keys(place: str) -> None:
    """A key without a default is asked for by name."""
    with refused(RegistryError, f"{place}: is required"):
        registry_from_document(_without(place))


def test_without_a_mechanism_the_best_one_is_taken() -> None:
    """A metric that names none, or `auto`, has the mechanism that `auto` stands for, by its own name."""
    named = registry_from_document(_with("metrics.browser.mechanism", "grr"))
    for raw in (_without("metrics.browser.mechanism"), _with("metrics.browser.mechanism", "auto")):
        registry = registry_from_document(raw)
        assert registry.metric("browser").mechanism == mechanism("auto", 1.0, 3) == mechanism("grr", 1.0, 3)
        assert registry.metric("browser").params_hash == named.metric("browser").params_hash


def test_once_requires_expires() -> None:
    """A `once` metric must say when it ends."""
    with refused(RegistryError, "metrics.browser.expires: is required where period is 'once'"):
        registry_from_document(browser_with(period="once", expires=None))
    assert browser(period="once").period == "once"


@pytest.mark.parametrize("raw", [None, [], "x", 1])
def test_registry_must_be_a_table(raw: object) -> None:
    """A registry is a table at the top."""
    assert _path_of(raw) == "registry"


EPSILONS = [0, 0.0, -1.0, math.nan, math.inf, -math.inf, True, "1.0", None, [1.0], 10**400]
LONG = "a" * (MAX_LABEL_LENGTH + 1)
WIDE = {f"d{i}": ["x"] for i in range(MAX_DIMENSIONS + 1)}
HUGE = {name: [f"v{i}" for i in range(11)] for name in "abc"}  # 1,331 combinations
EXPANDING = "\ufb2c" * 200  # 600 characters in normal form C


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((f"metrics.browser.{key}", value) for key in ["epsilon"] for value in [*EPSILONS, 0.0001, 20.5]),
        *((f"privacy.{key}", v) for key in ("max_epsilon_per_day", "max_epsilon_lifetime") for v in EPSILONS),
        *(("schema", value) for value in (0, 2, True, 1.0, "1", None)),
        *(("project", value) for value in ("", "Editor", "a b", "a" * 65, 1, "é")),
        *(("metrics", value) for value in ({}, [], None)),
        *(("privacy", value) for value in (None, [], 8.0)),
        *(("privacy.delta", value) for value in (*EPSILONS, 1, 1.0, 2.0)),
        *(("privacy.expected_devices", value) for value in (None, 0, -1, 1.5, True, "1", 2**31)),
        ("metrics.browser", 1),
        *(("metrics.browser.version", value) for value in (0, -1, True, 1.0, "1", 2**31)),
        *(("metrics.browser.type", value) for value in ("Boolean", "numeric", 1, None)),
        *(("metrics.browser.description", value) for value in (1, None, "a\x00b", "a\x9bb", "a\ud800b")),
        *(("metrics.browser.owner", value) for value in (1, "a\x1bb")),
        *(("metrics.browser.mechanism", value) for value in ("Auto", "rr", "GRR", 1, None)),
        *(("metrics.browser.period", value) for value in ("daily", "", None, 1, ["day"])),
        *(("metrics.browser.collection", value) for value in ("memoised", "Fresh", None)),
        *(
            ("metrics.browser.expires", v)
            for v in ("2027-02-29", "2027", 2027, True, "1999-12-31", "2200-01-01")
        ),
        *(("metrics.browser.min_reports", value) for value in (0, True, 1.5)),
        *(("metrics.browser.late_days", value) for value in (-1, 31, True, 1.0)),
        *(("metrics.browser.retention_days", value) for value in (0, -1, 36_501, True, 1.0, None)),
        *(("metrics.browser.use_case", value) for value in ("other", 1)),
        *(("metrics.browser.categories", value) for value in ([], ["one"], "ab", {"a": 1}, None)),
        *(
            ("metrics.browser.dimensions", value)
            for value in ([], None, WIDE, HUGE, {"OS": ["x"]}, {1: ["x"]})
        ),
        ("metrics.dark_mode.categories", ["false", "true"]),
    ],
)
def test_bad_values_name_their_key(place: str, value: object) -> None:
    """A value that breaks the rule of its key is refused, and the error names the key."""
    assert _path_of(_with(place, value)) == place


@pytest.mark.parametrize(
    ("categories", "place"),
    [
        (["a", "a"], "[1]"),
        (["x", "caf\u00e9", "cafe\u0301"], "[2]"),
        (["a", 1], "[1]"),
        (["a", None], "[1]"),
        (["a", True], "[1]"),
        (["", "a"], "[0]"),
        (["a", "b\x00"], "[1]"),
        (["a", "b\x85c"], "[1]"),
        (["a", "b\u202ec"], "[1]"),
        (["a", LONG], "[1]"),
        (["a", EXPANDING], "[1]"),
        *((["a", f"b{chr(code)}"], "[1]") for code in (0xD800, 0xDFFF)),
    ],
)
def test_bad_labels_name_their_place(categories: list[object], place: str) -> None:
    """A label that is refused, or that equals an earlier one after normalisation, is named by its place."""
    assert _path_of(browser_with(categories=categories)) == f"metrics.browser.categories{place}"
    dimension = browser_with(dimensions={"os": categories})
    assert _path_of(dimension) == f"metrics.browser.dimensions.os{place}"


def test_duplicate_label_points_at_the_first() -> None:
    """The error about a duplicate says which label it repeats, by place."""
    with refused(RegistryError, "is the same label as metrics.browser.categories[0] after Unicode normal"):
        registry_from_document(browser_with(categories=[MARKER, "x", MARKER]))


@pytest.mark.parametrize(
    "place",
    [
        "schema",
        "project",
        "metrics",
        "metrics.browser",
        "privacy",
        "privacy.max_epsilon_per_day",
        *(
            f"metrics.browser.{key}"
            for key in document()["metrics"]["browser"]
            if key not in ("description", "owner")
        ),
    ],
)
def test_bad_values_are_not_repeated(place: str) -> None:
    """No error about a registry repeats the value that it refuses."""
    with refused(RegistryError, place):
        registry_from_document(_with(place, MARKER + "\n "))


@pytest.mark.parametrize("name", ["Browser", "a:b", "", "a" * 65, "dark-mode"])
def test_bad_names_of_metrics(name: str) -> None:
    """A metric's name could break a key of the store, and is checked."""
    assert _path_of(_with("metrics", {name: document()["metrics"]["dark_mode"]})) == "metrics"
    assert _path_of(_with("metrics", {1: document()["metrics"]["dark_mode"]})) == "metrics"


def test_labels_are_normalised() -> None:
    """Labels and dimension values come out in normal form C, in their order."""
    metric = browser(categories=["cafe\u0301", "a"], dimensions={"os": ["cafe\u0301"]})
    assert metric.labels == ("caf\u00e9", "a")
    assert metric.dimensions == {"os": ("caf\u00e9",)}


def test_last_day_of_a_datetime_is_refused() -> None:
    """A time of day in `expires` would mean something else in every zone."""
    with pytest.raises(RegistryError):
        day("metrics.browser.expires", datetime(2027, 6, 30))
    with refused(RegistryError, "metrics.browser.expires: must be a date"):
        parse_registry(TOML.replace("2027-06-30", "2027-06-30T12:00:00Z"))


def test_text_may_have_lines() -> None:
    """A description may have several lines."""
    assert browser(description="one\n\ttwo").description == "one\n\ttwo"


def test_unknown_metric() -> None:
    """Asking for a metric that is not there is an error that is also a KeyError, printed as a sentence."""
    registry = parse_registry(TOML)
    for name in (MARKER, [MARKER]):
        with refused(UnknownMetricError, "the registry has no metric of this name") as caught:
            registry.metric(name)  # type: ignore[arg-type]
        assert isinstance(caught.value, KeyError)
        assert str(caught.value) == "the registry has no metric of this name"
    assert str(UnknownMetricError()) == ""


def test_worst_case_per_day_counts_windows_and_dimensions() -> None:
    """A device may answer once per window and combination of dimensions: 1 x 1 x 6 and 2 x 24 x 1."""
    assert parse_registry(TOML).worst_case_per_day() == 1.0 * 6 + 2.0 * 24
    only_dark_mode = _without("metrics.browser")
    for period in ("day", "week", "month"):
        only_dark_mode["metrics"]["dark_mode"]["period"] = period
        assert registry_from_document(only_dark_mode).worst_case_per_day() == 2.0


def test_document_is_plain_json() -> None:
    """The JSON form of a registry from TOML has its dates as ISO text and lists as lists."""
    registry: Registry = parse_registry(TOML)
    table = registry.document["metrics"]["browser"]
    assert table["expires"] == "2027-06-30"
    assert table["categories"] == ["chrome", "firefox", "other"]


def test_too_many_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of metrics is bounded."""
    monkeypatch.setattr("dither_protocol.registry.document.MAX_METRICS", 1)
    assert _path_of(document()) == "metrics"
