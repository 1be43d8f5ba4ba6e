"""The entry point of the worker where its extra is not installed."""

import subprocess
import sys

import pytest

from dither_estimator.worker import EXIT_CONFIG


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
