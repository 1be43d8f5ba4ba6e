import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from dither_cli.registry_lint import findings
from dither_protocol.registry import parse_registry

TODAY = date(2026, 11, 29)
REGISTRY = """
schema = 1
project = "example"
[privacy]
max_epsilon_per_day = 7.0
[metrics.dark_mode]
version = 2
type = "boolean"
description = "Whether the dark theme is on"
owner = "team@example.org"
expires = 2126-12-31
epsilon = 1.0
mechanism = "rr"
dimensions = { os = ["linux", "macos", "windows"] }
use_case = "product_analytics"
[metrics.browser]
version = 1
type = "categorical"
description = "Browser that opens links"
owner = "team@example.org"
expires = 2126-12-31
categories = ["a", "b", "c"]
epsilon = 4.0
mechanism = "oue"
period = "week"
"""


def check(tmp_path: Path, text: str, *options: str) -> Result:
    """Run `dither registry check` on a file with this text."""
    file = tmp_path / "registry.toml"
    file.write_text(text, encoding="utf-8")
    return CliRunner().invoke(cli, ["registry", "check", *options, str(file)])


def test_a_good_registry_is_shown_as_a_table(tmp_path: Path) -> None:
    """Every metric has its row, and the worst case stands beside its limit."""
    result = check(tmp_path, REGISTRY)
    assert result.exit_code == ExitCode.OK, result.output
    rows = {line.split()[0]: line.split()[1:] for line in result.output.splitlines() if line.strip()}
    assert rows["dark_mode"] == ["2", "boolean", "2", "rr", "1", "day", "1", "(3)", "1"]
    assert rows["browser"] == ["1", "categorical", "3", "oue", "4", "week", "0", "3"]
    assert "Worst case per device and day: epsilon 7 (limit 7)." in result.output
    assert rows["ok"] == []


def test_json_has_the_same_findings(tmp_path: Path) -> None:
    """For continuous integration: numbers as numbers, one object."""
    found = json.loads(check(tmp_path, REGISTRY, "--json").output)
    assert (found["project"], found["refused"], found["warnings"]) == ("example", None, [])
    assert (found["worst_case_epsilon_per_day"], found["max_epsilon_per_day"]) == (7.0, 7.0)
    dark_mode = found["metrics"][0]
    assert len(dark_mode.pop("params")) == 8
    assert dark_mode == {
        "name": "dark_mode",
        "version": 2,
        "type": "boolean",
        "d": 2,
        "mechanism": "rr",
        "epsilon": 1.0,
        "period": "day",
        "dimensions": 1,
        "cells_per_window": 3,
        "report_bits": 1,
    }


def test_a_registry_that_spends_too_much_is_refused(tmp_path: Path) -> None:
    """The sum over all metrics, windows and dimensions must fit the promise of [privacy]."""
    result = check(tmp_path, REGISTRY.replace("max_epsilon_per_day = 7.0", "max_epsilon_per_day = 6.5"))
    assert result.exit_code == ExitCode.FAILED
    assert "refused privacy.max_epsilon_per_day: is 6.5, but the metrics add up to 7" in result.output


def test_a_broken_registry_is_refused_with_its_key(tmp_path: Path) -> None:
    """The key, the rule, exit code 1; with --json as well."""
    broken = REGISTRY.replace("epsilon = 4.0", "epsilon = -1")
    result = check(tmp_path, broken)
    assert result.exit_code == ExitCode.FAILED
    assert "refused metrics.browser.epsilon: must be a finite number above 0" in result.output
    as_json = check(tmp_path, broken, "--json")
    assert as_json.exit_code == ExitCode.FAILED
    assert json.loads(as_json.output)["refused"]["path"] == "metrics.browser.epsilon"


def test_without_a_limit_the_sum_is_shown_and_that_there_is_none(tmp_path: Path) -> None:
    """No limit is allowed, but never passed over."""
    result = check(tmp_path, REGISTRY.replace("max_epsilon_per_day = 7.0", ""))
    assert result.exit_code == ExitCode.OK
    assert "epsilon 7 (no limit is set in [privacy])" in result.output


@pytest.mark.parametrize(
    ("was", "becomes", "path", "problem"),
    [
        ('owner = "team@example.org"\n', "", "metrics.dark_mode.owner", "nobody is named"),
        ("Whether the dark theme is on", "Dark mode", "metrics.dark_mode.description", "too short to say"),
        ("expires = 2126-12-31\n", "", "metrics.dark_mode.expires", "asked without end"),
        (
            "version = 2",
            "version = 2\nmin_reports = 19",
            "metrics.dark_mode.min_reports",
            "19 suppresses next to",
        ),
        (
            'categories = ["a", "b", "c"]',
            f"categories = {[str(n) for n in range(30_000)]}",
            "metrics.browser.categories",
            "take about 6 MiB: 30,000 values, 1 cells",
        ),
    ],
)
def test_what_should_be_looked_at_is_warned_about(was: str, becomes: str, path: str, problem: str) -> None:
    """Nobody to ask, a question that says nothing, no end, no suppression, more than a page can show."""
    text = REGISTRY.replace(was, becomes, 1)
    (warning,) = findings(parse_registry(text), TODAY)["warnings"]
    assert warning["path"] == path
    assert problem in warning["problem"]


def test_counters_that_fill_the_store_are_warned_about() -> None:
    """By the memory of one window over all cells and partitions, which the mechanism's table decides."""
    many = f"categories = {[str(n) for n in range(20_000)]}\ndimensions = {{ os = {[str(n) for n in range(100)]} }}"
    text = REGISTRY.replace('categories = ["a", "b", "c"]', many)
    text = text.replace('mechanism = "oue"', 'mechanism = "grr"').replace("max_epsilon_per_day = 7.0", "")
    warnings = {each["path"]: each["problem"] for each in findings(parse_registry(text), TODAY)["warnings"]}
    assert warnings.keys() == {"metrics.browser.mechanism", "metrics.browser.categories"}
    assert "grr keeps 20,000 counters a cell: up to 122 MiB" in warnings["metrics.browser.mechanism"]
    assert "376 MiB" in warnings["metrics.browser.categories"]  # 195 bytes, 20,000 values, 101 cells


def test_the_worst_case_for_life_stands_beside_its_limit(tmp_path: Path) -> None:
    """Both ways: a sum until the last expiry, or that there is none; over the limit it is a warning."""
    text = REGISTRY.replace(
        "max_epsilon_per_day = 7.0", "max_epsilon_per_day = 7.0\nmax_epsilon_lifetime = 100.0"
    )
    text = text.replace("expires = 2126-12-31", f"expires = {TODAY + timedelta(days=40)}")
    found = findings(parse_registry(text), TODAY)
    assert found["worst_case_epsilon_lifetime"] == 41 * 3 * 1.0 + 6 * 4.0 + 4.0  # a day each, and weeks begun
    (warning,) = found["warnings"]
    assert warning["path"] == "privacy.max_epsilon_lifetime"
    assert "add up to 151 until they expire" in warning["problem"]
    endless = check(tmp_path, REGISTRY.replace("expires = 2126-12-31\n", ""))
    assert "for life: epsilon without end, since a metric does not expire (no limit is set" in endless.output


@pytest.mark.parametrize(
    ("delta", "in_file", "devices", "problem"),
    [
        ("1e-6", None, None, "cannot be judged"),
        ("1e-6", 1_000, None, "is 1e-06, not below 1/n^2 = 1e-06 for 1,000 devices"),
        ("9.9e-7", 1_000, None, None),
        ("9.9e-7", 1_000, 20_000, "not below 1/n^2 = 2.5e-09 for 20,000 devices"),
        ("1e-6", 20_000, 999, None),
        ("1e-10", None, 20_000, None),
    ],
)
def test_a_delta_is_judged_by_the_expected_devices(
    delta: str, in_file: int | None, devices: int | None, problem: str | None
) -> None:
    """Below 1/n^2, by the number of the command line or else of the file."""
    keys = f"max_epsilon_per_day = 7.0\nmax_epsilon_lifetime = 9e9\ndelta = {delta}\n"
    keys += "" if in_file is None else f"expected_devices = {in_file}\n"
    found = findings(parse_registry(REGISTRY.replace("max_epsilon_per_day = 7.0", keys)), TODAY, devices)
    assert [each["path"] for each in found["warnings"]] == ([] if problem is None else ["privacy.delta"])
    if problem:
        assert problem in found["warnings"][0]["problem"]


def test_a_delta_without_a_limit_does_nothing(tmp_path: Path) -> None:
    """And that is said."""
    text = REGISTRY.replace("max_epsilon_per_day = 7.0", "max_epsilon_per_day = 7.0\ndelta = 1e-12")
    assert "does nothing without max_epsilon_lifetime" in check(tmp_path, text, "--devices", "1000").output


def test_labels_in_another_unicode_form_are_a_notice(tmp_path: Path) -> None:
    """Categories and dimension values, by their place; the registry is fine all the same."""
    text = REGISTRY.replace('["a", "b", "c"]', '["a", "u\u0308", "\u00fc2"]').replace('"macos"', '"o\u0308s"')
    found = findings(parse_registry(text), TODAY)
    assert [each["path"] for each in found["notices"]] == [
        "metrics.dark_mode.dimensions.os[1]",
        "metrics.browser.categories[1]",
    ]
    result = check(tmp_path, text, "--strict")
    assert result.exit_code == ExitCode.OK
    assert "notice metrics.browser.categories[1]: is not in Unicode normal form C" in result.output


def test_strict_fails_for_a_warning(tmp_path: Path) -> None:
    """For continuous integration that wants none; without it a warning passes."""
    text = REGISTRY.replace('owner = "team@example.org"\n', "")
    assert check(tmp_path, text).exit_code == ExitCode.OK
    strict = check(tmp_path, text, "--strict")
    assert strict.exit_code == ExitCode.FAILED
    assert "refused for its warnings (--strict)" in strict.output
    assert check(tmp_path, REGISTRY, "--strict").exit_code == ExitCode.OK


@pytest.mark.parametrize(
    ("epsilon", "problem"),
    [
        ("0.9", "0.9 is outside the usual 1 to 5 for product_analytics"),
        ("5.5", "5.5 is outside the usual 1 to 5 for product_analytics"),
        ("1.0", None),
        ("5.0", None),
    ],
)
def test_an_epsilon_outside_the_guidance_is_warned_about(epsilon: str, problem: str | None) -> None:
    """A warning, not a refusal; the ends of the range belong to it."""
    text = REGISTRY.replace("epsilon = 1.0", f"epsilon = {epsilon}")
    expected = [] if problem is None else [{"path": "metrics.dark_mode.epsilon", "problem": problem}]
    assert findings(parse_registry(text), TODAY)["warnings"] == expected


@pytest.mark.parametrize(
    ("expires", "problem"),
    [
        (TODAY - timedelta(days=1), "it expired on 2026-11-28"),
        (TODAY, "it expires on 2026-11-29, in 0 days"),
        (TODAY + timedelta(days=30), "it expires on 2026-12-29, in 30 days"),
        (TODAY + timedelta(days=31), None),
    ],
)
def test_an_expiry_that_is_near_or_past_is_warned_about(expires: date, problem: str | None) -> None:
    """Thirty days are enough to ship a new version of an app."""
    text = REGISTRY.replace("expires = 2126-12-31", f"expires = {expires}", 1)
    expected = [] if problem is None else [{"path": "metrics.dark_mode.expires", "problem": problem}]
    assert findings(parse_registry(text), TODAY)["warnings"] == expected


def test_warnings_are_printed_and_do_not_fail(tmp_path: Path) -> None:
    """Exit code 0: the registry is one that a server would take."""
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    result = check(tmp_path, REGISTRY.replace("expires = 2126-12-31", f"expires = {yesterday}", 1))
    assert result.exit_code == ExitCode.OK
    assert "warning metrics.dark_mode.expires: it expired on" in result.output


@pytest.mark.parametrize(
    "file", ["cli/dither_cli/data/example_registry.toml", "examples/cli_app/registry.toml"]
)
def test_registries_that_come_along_pass(file: str) -> None:
    """Who copies an example gets one that a server takes, with an owner and an end for each metric."""
    result = CliRunner().invoke(cli, ["registry", "check", "--json", str(Path(__file__).parents[3] / file)])
    assert result.exit_code == ExitCode.OK, result.output
    assert {each["path"] for each in json.loads(result.output)["warnings"]} <= {
        "privacy.max_epsilon_lifetime"
    }


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    """Exit code 2, as for any wrong argument."""
    result = CliRunner().invoke(cli, ["registry", "check", str(tmp_path / "missing.toml")])
    assert result.exit_code == ExitCode.USAGE
