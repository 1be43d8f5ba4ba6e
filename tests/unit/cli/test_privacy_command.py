"""``dither privacy``: of a file, and of a live server, the same figures as ``GET /v1/privacy``."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dither_cli.epsilon_text import bound_text, epsilon_text
from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from support.server import INGEST_KEY, OPERATOR_KEY, Server, running_server, write_files
from support.store import running_store

LAST = date(2126, 11, 30)
REGISTRY = f"""
schema = 1
project = "example-editor"
[privacy]
max_epsilon_per_day = 20.0
max_epsilon_lifetime = 9.0
[metrics.theme]
version = 1
type = "categorical"
description = "The theme"
categories = ["dark", "[bold]light[/]"]
epsilon = 0.5
mechanism = "grr"
period = "hour"
use_case = "location"
dimensions = {{ os = ["linux", "macos"] }}
expires = {LAST}
[metrics.endless]
version = 1
type = "boolean"
description = "Asked for ever"
epsilon = 1.5
mechanism = "rr"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A live server with this registry."""
    folder = tmp_path_factory.mktemp("server")
    write_files(folder, REGISTRY)
    with running_store() as valkey, running_server(folder, valkey.url) as running:
        yield running


def _run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(cli, ["privacy", *arguments])


def _file(tmp_path: Path, text: str = REGISTRY) -> str:
    file = tmp_path / "registry.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_file_is_added_up_as_a_table(tmp_path: Path) -> None:
    """Each metric by span, all together, the limits, and what the limits let a device spend."""
    result = _run(_file(tmp_path))
    assert result.exit_code == ExitCode.OK, result.output
    rows = {line.split("  ")[0]: line.split() for line in result.output.splitlines()}
    assert rows["theme"][1:7] == ["hour", "fresh", "0.5", "24", "168", "8,784"]
    assert rows["endless"][1:] == ["day", "fresh", "1.5", "1.5", "10.5", "549", "no", "end"]
    assert rows["all together"][2:] == ["25.5", "178.5", "9,333", "no", "end"]
    assert rows["limit"][1:] == ["20", "9"]
    assert rows["with limits"][2:] == ["9", "9", "9", "9"]
    assert "warning on one day 25.5, above the limit 20" in result.output
    assert "warning for life no end, above the limit 9" in result.output
    assert "warning theme: epsilon is below the usual 1 to 3" in result.output


def test_a_limit_with_a_delta_is_said_and_is_none_on_the_sums(tmp_path: Path) -> None:
    """The device stops by another rule: it stands in words and in JSON, and not in the row of limits."""
    file = _file(tmp_path, REGISTRY.replace("[privacy]", "[privacy]\ndelta = 1e-6"))
    output = " ".join(_run(file).output.split())
    assert "could tell more than epsilon 9, but for a probability of 1e-06." in output
    assert "warning for life" not in output
    assert json.loads(_run("--json", file).output)["lifetime_filter"] == {"epsilon": 9.0, "delta": 1e-6}
    assert json.loads(_run("--json", _file(tmp_path)).output)["lifetime_filter"] is None
    file = _file(tmp_path, REGISTRY.replace("[privacy]", "[privacy]\ndelta = 1e-6"))
    check = " ".join(CliRunner().invoke(cli, ["registry", "check", file]).output.split())
    assert "(limit 9 but for a probability of 1e-06, which allows larger sums)" in check


def test_limits_that_are_kept_need_no_warning(tmp_path: Path) -> None:
    """Neither a limit that is not reached, nor one that is reached exactly."""
    text = REGISTRY.replace("max_epsilon_per_day = 20.0", "max_epsilon_per_day = 25.5")
    output = _run(_file(tmp_path, text.replace("max_epsilon_lifetime = 9.0", ""))).output
    assert ("warning on one day" in output, "warning for life" in output) == (False, False)
    assert "with limits" in output


def test_closer_bounds_stand_below_the_sums(tmp_path: Path) -> None:
    """Those that say more than the plain sum, with their delta and what they assume."""
    output = _run(_file(tmp_path)).output
    week = [line.split() for line in output.splitlines() if line.startswith("week")]
    assert {row[1] for row in week} == {"optimal", "rdp", "exact"}
    assert all(float(row[2]) < 0.99 * 178.5 and row[3] == "1e-06" for row in week)
    year = [line.split() for line in output.splitlines() if line.startswith("year")]
    assert {row[1] for row in year} == {"advanced", "rdp"}  # 17,934 reports
    assert "exact: The number of reports" in output


def test_the_server_says_the_same_as_the_file(server: Server, tmp_path: Path) -> None:
    """JSON and table: of the registry that it publishes, on the same day."""
    asked = ("--url", server.url, "--key", OPERATOR_KEY)
    while True:
        before = datetime.now(UTC).date()
        published, own = _run("--json", *asked), _run("--json", _file(tmp_path))
        tables = _run(*asked).output, _run(_file(tmp_path)).output
        if datetime.now(UTC).date() == before:  # else midnight came between
            break
    document = json.loads(published.output)
    assert document == json.loads(own.output)
    assert tables[0] == tables[1]
    theme = document["metrics"][0]["spans"]
    days = (LAST - before + timedelta(days=1)).days
    assert theme["life"]["reports"] == 2 * 24 * days
    assert document["first_day"] == before.isoformat()


def test_what_it_cannot_ask(server: Server, tmp_path: Path) -> None:
    """A file and a server, a refused registry, a key that may not read: said in one line, each with its code."""
    both = _run(_file(tmp_path), "--url", server.url)
    assert (both.exit_code, "not both" in both.output) == (ExitCode.USAGE, True)
    refused = _run(_file(tmp_path, "schema = 2"))
    assert (refused.exit_code, "schema" in refused.output) == (ExitCode.FAILED, True)
    unread = _run("--url", server.url, "--key", INGEST_KEY)
    assert (unread.exit_code, "does not let this key read" in unread.output) == (ExitCode.USAGE, True)


def test_epsilons_as_text() -> None:
    """No digit of a sum is lost, and a bound is never shown below what it is."""
    assert [epsilon_text(each) for each in (0.1, 3.0, 18558.0, 1234567.25, None)] == [
        "0.1", "3", "18,558", "1,234,567.25", "no end",
    ]  # fmt: skip
    assert epsilon_text(0.1 + 0.2) == "0.3000000001"  # rounded up, too
    assert [bound_text(each) for each in (14.98088921, 5762.269723, 0.000123456)] == [
        "14.99", "5,763", "0.0001235",
    ]  # fmt: skip
