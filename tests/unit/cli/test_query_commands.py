"""``dither metrics``, ``estimates`` and ``status`` against a live server with a few estimates."""

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from dither_cli.query_commands import shown_estimates
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol.registry import parse_registry
from support.server import INGEST_KEY, OPERATOR_KEY, Server, batch, running_server, write_files
from support.store import running_store

NOW = datetime.now(UTC)  # once: midnight may come between two tests
_REGISTRY = """
schema = 1
project = "example-editor"

[metrics.theme]
version = 1
type = "categorical"
description = "The theme"
categories = ["dark", "[bold]light[/]", "$auto$"]
epsilon = 1.5
mechanism = "grr"
min_reports = 2
dimensions = { os = ["linux", "macos"] }

[metrics.rare]
version = 1
type = "boolean"
description = "Few answer"
epsilon = 1.0
mechanism = "rr"
min_reports = 100

[metrics.nobody]
version = 1
type = "boolean"
description = "Nobody answers"
epsilon = 1.0
mechanism = "rr"
period = "month"

[metrics.first_use]
version = 1
type = "boolean"
description = "Asked once"
epsilon = 1.0
mechanism = "rr"
period = "once"
expires = 2199-12-31
min_reports = 2
"""


def _fill(server: Server) -> None:
    registry = parse_registry(_REGISTRY)

    def send(metric: str, reports: int, days: int = 0, **dimensions: str) -> None:
        asked = registry.metric(metric)
        one = {
            "metric": metric,
            "version": 1,
            "params": asked.params_hash,
            "window": asked.window_at(NOW - timedelta(days=days)).label,
            "dimensions": dimensions,
            "data": 0,
        }
        answer = server.post(batch(*[one] * reports, until=(NOW + timedelta(days=1)).date()), INGEST_KEY)
        assert answer.json()["accepted"] == reports, answer.text

    for days in (0, 1, 2):
        send("theme", 10 + days, days, os="linux")
        send("theme", 5, days, os="macos")
    send("rare", 7)
    send("first_use", 4)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with three windows of one metric, a suppressed one, one asked once, and one without reports."""
    folder = tmp_path_factory.mktemp("queries")
    write_files(folder, _REGISTRY)
    with running_store() as valkey, running_server(folder, valkey.url) as found:
        _fill(found)
        store = Store(valkey.url)
        worker = Worker(store)
        while worker.tick():
            pass
        worker.leave()
        yield found
        store.close()


def _run(server: Server, *arguments: str, key: str = OPERATOR_KEY, columns: str = "120") -> Result:
    """A command as a person runs it, against this server."""
    environ = {"DITHER_URL": server.url, "DITHER_KEY": key, "COLUMNS": columns}
    return CliRunner(env=environ).invoke(cli, arguments)


def _day(days: int) -> str:
    return f"{NOW - timedelta(days=days):%Y-%m-%d}"


def test_metrics_are_listed(server: Server) -> None:
    """Each with what its estimates depend on."""
    result = _run(server, "metrics")
    assert result.exit_code == ExitCode.OK, result.output
    lines = {line.split()[0]: line.split() for line in result.output.splitlines() if line.strip()}
    assert lines["theme"] == ["theme", "1", "categorical", "3", "grr", "1.5", "day", "os"]
    assert lines["first_use"][-2:] == ["once", "2199-12-31"]


def test_the_last_window_is_shown_by_default(server: Server) -> None:
    """The sum over all dimensions, with everything that an estimate is never shown without, and bars."""
    result = _run(server, "estimates", "theme")
    assert result.exit_code == ExitCode.OK, result.output
    assert f"theme v1  window {_day(0)}  dimensions all" in result.output
    assert "n = 15  mechanism grr epsilon 1.5  target population  interval 95%" in result.output
    assert _day(1) not in result.output
    assert "█" in result.output
    assert "[bold]light[/]" in result.output
    assert "revision 1, open until" in result.output


@pytest.mark.parametrize(
    ("arguments", "windows"),
    [
        (("--from", "1"), [1, 0]),
        (("--to", "1"), [2, 1]),
        (("--from", "1", "--to", "1"), [1]),
    ],
)
def test_a_range_of_windows(server: Server, arguments: tuple[str, ...], windows: list[int]) -> None:
    """Oldest first, both ends included."""
    asked = [_day(int(each)) if each.isdigit() else each for each in arguments]
    found = json.loads(_run(server, "estimates", "theme", *asked, "--json").output)
    labels = [each["window"]["label"] for each in found["versions"][0]["estimates"]]
    assert labels == [_day(days) for days in windows]


def test_dimensions(server: Server) -> None:
    """One cell, or every one and their sum."""
    one = json.loads(_run(server, "estimates", "theme", "--dimensions", "os=macos", "--json").output)
    assert [each["n"] for each in one["versions"][0]["estimates"]] == [5]
    every = _run(server, "estimates", "theme", "--by-dimensions")
    shown = [line.split("dimensions ")[1] for line in every.output.splitlines() if "dimensions " in line]
    assert shown == ["all", "os=linux", "os=macos"]


def test_json_is_the_servers(server: Server) -> None:
    """The numbers are those of the API, the document has its shape."""
    today = {"from": _day(0), "to": _day(0), "dimensions": "*"}
    query = "&".join(f"{name}={value}" for name, value in today.items())
    direct = server.get(f"/v1/metrics/theme/estimates?{query}").json()
    assert json.loads(_run(server, "estimates", "theme", "--json").output) == direct
    assert json.loads(_run(server, "metrics", "--json").output) == server.get("/v1/metrics").json()


@pytest.mark.parametrize("arguments", [(), ("--from", "2000-01-01"), ("--by-dimensions",)])
def test_csv_is_the_servers(server: Server, arguments: tuple[str, ...]) -> None:
    """One header, and the same estimates as in JSON."""
    found = json.loads(_run(server, "estimates", "theme", "--json", *arguments).output)
    rows = list(csv.DictReader(io.StringIO(_run(server, "estimates", "theme", "--csv", *arguments).output)))
    expected = [
        (each["window"]["label"], value["value"], value["estimate"])
        for each in found["versions"][0]["estimates"]
        for value in each["values"]
    ]
    assert [(row["window"], row["value"], float(row["estimate"])) for row in rows] == expected
    assert expected


def test_a_metric_asked_once_has_one_window(server: Server) -> None:
    """It lies in every range."""
    result = _run(server, "estimates", "first_use")
    assert "first_use v1  window once" in result.output
    assert len(_run(server, "estimates", "first_use", "--csv").output.splitlines()) == 3


def test_suppressed_estimates_and_none(server: Server) -> None:
    """Both are answers, said in words."""
    assert "suppressed: fewer than 100 reports" in _run(server, "estimates", "rare").output
    result = _run(server, "estimates", "nobody")
    assert (result.exit_code, result.output) == (0, "Nothing is published about nobody here.\n")


def test_charts(server: Server, tmp_path: Path) -> None:
    """One file for each estimate; none where there is nothing to draw."""
    chart = tmp_path / "theme.svg"
    assert _run(server, "estimates", "theme", "--plot", str(chart)).exit_code == ExitCode.OK
    assert "auto" in chart.read_text()
    result = _run(server, "estimates", "rare", "--plot", str(tmp_path / "rare.png"))
    assert (result.exit_code, "suppressed" in result.output) == (ExitCode.FAILED, True)
    assert _run(server, "estimates", "rare", "--plot", "x.gif").exit_code == ExitCode.FAILED


@pytest.mark.parametrize(
    ("arguments", "key", "code", "words"),
    [
        (("estimates", "missing"), OPERATOR_KEY, ExitCode.FAILED, "knows a metric of this name"),
        (("estimates", "../../x"), OPERATOR_KEY, ExitCode.USAGE, "NAME"),
        (("estimates", "theme", "--from", "yesterday"), OPERATOR_KEY, ExitCode.USAGE, "from must be"),
        (
            ("estimates", "theme", "--from", "2026-02", "--to", "2026-01"),
            OPERATOR_KEY,
            ExitCode.USAGE,
            "from",
        ),
        (("estimates", "theme", "--level", "1"), OPERATOR_KEY, ExitCode.USAGE, "level"),
        (("estimates", "theme", "--dimensions", "os=plan9"), OPERATOR_KEY, ExitCode.USAGE, "dimensions"),
        (
            ("estimates", "theme", "--rollup", "7", "--dimensions", "os=linux"),
            OPERATOR_KEY,
            ExitCode.USAGE,
            "rollup",
        ),
        (("estimates", "theme", "--json", "--csv"), OPERATOR_KEY, ExitCode.USAGE, "not both"),
        (
            ("estimates", "theme", "--dimensions", "*", "--by-dimensions"),
            OPERATOR_KEY,
            ExitCode.USAGE,
            "not both",
        ),
        (("metrics",), "guess", ExitCode.USAGE, "does not know this key"),
        (("metrics",), INGEST_KEY, ExitCode.USAGE, "viewer or an admin"),
    ],
)
def test_what_the_server_refuses_is_said(
    server: Server, arguments: tuple[str, ...], key: str, code: ExitCode, words: str
) -> None:
    """In one sentence, with an exit code, and without the key."""
    result = _run(server, *arguments, key=key)
    assert result.exit_code == code, result.output
    assert words in result.output
    assert key not in result.output
    assert "Traceback" not in result.output


def test_the_combined_estimate_stands_for_its_versions() -> None:
    """Others stand side by side, in the order of time, the sum before its cells."""

    def document(
        version: int | None, day: int, dimensions: dict[str, str] | None = None
    ) -> dict[str, object]:
        window = {"label": str(day), "start": f"2026-11-{day}", "end": f"2026-11-{day + 1}"}
        return {"version": version, "window": window, "dimensions": dimensions}

    found = {
        "versions": [
            {"version": 1, "estimates": [document(1, 10), document(1, 11)]},
            {"version": 2, "estimates": [document(2, 11), document(2, 12, {"os": "linux"}), document(2, 12)]},
        ],
        "combined": [document(None, 11)],
    }
    shown = [
        (each["version"], each["window"]["label"], each["dimensions"]) for each in shown_estimates(found)
    ]
    assert shown == [(1, "10", None), (None, "11", None), (2, "12", None), (2, "12", {"os": "linux"})]


def test_status_says_what_is_wrong(server: Server) -> None:
    """No worker runs any more: an alarm, and the exit code of one. A suppressed estimate is no more than a note."""
    result = _run(server, "status")
    assert result.exit_code == ExitCode.FAILED, result.output
    alarms = [
        line for line in result.output.splitlines() if line.startswith(("bad", "warn", "note", "no alarms"))
    ]
    assert [line.split()[0] for line in alarms] == ["bad", "note"]
    assert "No estimator worker is running" in alarms[0]
    assert "example-editor at http://127.0.0.1" in result.output
    rows = {line.split()[0]: line.split() for line in result.output.splitlines() if line.strip()}
    assert rows["theme"] == ["theme", "48", "48", "0", "0", "0", "0", "0", _day(0), "15"]
    assert rows["all"][1:3] == ["59", "59"]


def test_status_as_json(server: Server) -> None:
    """The answer of the API, and the same exit code."""
    result = _run(server, "status", "--json")
    found = json.loads(result.output)
    assert found["ledger"]["balanced"] is True
    assert {row["metric"] for row in found["ledger"]["metrics"]} == {
        "theme", "rare", "nobody", "first_use", "_unknown",
    }  # fmt: skip
    urgent = [alarm for alarm in found["alarms"] if alarm["level"] in ("bad", "warn")]
    assert result.exit_code == (ExitCode.FAILED if urgent else ExitCode.OK)
