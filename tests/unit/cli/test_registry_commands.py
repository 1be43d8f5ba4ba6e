import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from dither_cli.registry_commands import findings
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
description = "Dark theme"
epsilon = 1.0
mechanism = "rr"
dimensions = { os = ["linux", "macos", "windows"] }
use_case = "product_analytics"
[metrics.browser]
version = 1
type = "categorical"
description = "Browser"
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
    text = REGISTRY.replace('mechanism = "rr"', f'mechanism = "rr"\nexpires = {expires}')
    expected = [] if problem is None else [{"path": "metrics.dark_mode.expires", "problem": problem}]
    assert findings(parse_registry(text), TODAY)["warnings"] == expected


def test_warnings_are_printed_and_do_not_fail(tmp_path: Path) -> None:
    """Exit code 0: the registry is one that a server would take."""
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    result = check(tmp_path, REGISTRY.replace('mechanism = "rr"', f'mechanism = "rr"\nexpires = {yesterday}'))
    assert result.exit_code == ExitCode.OK
    assert "warning metrics.dark_mode.expires: it expired on" in result.output


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    """Exit code 2, as for any wrong argument."""
    result = CliRunner().invoke(cli, ["registry", "check", str(tmp_path / "missing.toml")])
    assert result.exit_code == ExitCode.USAGE
