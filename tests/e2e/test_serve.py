import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from dither_cli.exit_codes import ExitCode
from dither_cli.service import Service
from support.serve_process import REGISTRY, ServeProcess, alive, running_serve, wait_until


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, since the store's socket lies below it."""
    with tempfile.TemporaryDirectory(prefix="d-") as short:
        yield Path(short)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything_in_order(folder: Path, number: signal.Signals) -> None:
    """Ingest, then estimator, then store; exit code 0; no process is left, and what was accepted is kept."""
    with running_serve(folder / "state") as serve:
        serve.post(reports=5)
        serve.wait_counted(5)
        serve.popen.send_signal(number)
        assert serve.wait_exit() == ExitCode.OK
        assert re.findall(r"(\w+): stopped after", serve.text()) == ["ingest", "estimator", "store"]
        assert not any(map(alive, serve.family))
    with running_serve(folder / "state") as again:
        again.wait_counted(5)


def test_what_it_prints_can_be_used(folder: Path) -> None:
    """URLs, both keys and the folders are printed; the keys work, each for its own side, and stay at a restart."""
    with running_serve(folder / "state") as serve:
        env = serve.env
        for value in (*env.values(), str(folder / "state"), str(folder / "state" / "logs")):
            assert f" {value}\n" in serve.text()
        assert f"source {folder / 'state' / 'env'}\n" in serve.text()
        assert serve.call("/v1/metrics", env["DITHER_OPERATOR_TOKEN"])[0] == 200
        assert serve.call("/v1/metrics", env["DITHER_INGEST_KEY"])[0] == 403
        assert requests.get(_login_url(serve), timeout=60).url == env["DITHER_ENDPOINT"] + "/"
        for log in (folder / "state" / "logs").iterdir():
            assert not any(key in log.read_text() for key in env.values() if not key.startswith("http"))
        assert {log.name for log in (folder / "state" / "logs").iterdir()} == {
            "store.log",
            "ingest.log",
            "estimator.log",
        }
    with running_serve(folder / "state") as again:
        assert again.env["DITHER_INGEST_KEY"] == env["DITHER_INGEST_KEY"]
        assert again.env["DITHER_OPERATOR_TOKEN"] == env["DITHER_OPERATOR_TOKEN"]
        assert _login_url(again).endswith(env["DITHER_OPERATOR_TOKEN"])


def _login_url(serve: ServeProcess) -> str:
    """The address that it printed for a browser."""
    return re.findall(r" (http://\S+/login\?token=\S+)\n", serve.text())[-1]


def _keys(serve: ServeProcess, *arguments: str) -> str:
    """Standard output of `dither keys` about the directory of a serve that runs."""
    code = "from dither_cli.entry import main; main()"
    command = [sys.executable, "-c", code, "keys", *arguments, "--state-dir", str(serve.state_dir)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()


def test_keys_come_and_go_while_it_runs(folder: Path) -> None:
    """A viewer is made, reads, is no admin, and is gone, without a restart."""
    with running_serve(folder / "state") as serve:
        viewer = _keys(serve, "create", "analyst", "--role", "viewer")
        wait_until(lambda: serve.call("/v1/metrics", viewer)[0] == 200, "the new key")
        assert serve.call("/v1/keys", viewer)[1]["type"] == "forbidden"
        status, listed = serve.call("/v1/keys", serve.env["DITHER_OPERATOR_TOKEN"])
        assert (status, [key["name"] for key in listed["keys"]]) == (
            200,
            ["serve-ingest", "serve-admin", "analyst"],
        )
        _keys(serve, "revoke", "analyst")
        wait_until(lambda: serve.call("/v1/metrics", viewer)[0] == 401, "the end of the key")


def test_a_second_serve_on_the_same_directory_is_refused(folder: Path) -> None:
    """It says who uses it, and does the first one no harm."""
    with running_serve(folder / "state") as first:
        before = psutil.Process(first.popen.pid).children(recursive=True)
        second = ServeProcess(folder / "state")
        assert second.wait_exit() == ExitCode.STATE_DIR
        assert f"another dither serve (pid {first.popen.pid}) uses this directory" in second.text()
        assert psutil.Process(first.popen.pid).children(recursive=True) == before
        assert first.call("/readyz")[0] == 200


def test_a_registry_that_is_edited_meanwhile_does_not_disturb(folder: Path) -> None:
    """A restarted server reads the registry that was checked at the start."""
    with running_serve(folder / "state") as serve:
        (folder / "state.toml").write_text("not a registry")
        serve.kill_child("ingest")
        wait_until(lambda: serve.call("/readyz")[0] == 200, "ingest")


def test_a_second_signal_hastens(folder: Path) -> None:
    """Pressing Ctrl-C twice still leaves nothing behind."""
    with running_serve(folder / "state") as serve:
        os.kill(serve.pid("estimator") or 0, signal.SIGSTOP)  # it will not hear SIGTERM
        serve.popen.send_signal(signal.SIGINT)
        wait_until(lambda: "ingest: stopped" in serve.text(), "the stop of ingest")
        serve.popen.send_signal(signal.SIGINT)
        assert serve.wait_exit() == ExitCode.OK
        assert "estimator: did not stop within" in serve.text()
        assert not any(map(alive, serve.family))


def test_the_service_can_be_started_from_code(folder: Path) -> None:
    """What demo and tests use: a free port, no signal handlers, everything gone after the context."""
    registry = folder / "registry.toml"
    registry.write_text(REGISTRY)
    before = signal.getsignal(signal.SIGTERM)
    with Service.start(registry, state_dir=folder / "state", workers=1) as service:
        assert signal.getsignal(signal.SIGTERM) is before
        assert list(service.processes) == ["store", "ingest", "estimator"]
        request = urllib.request.Request(
            service.base_url + "/v1/metrics", headers={"Authorization": f"Bearer {service.operator_token}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        pids = service.processes.values()
        assert service.ingest_key.startswith("dik_")
    assert service.processes == {}
    assert not any(psutil.pid_exists(pid) for pid in pids)
    service.stop()  # idempotent


def test_a_service_that_is_forgotten_ends_with_its_interpreter(folder: Path) -> None:
    """No context manager, no stop: the exit of the program still stops the children in order."""
    registry = folder / "registry.toml"
    registry.write_text(REGISTRY)
    code = (
        "import sys, pathlib, dither_cli.service as s\n"
        "service = s.Service.start(pathlib.Path(sys.argv[1]), state_dir=pathlib.Path(sys.argv[2]), workers=1)\n"
        "print(*service.processes.values())\n"
    )
    command = [sys.executable, "-c", code, str(registry), str(folder / "state")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3
    assert not any(psutil.pid_exists(pid) for pid in pids)
