import json
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dither_cli.child_process import ChildSpec
from dither_cli.supervisor import Supervisor

Eventually = Callable[[Callable[[], object]], None]
MakeChild = Callable[..., ChildSpec]
Supervise = Callable[..., Supervisor]

SLEEP = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n" + (
    "while True: time.sleep(1)"
)


def appends(word: str, path: Path) -> str:
    """Code that writes ``word`` into a file when it is told to stop."""
    return (
        "import signal, sys, time\n"
        f"def stop(*_):\n    open({str(path)!r}, 'a').write({word!r} + ' ')\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.01)\n"
    )


def says_up(log_file: Path) -> Callable[[], str | None]:
    """A probe that is content once the child has written its first line."""
    return lambda: None if log_file.exists() and "up" in log_file.read_text() else "not up"


def test_children_start_in_order_and_stop_in_the_order_asked_for(
    tmp_path: Path, python_child: MakeChild, supervise: Supervise, eventually: Eventually
) -> None:
    """Each child waits for the one before it; the stop order is a list of its own."""
    seen = tmp_path / "stopped"
    specs = [
        python_child(name, appends(name, seen), probe=says_up(tmp_path / f"{name}.log"))
        for name in ("store", "ingest", "estimator")
    ]
    supervisor = supervise(specs, stop_order=["ingest", "estimator", "store"])
    eventually(lambda: supervisor.ready)
    pids = list(supervisor.processes.values())
    starts = [psutil.Process(pid).create_time() for pid in pids]
    assert starts == sorted(starts)
    supervisor.stop()
    assert seen.read_text().split() == ["ingest", "estimator", "store"]
    assert supervisor.finished.is_set()
    assert supervisor.failure is None
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_child_that_ignores_sigterm_is_killed_in_the_end(
    tmp_path: Path,
    python_child: MakeChild,
    supervise: Supervise,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last resort is SIGKILL, and it is said."""
    stubborn = python_child("ingest", STUBBORN, probe=says_up(tmp_path / "ingest.log"), stop_limit_s=0.2)
    supervisor = supervise([stubborn])
    eventually(lambda: supervisor.ready)
    pid = supervisor.processes["ingest"]
    supervisor.stop()
    assert not psutil.pid_exists(pid)
    assert "ingest: did not stop within" in caplog.text


def test_a_second_request_shortens_the_wait(
    tmp_path: Path, python_child: MakeChild, supervise: Supervise, eventually: Eventually
) -> None:
    """Pressing Ctrl-C twice does not wait for the full limit."""
    stubborn = python_child("ingest", STUBBORN, probe=says_up(tmp_path / "ingest.log"), stop_limit_s=10_000)
    supervisor = supervise([stubborn])
    eventually(lambda: supervisor.ready)
    supervisor.request_stop()
    assert not supervisor.finished.wait(0.3)
    supervisor.hasten()
    eventually(supervisor.finished.is_set)


def test_the_record_names_what_runs(
    tmp_path: Path, python_child: MakeChild, supervise: Supervise, eventually: Eventually
) -> None:
    """The file that a later serve reads always holds the living children, in the order of ending them."""
    supervisor = supervise([python_child("store", SLEEP), python_child("ingest", SLEEP)])
    eventually(lambda: supervisor.ready)
    recorded = json.loads((tmp_path / "processes.json").read_text())
    assert [item["name"] for item in recorded] == ["ingest", "store"]
    assert {item["name"]: item["pid"] for item in recorded} == supervisor.processes
    supervisor.stop()
    assert json.loads((tmp_path / "processes.json").read_text()) == []


def test_stopping_before_the_start_is_harmless(python_child: MakeChild, tmp_path: Path) -> None:
    """A service that failed before its launch can be closed like any other."""
    spec = python_child("store", SLEEP)
    supervisor = Supervisor([spec], stop_order=["store"], log_dir=tmp_path, record=tmp_path / "p.json")
    supervisor.stop()
    assert supervisor.processes == {}


def test_an_unexpected_error_still_stops_the_children(
    python_child: MakeChild, supervise: Supervise, eventually: Eventually
) -> None:
    """A fault of the supervisor itself leaves no child behind."""

    def probe() -> str | None:
        raise RuntimeError("a fault")

    supervisor = supervise([python_child("store", SLEEP, probe=probe)])
    eventually(supervisor.finished.is_set)
    assert isinstance(supervisor.failure, RuntimeError)
    assert supervisor.processes == {}
