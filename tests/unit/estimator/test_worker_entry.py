"""The entry point of the worker where its extra is not installed."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dither_estimator.worker import EXIT_CONFIG, main


@pytest.mark.parametrize("package", ["numpy", "redis", "scipy"])
def test_a_worker_without_its_extra_says_what_to_install(package: str) -> None:
    """One line and an exit code that stops the supervisor, no traceback (D1)."""
    program = (
        f"import runpy, sys; sys.modules[{package!r}] = None; "
        "runpy.run_module('dither_estimator.worker', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_CONFIG
    assert done.stderr.count("\n") == 1
    assert package in done.stderr
    assert "pip install 'dither[estimator]'" in done.stderr


@pytest.mark.parametrize("name", ["two words", "a/b", "-a", "x" * 65, "na\u00efve", "a\n"])
def test_a_bad_name_of_a_worker_is_a_configuration_error(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would stand in keys and notes of the store; a restart will not help."""
    monkeypatch.setenv("DITHER_STORE_URL", "unix:///nowhere")
    monkeypatch.setenv("DITHER_WORKER_NAME", name)
    assert main() == EXIT_CONFIG
    assert "DITHER_WORKER_NAME" in caplog.text


def test_an_unknown_style_of_the_log_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As for the servers, which read the same variable."""
    monkeypatch.setenv("DITHER_STORE_URL", "unix:///nowhere")
    monkeypatch.setenv("DITHER_LOG", "xml")
    assert main() == EXIT_CONFIG
    assert "DITHER_LOG must be one of human, json" in caplog.text


@pytest.mark.parametrize("style", ["human", "json"])
def test_log_lines_are_as_asked_for_and_have_no_address(style: str, tmp_path: Path) -> None:
    """A store that is not there is said, without saying where it is not."""
    log = tmp_path / "log"
    with socket.socket() as probe, log.open("wb") as output:
        probe.bind(("127.0.0.1", 0))  # and does not listen
        url = f"redis://127.0.0.1:{probe.getsockname()[1]}"
        worker = subprocess.Popen(
            [sys.executable, "-m", "dither_estimator.worker"],
            env={**os.environ, "DITHER_STORE_URL": url, "DITHER_LOG": style},
            stderr=output,
        )
        try:
            deadline = time.monotonic() + 60
            while b"not available" not in log.read_bytes() and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            worker.terminate()
            worker.wait(60)
    lines = log.read_text().splitlines()
    assert "127.0.0.1" not in log.read_text()
    if style == "json":
        first = json.loads(lines[0])
        assert (first["level"], first["logger"]) == ("warning", "dither_estimator")
        assert all(json.loads(line)["message"] for line in lines)
    else:
        assert "WARNING dither_estimator: the store is not available" in lines[0]
