"""Small Python programs as children, and a supervisor in a folder of its own."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dither_cli.child_process import ChildSpec
from dither_cli.supervisor import Supervisor
from dither_cli.timing import Timing

HANG_LIMIT_S = 60.0
FAST = Timing(tick_s=0.01, first_backoff_s=0.05, max_backoff_s=0.2)


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Wait until a condition holds; fail after the hang limit."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + HANG_LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, "nothing happened within the hang limit"
            time.sleep(0.01)

    return wait


@pytest.fixture
def python_child(tmp_path: Path) -> Callable[..., ChildSpec]:
    """Describe a child that runs a few lines of Python, in the test's folder."""

    def make(name: str, code: str, **fields: Any) -> ChildSpec:
        command = (sys.executable, "-I", "-S", "-c", code)
        return ChildSpec(name, command, dict(os.environ), tmp_path, **fields)

    return make


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    """Start supervisors that are stopped at the end of the test."""
    started: list[Supervisor] = []

    def start(specs: Sequence[ChildSpec], timing: Timing = FAST, **options: Any) -> Supervisor:
        order = options.pop("stop_order", [spec.name for spec in reversed(specs)])
        record = tmp_path / "processes.json"
        supervisor = Supervisor(specs, stop_order=order, log_dir=tmp_path, record=record, timing=timing)
        started.append(supervisor)
        supervisor.start()
        return supervisor

    yield start
    for supervisor in started:
        supervisor.hasten()
        supervisor.stop()
