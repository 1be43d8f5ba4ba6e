"""The entry point of the worker where its extra is not installed."""

import subprocess
import sys

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
