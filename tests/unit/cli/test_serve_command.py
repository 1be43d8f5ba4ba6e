import json
import logging
import os
import re
import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dither_cli import parts, service
from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from dither_cli.serve import stopped_by_signals
from dither_cli.service import ServiceOptions
from dither_cli.state_dir import StateDir
from support.asked import Asked

REGISTRY = """
schema = 1
project = "example"
[metrics.dark_mode]
version = 1
type = "boolean"
description = "Dark theme"
epsilon = 1.0
mechanism = "rr"
"""


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """A registry that is fine."""
    file = tmp_path / "registry.toml"
    file.write_text(REGISTRY, encoding="utf-8")
    return file


def serve(state_dir: Path, registry: Path, *options: str) -> Result:
    """Run `dither serve` in this process; only for what ends before anything is started."""
    arguments = ["serve", "--state-dir", str(state_dir), "--registry", str(registry), "--port", "0", *options]
    return CliRunner().invoke(cli, arguments)


def test_a_refused_registry_starts_nothing(tmp_path: Path, registry: Path) -> None:
    """The key is named, and the state directory is not even created."""
    registry.write_text(REGISTRY.replace("1.0", "0"), encoding="utf-8")
    result = serve(tmp_path / "state", registry)
    assert result.exit_code == ExitCode.FAILED
    assert "the registry is refused: metrics.dark_mode.epsilon: must be" in result.output
    assert not (tmp_path / "state").exists()


def test_a_taken_port_starts_nothing_and_unlocks(tmp_path: Path, registry: Path) -> None:
    """The message names host and port; the next try is not told that the directory is in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = serve(tmp_path / "state", registry, "--port", str(taken.getsockname()[1]))
    assert result.exit_code == ExitCode.PORT
    assert "cannot listen on 127.0.0.1 port" in result.output
    StateDir(tmp_path / "state").open().close()


def test_a_directory_in_use_is_refused(tmp_path: Path, registry: Path) -> None:
    """Exit code and message say that it is the directory."""
    with StateDir(tmp_path / "state").open():
        result = serve(tmp_path / "state", registry)
    assert result.exit_code == ExitCode.STATE_DIR
    assert f"another dither serve (pid {os.getpid()}) uses this directory" in result.output


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--store-url", "http://:hunter2@example.org"], "must begin with redis://, rediss://, unix://"),
        (["--store-url", "redis://:hunter2@[bad"], "is not a URL"),
        (["--store-url", "redis://:hunter2@h:99999999"], "is not a URL"),
        (["--store-url", "redis://"], "names no server"),
        (["--store-maxmemory", "lots"], "must be a size such as 512mb or 1gb"),
        (["--store-maxmemory", "0"], "must be a size such as 512mb or 1gb"),
        (["--port", "65536"], "65536 is not in the range"),
        (["--workers", "0"], "0 is not in the range"),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    tmp_path: Path, registry: Path, options: list[str], problem: str
) -> None:
    """Exit code 2, no password in the message, and nothing is begun."""
    result = serve(tmp_path / "state", registry, *options)
    assert result.exit_code == ExitCode.USAGE
    assert problem in " ".join(result.output.replace("│", " ").split())
    assert "hunter2" not in result.output
    assert not (tmp_path / "state").exists()


def test_options_do_not_show_the_url_of_the_store() -> None:
    """It may hold a password, and reprs end up in logs."""
    assert "hunter2" not in repr(ServiceOptions(Path(), store_url="redis://:hunter2@example.org"))


def test_children_do_not_inherit_plain_keys(registry: Path) -> None:
    """A shell that has sourced the env file of another service must not hand its keys on."""
    given = {
        "PATH": "/bin",
        "DITHER_INGEST_KEY": "dik_x",
        "DITHER_OPERATOR_TOKEN": "dot_x",
        "DITHER_ACK": "fsync",
    }
    environ = parts.child_environ(given, "unix:///s")
    assert environ == {
        "PATH": "/bin",
        "DITHER_ACK": "fsync",
        "DITHER_STORE_URL": "unix:///s",
        "PYTHONUNBUFFERED": "1",
    }


def test_the_estimator_keeps_its_name_over_restarts(tmp_path: Path) -> None:
    """It takes its own leases over; the estimator of another state directory has another; the user's goes first."""
    names = []
    for folder in ("a", "a", "b"):
        spec = parts.estimator_spec(StateDir(tmp_path / folder), {}, needs=())
        names.append(spec.environ["DITHER_WORKER_NAME"])
    assert names[0] == names[1] != names[2]
    assert re.fullmatch("serve-[0-9a-f]{8}", names[0])
    given = {"DITHER_WORKER_NAME": "mine"}
    spec = parts.estimator_spec(StateDir(tmp_path), given, needs=())
    assert spec.environ["DITHER_WORKER_NAME"] == "mine"


def test_a_missing_module_is_named() -> None:
    """Better now than in a child's log."""
    with pytest.raises(ModuleNotFoundError) as caught:
        service.require(("json", "no_such_module"))
    assert caught.value.name == "no_such_module"


def test_the_example_registry_is_in_the_package() -> None:
    """What `dither serve` runs without --registry."""
    assert parts.example_registry().is_file()


class Unready(BaseHTTPRequestHandler):
    """Answers as a server whose store is down."""

    def do_GET(self) -> None:
        """503 with an RFC 9457 body on /readyz, without one elsewhere."""
        body = json.dumps({"title": "not ready", "detail": "some checks fail", "failing": ["store"]}).encode()
        self.send_response(503)
        self.end_headers()
        self.wfile.write(body if self.path == "/readyz" else b"<html>")

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_the_reason_for_not_being_ready_is_read_from_the_answer() -> None:
    """The names of the failing checks are what an operator needs; a body of another kind is no error."""
    with HTTPServer(("127.0.0.1", 0), Unready) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert parts.problem_at(url + "/readyz") == "answers 503: some checks fail (store)"
        assert parts.problem_at(url + "/healthz") == "answers 503"
        server.shutdown()
        thread.join()
    assert parts.problem_at(url + "/readyz") == "does not answer yet"


def test_the_first_signal_stops_and_the_second_hastens() -> None:
    """Whichever they are; afterwards the handlers are those from before."""
    asked, before = Asked(), signal.getsignal(signal.SIGTERM)
    with stopped_by_signals(asked):  # type: ignore[arg-type]  # the two methods are all it uses
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert asked.calls == ["stop", "hasten"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_nohup_is_respected() -> None:
    """A SIGHUP that the caller ignores stays ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asked = Asked()
        with stopped_by_signals(asked):  # type: ignore[arg-type]  # the two methods are all it uses
            os.kill(os.getpid(), signal.SIGHUP)
        assert asked.calls == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_logging_is_left_as_it_was(tmp_path: Path, registry: Path) -> None:
    """A command that is called from code adds no handler for good."""
    handlers = list(logging.getLogger("dither_cli").handlers)
    with StateDir(tmp_path / "state").open():
        serve(tmp_path / "state", registry)
    assert logging.getLogger("dither_cli").handlers == handlers
