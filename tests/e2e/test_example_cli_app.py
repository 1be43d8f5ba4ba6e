"""The example program as a person runs it: process by process, against a real HTTP server on the loopback interface."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dither_protocol.registry import load_registry
from dither_protocol.wire import decode_json, parse_envelope, parse_report
from support.http import Answer, scripted_server

PROGRAM = Path(__file__).parents[2] / "examples" / "cli_app" / "wordcount.py"
THREE = b'{"accepted":3,"duplicate":false,"rejected":[]}'
METRICS = ["from_stdin", "input_size", "output_format"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the program with a state of its own, and end well."""

    def start(
        *arguments: str, url: str = "http://127.0.0.1:9", said: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        unwanted = ("DO_NOT_TRACK", "DITHER_DISABLED")
        environ = {name: value for name, value in os.environ.items() if name not in unwanted}
        environ |= {"DITHER_STATE_DIR": str(tmp_path / "state"), "WORDCOUNT_TELEMETRY_URL": url}
        command = [sys.executable, "-W", "error", str(PROGRAM), *arguments]
        done = subprocess.run(
            command, env=environ, input=said, capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done

    return start


@pytest.fixture
def text(tmp_path: Path) -> str:
    """A file of two lines and four words."""
    (tmp_path / "text").write_text("one two\nthree four\n")
    return str(tmp_path / "text")


def _state(tmp_path: Path) -> sqlite3.Connection:
    return sqlite3.connect(tmp_path / "state" / "wordcount" / "dither.sqlite3")


def _rows(tmp_path: Path, query: str) -> list[tuple[object, ...]]:
    connection = _state(tmp_path)
    found = connection.execute(query).fetchall()
    connection.close()
    return found


def _let_time_pass(tmp_path: Path) -> None:
    """The random time of what is queued has come."""
    connection = _state(tmp_path)
    connection.execute("UPDATE open_reports SET due_at = 0")
    connection.commit()
    connection.close()


def test_it_counts_and_records_nothing_before_a_yes(run: Run, text: str, tmp_path: Path) -> None:
    """From a file and from standard input, as text and as JSON."""
    assert run(text).stdout == "2 lines  4 words  19 bytes\n"
    assert json.loads(run("--json", said="a b\n").stdout) == {"lines": 1, "words": 2, "bytes": 4}
    assert _rows(tmp_path, "SELECT * FROM charges") == []


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("yes\n", True), ("\n", False), ("", False)])
def test_the_prompt_takes_nothing_but_a_yes_for_one(
    run: Run, text: str, tmp_path: Path, answer: str, agreed: bool
) -> None:
    """What the person says is kept, and the next run obeys it."""
    asked = run("--telemetry", "ask", said=answer).stdout
    assert "[y/N]" in asked
    assert asked.endswith("Thank you.\n" if agreed else "Nothing is reported.\n")
    run(text)
    assert len(_rows(tmp_path, "SELECT * FROM charges")) == (3 if agreed else 0)


def test_a_later_run_sends_what_was_shown(run: Run, text: str, tmp_path: Path) -> None:
    """Queued, shown, sent when the time has come, once; a server would take every report."""
    with scripted_server(Answer(body=THREE)) as server:
        run("--telemetry", "yes", url=server.url)
        run(text, url=server.url)
        run("--json", text, url=server.url)  # the same week: the first answers stand
        assert server.bodies == []
        shown = run("--telemetry", "show", url=server.url).stdout
        assert "Privacy spent so far: epsilon 3." in shown
        assert shown.count("Question: ") == 3
        waiting = [line for line in shown.splitlines() if line.startswith('{"metric"')]
        assert len(waiting) == 3
        _let_time_pass(tmp_path)
        assert run(text, url=server.url).stdout == "2 lines  4 words  19 bytes\n"
        run(text, url=server.url)
    (body,) = server.bodies
    assert all(line.encode() in body for line in waiting)
    registry = load_registry(PROGRAM.with_name("registry.toml"))
    reports = [parse_report(report) for report in parse_envelope(decode_json(body)).reports]
    assert sorted(report.metric for report in reports) == METRICS
    for report in reports:
        metric = registry.metric(report.metric)
        assert report.params == metric.params_hash
        metric.mechanism.pack(report.data)
        metric.parse_window(report.window)
    assert _rows(tmp_path, "SELECT * FROM open_reports UNION ALL SELECT 1,1,1,1,1,1 FROM batches") == []


def test_a_server_that_never_answers_loses_nothing(run: Run, text: str, tmp_path: Path) -> None:
    """The run ends all the same, the next one is not held up by the back-off, and a later one delivers."""
    run("--telemetry", "yes")
    run(text)
    _let_time_pass(tmp_path)
    with scripted_server(Answer(silent=True)) as silent:
        assert run(text, url=silent.url).stdout == "2 lines  4 words  19 bytes\n"
    assert _rows(tmp_path, "SELECT sum(reports) FROM batches") == [(3,)]
    with scripted_server(Answer(body=THREE)) as server:
        run(text, url=server.url)
    assert server.bodies == silent.bodies
    assert _rows(tmp_path, "SELECT * FROM batches") == []


def test_a_no_erases_what_waits(run: Run, text: str, tmp_path: Path) -> None:
    """And keeps the account of what was spent."""
    run("--telemetry", "yes")
    run(text)
    assert run("--telemetry", "no").stdout == "Nothing is reported.\n"
    assert _rows(tmp_path, "SELECT * FROM open_reports") == []
    assert _rows(tmp_path, "SELECT amount FROM totals WHERE scope = 'lifetime'") == [(3 * 10**9,)]
    run(text)
    assert _rows(tmp_path, "SELECT count(*) FROM charges") == [(3,)]
