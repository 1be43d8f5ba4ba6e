import hashlib
import pickle
from datetime import UTC, date, datetime

import pytest

from dither_protocol import (
    DimensionError,
    Metric,
    ValueDomainError,
    ValueTypeError,
    WindowError,
    registry_from_document,
)
from dither_protocol.registry import canonical_dimensions
from support.protocol_samples import MARKER, browser, document, refused

GOLDEN = (
    '{"collection":"fresh","dimensions":{"channel":["beta","stable"],"os":["linux","macos","windows"]},'
    '"epsilon":1.0,"labels":["chrome","firefox","other"],"mechanism":"grr","name":"browser",'
    '"period":"day","type":"categorical","version":2}'
)
OS = {"os": "linux", "channel": "beta"}


def _dark_mode() -> Metric:
    return registry_from_document(document()).metric("dark_mode")


def test_params_hash_recipe() -> None:
    """The hash is the first 8 hex digits of the SHA-256 of this very text: a change breaks every device."""
    assert browser().params_hash == hashlib.sha256(GOLDEN.encode()).hexdigest()[:8] == "d2c2a082"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 3),
        ("categories", ["chrome", "firefox"]),
        ("categories", ["firefox", "chrome", "other"]),
        ("categories", ["chrome", "firefox", "Other"]),
        ("epsilon", 1.5),
        ("mechanism", "oue"),
        ("period", "week"),
        ("dimensions", {"os": ["linux", "macos", "windows"]}),
        ("dimensions", {"os": ["linux", "macos"], "channel": ["stable", "beta"]}),
        ("dimensions", {"system": ["linux", "macos", "windows"], "channel": ["stable", "beta"]}),
        ("dimensions", None),
    ],
)
def test_params_hash_changes_with_the_meaning(key: str, value: object) -> None:
    """Whatever changes what a report means changes the hash."""
    assert browser(**{key: value}).params_hash != browser().params_hash


def test_params_hash_tells_names_and_types_apart() -> None:
    """The same two words as a boolean and as a category, and one metric under two names, differ."""
    changed = document()
    boolean = dict(changed["metrics"]["dark_mode"], mechanism="grr")
    changed["metrics"]["a"] = boolean
    changed["metrics"]["b"] = boolean
    changed["metrics"]["c"] = dict(boolean, type="categorical", categories=["false", "true"])
    changed["metrics"]["d"] = dict(boolean, mechanism="rr")
    registry = registry_from_document(changed)
    assert len({registry.metric(name).params_hash for name in "abcd"}) == 4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("description", "Which browser?"),
        ("owner", "somebody@example.org"),
        ("owner", None),
        ("expires", "2028-01-01"),
        ("expires", None),
        ("min_reports", 1),
        ("late_days", 0),
        ("retention_days", 1),
        ("retention_days", None),
        ("use_case", "census"),
        ("use_case", None),
        ("collection", None),  # the default
        ("period", None),  # the default
        ("epsilon", 1),
        ("dimensions", {"channel": ["beta", "stable"], "os": ["windows", "macos", "linux"]}),
    ],
)
def test_params_hash_ignores_everything_else(key: str, value: object) -> None:
    """What is for people, for the estimator or for the calendar leaves the hash alone."""
    assert browser(**{key: value}).params_hash == browser().params_hash


def test_params_hash_is_about_normal_form() -> None:
    """Two spellings of one label are one meaning."""
    composed = browser(categories=["caf\u00e9", "other"])
    assert composed.params_hash == browser(categories=["cafe\u0301", "other"]).params_hash


def test_index_of_categories() -> None:
    """An answer is found by its label, in whatever Unicode form the app has it."""
    metric = browser(categories=["caf\u00e9", "other"])
    assert [metric.index_of(value) for value in ("caf\u00e9", "cafe\u0301", "other")] == [0, 0, 1]


def test_index_of_booleans() -> None:
    """False is 0 and True is 1."""
    assert [_dark_mode().index_of(value) for value in (False, True)] == [0, 1]


@pytest.mark.parametrize("value", [0, 1, "true", None, 1.0, MARKER, [True]])
def test_boolean_takes_bools_alone(value: object) -> None:
    """1 is not True, and the error does not repeat what came instead."""
    with refused(ValueTypeError, "metric 'dark_mode' takes True or False"):
        _dark_mode().index_of(value)


@pytest.mark.parametrize("value", [0, True, None, b"chrome", ["chrome"], 471147])
def test_category_takes_text_alone(value: object) -> None:
    """An index or bytes in place of a label is a mistake in the app, named without the value."""
    with refused(ValueTypeError, "metric 'browser' takes a str", secret=471147):
        browser().index_of(value)


@pytest.mark.parametrize("value", [MARKER, MARKER * 1_000, MARKER + "\ud800", "Chrome", ""])
def test_value_outside_the_domain_is_not_repeated(value: str) -> None:
    """An answer that is no category is refused, and the error does not repeat it."""
    with refused(ValueDomainError, "none of the categories of metric 'browser'", secret=value or MARKER):
        browser().index_of(value)


def test_longest_label_is_found_in_its_longest_form() -> None:
    """A label of 300 characters is found from its fully decomposed spelling of four times the length."""
    label = "\u1f82" * 300
    metric = browser(categories=[label, "other"])
    assert metric.index_of("\u03b1\u0313\u0300\u0345" * 300) == 0


def test_dimensions_in_canonical_form() -> None:
    """Dimensions come out sorted by name and in normal form C."""
    assert browser().check_dimensions(OS) == (("channel", "beta"), ("os", "linux"))
    assert canonical_dimensions({"b": "cafe\u0301", "a": "x"}) == (("a", "x"), ("b", "caf\u00e9"))
    assert _dark_mode().check_dimensions(None) == _dark_mode().check_dimensions({}) == ()


@pytest.mark.parametrize(
    "dimensions",
    [
        None,
        {},
        {"os": "linux"},
        dict(OS, extra="x"),
        {"os": "linux", "Channel": "beta"},
        dict(OS, **{MARKER: "x"}),
    ],
)
def test_every_declared_dimension_and_no_other(dimensions: dict[str, str] | None) -> None:
    """A report carries exactly the declared dimensions; the error lists them and not what came."""
    with refused(DimensionError, "metric 'browser' takes the dimensions: channel, os"):
        browser().check_dimensions(dimensions)


def test_metric_without_dimensions_says_so() -> None:
    """Where none is declared the error says none."""
    with refused(DimensionError, "takes the dimensions: none"):
        _dark_mode().check_dimensions({"os": MARKER})


@pytest.mark.parametrize(
    "dimensions",
    [
        MARKER,
        [MARKER],
        0,
        [],
        {"os": 1, "channel": "beta"},
        {"os": [MARKER], "channel": "beta"},
        {1: "linux"},
    ],
)
def test_dimensions_of_wrong_type(dimensions: dict[str, str]) -> None:
    """Dimensions map texts to texts; anything else, even if empty, is refused."""
    with refused(DimensionError, "must map names to strings"):
        browser().check_dimensions(dimensions)


def test_dimension_value_outside_its_list_is_not_repeated() -> None:
    """A value that is not listed is refused by the name of its dimension."""
    with refused(DimensionError, "the value of dimension 'os' is not in its list"):
        browser().check_dimensions(dict(OS, os=MARKER))


def test_windows_of_the_metric() -> None:
    """A metric finds and reads windows of its own period."""
    window = browser().window_at(datetime(2026, 11, 29, 13, tzinfo=UTC))
    assert window.label == "2026-11-29"
    assert browser().parse_window("2026-11-29") == window
    with refused(WindowError, "period 'day'"):
        browser().parse_window(MARKER)


def test_expired_after_the_last_day_a_window_may_begin() -> None:
    """`expires` is the last day on which a window may begin."""
    metric = browser(period="week", expires="2026-11-23")  # the Monday of week 48
    assert not metric.expired(metric.parse_window("2026-W48"))
    assert metric.expired(metric.parse_window("2026-W49"))
    forever = browser(expires=None)
    assert not forever.expired(forever.parse_window("2199-12-31"))


def test_a_metric_closes_its_windows_by_its_own_late_days() -> None:
    """Their end and three days, where it says nothing else."""
    metric = browser(period="week")
    assert metric.closes_at(metric.parse_window("2026-W48")) == datetime(2026, 12, 3, tzinfo=UTC)
    late = browser(period="week", late_days=0)
    assert late.closes_at(late.parse_window("2026-W48")) == datetime(2026, 11, 30, tzinfo=UTC)


def test_once_closes_instead_of_expiring() -> None:
    """The one window of a `once` metric ends with its last day."""
    metric = browser(period="once")
    window = metric.parse_window("once")
    assert metric.expires == date(2027, 6, 30)
    assert window.end == datetime(2027, 7, 1, tzinfo=UTC)
    assert not metric.expired(window)


def test_equal_metrics_have_one_hash() -> None:
    """A metric can be a key: equal ones are one key, whatever the order in which their dimensions are written."""
    reordered = browser(dimensions=dict(list(browser().dimensions.items())[::-1]))
    assert list(reordered.dimensions) != list(browser().dimensions)
    assert reordered == browser()
    assert len({browser(), browser(), reordered}) == 1


def test_another_meaning_is_another_key() -> None:
    """Versions stand apart in a set; a description is no meaning, but it keeps two metrics apart as well."""
    metrics = {browser(), browser(version=3), browser(description="Which browser?"), _dark_mode()}
    assert len(metrics) == 4
    assert hash(browser(description="Which browser?")) == hash(browser())


def test_a_metric_survives_pickling() -> None:
    """It may be sent to another process, and is the same key there."""
    again = pickle.loads(pickle.dumps(browser()))  # noqa: S301  # its own bytes
    assert {again: 1}[browser()] == 1
