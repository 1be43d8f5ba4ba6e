"""`dither registry diff`: verdicts as words, as JSON and as exit codes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from dither_protocol.registry import parse_registry
from support.signing import SigningKey, signed

OLD = """
schema = 1
project = "example"
[privacy]
max_epsilon_per_day = 7.0
[metrics.browser]
version = 3
type = "categorical"
description = "Browser that opens links"
categories = ["a", "b", "c"]
epsilon = 1.0
"""


def diff(folder: Path, new: str | bytes, *options: str, old: str | bytes = OLD) -> Result:
    """Run `dither registry diff` on two files."""
    paths = []
    for name, text in (("old", old), ("new", new)):
        path = folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        paths.append(str(path))
    return CliRunner().invoke(cli, ["registry", "diff", *options, *paths])


@pytest.mark.parametrize(
    ("was", "becomes", "options", "code", "verdict"),
    [
        ("", "", (), ExitCode.OK, "compatible"),
        ("Browser that", "The browser that", (), ExitCode.OK, "compatible"),
        ("= 7.0", "= 8.0", (), ExitCode.OK, "notice"),
        ("= 7.0", "= 8.0", ("--strict",), ExitCode.FAILED, "breaking"),
        ("epsilon = 1.0", "epsilon = 2.0", (), ExitCode.FAILED, "breaking"),
    ],
)
def test_the_exit_code_is_the_verdict(  # noqa: PLR0917  a table
    tmp_path: Path, was: str, becomes: str, options: tuple[str, ...], code: ExitCode, verdict: str
) -> None:
    """0 for what may be done, a notice included; 1 for what may not. With --json as well."""
    assert diff(tmp_path, OLD.replace(was, becomes), *options).exit_code == code
    as_json = diff(tmp_path, OLD.replace(was, becomes), *options, "--json")
    assert as_json.exit_code == code
    assert json.loads(as_json.output)["verdict"] == verdict


def test_the_reason_and_the_right_move_are_said(tmp_path: Path) -> None:
    """Each difference has its line with the key, and below it what to do."""
    output = diff(tmp_path, OLD.replace("epsilon = 1.0", "epsilon = 2.0")).output
    assert "breaking metrics.browser.epsilon: raised from 1 to 2" in output
    assert "    -> raise version to 4" in output
    assert "no difference" in diff(tmp_path, OLD).output


def test_json_has_an_object_for_each_difference(tmp_path: Path) -> None:
    """Metric, key, verdict, reason and move; of the registry as a whole without a metric."""
    text = OLD.replace("epsilon = 1.0", "epsilon = 2.0").replace("= 7.0", "= 6.0")
    found = json.loads(diff(tmp_path, text, "--json").output)
    assert [sorted(each) for each in found["differences"]] == [
        ["key", "metric", "move", "reason", "verdict"]
    ] * 2
    assert [(each["metric"], each["key"], each["verdict"]) for each in found["differences"]] == [
        (None, "privacy.max_epsilon_per_day", "compatible"),
        ("browser", "epsilon", "breaking"),
    ]
    assert found["refused"] is None


@pytest.mark.parametrize("side", ["old", "new"])
@pytest.mark.parametrize("broken", ["schema = 0", "x = [", OLD.replace("schema = 1", "schema = 2")])
def test_a_file_that_is_refused_is_named(tmp_path: Path, side: str, broken: str) -> None:
    """Exit code 1: nothing that cannot be read is compatible with anything."""
    texts = {"old": OLD, "new": OLD} | {side: broken}
    result = diff(tmp_path, texts["new"], "--json", old=texts["old"])
    assert result.exit_code == ExitCode.FAILED
    refused = json.loads(result.output)["refused"]
    assert refused["file"] == str(tmp_path / side)
    assert "refused" in diff(tmp_path, texts["new"], old=texts["old"]).output


def test_the_signed_form_is_compared_like_any_other(tmp_path: Path) -> None:
    """What is published against what is to be published next."""
    published = signed(parse_registry(OLD).document, 4, SigningKey())
    assert "no difference" in diff(tmp_path, OLD, old=published).output
    raised = OLD.replace("epsilon = 1.0", "epsilon = 2.0")
    assert diff(tmp_path, raised, old=published).exit_code == ExitCode.FAILED
