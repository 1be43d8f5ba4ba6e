import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dither_cli.child_process import ChildSpec
from dither_cli.errors import ChildGaveUp
from dither_cli.supervisor import MAX_QUICK_FAILURES, Supervisor
from dither_cli.timing import Timing

Eventually = Callable[[Callable[[], object]], None]
MakeChild = Callable[..., ChildSpec]
Supervise = Callable[..., Supervisor]

SLEEP = "import time; time.sleep(600)"


def says_up(log_file: Path) -> Callable[[], str | None]:
    """A probe that is content once the child has written its first line."""
    return lambda: None if log_file.exists() and "up" in log_file.read_text() else "not up"


def test_a_killed_child_comes_back_with_another_process(
    python_child: MakeChild, supervise: Supervise, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGKILL of a child is followed by a restart, and by a line that says so."""
    supervisor = supervise([python_child("worker", SLEEP)])
    eventually(lambda: supervisor.ready)
    first = supervisor.processes["worker"]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: supervisor.processes.get("worker", first) != first)
    assert "worker: ended by signal 9; restarting in 0.05 s" in caplog.text


def test_what_a_killed_child_leaves_in_its_group_is_killed_before_the_restart(
    tmp_path: Path, python_child: MakeChild, supervise: Supervise, eventually: Eventually
) -> None:
    """A grandchild that holds on to a port or a file would keep the next run from starting."""
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(600)'])\n"
        "print('up', p.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    log_file = tmp_path / "master.log"
    supervisor = supervise([python_child("master", code, probe=says_up(log_file))])
    eventually(lambda: supervisor.ready)
    grandchild = psutil.Process(int(log_file.read_text().split()[1]))
    os.kill(supervisor.processes["master"], signal.SIGKILL)
    eventually(lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE)


def test_back_off_doubles_up_to_its_limit() -> None:
    """Half a second, then twice as long each time, never above half a minute."""
    timing = Timing()
    assert [timing.backoff_s(n) for n in (1, 2, 3, 4)] == [0.5, 1, 2, 4]
    assert timing.backoff_s(7) == timing.backoff_s(10_000) == 30


def test_a_child_that_was_ready_once_is_restarted_for_ever(
    python_child: MakeChild, supervise: Supervise, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """A crash that is no configuration error is never a reason to stop the others; its pauses grow."""
    caplog.set_level(logging.WARNING)
    supervisor = supervise([python_child("worker", "raise SystemExit(1)")])
    eventually(lambda: caplog.text.count("restarting in") > 2 * MAX_QUICK_FAILURES)
    assert not supervisor.finished.is_set()
    pauses = [float(line.split()[-2]) for line in caplog.text.splitlines() if "restarting in" in line]
    assert pauses[:4] == [0.05, 0.1, 0.2, 0.2]


def test_a_healthy_run_is_forgiven_its_earlier_failures(
    python_child: MakeChild, supervise: Supervise, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """After a long run the pause before a restart is the first one again."""
    timing = Timing(tick_s=0.01, first_backoff_s=0.01, healthy_s=0.2, quick_s=0.1)
    supervisor = supervise([python_child("worker", "import time; time.sleep(0.4)")], timing)
    eventually(lambda: caplog.text.count("restarting in") >= 3)
    assert caplog.text.count("restarting in 0.01 s") >= 3
    assert not supervisor.finished.is_set()


@pytest.mark.parametrize("code", [78, 127])
def test_a_configuration_error_that_repeats_stops_everything_and_shows_the_last_lines(
    code: int, python_child: MakeChild, supervise: Supervise, eventually: Eventually
) -> None:
    """A child that says "my configuration is wrong" is believed after a few tries."""
    wrong = f"import sys; print('no such setting', file=sys.stderr); sys.exit({code})"
    specs = [python_child("store", SLEEP), python_child("worker", wrong, config_exit_codes=frozenset({78}))]
    supervisor = supervise(specs)
    eventually(supervisor.finished.is_set)
    assert isinstance(supervisor.failure, ChildGaveUp)
    assert supervisor.failure.name == "worker"
    assert "no such setting" in str(supervisor.failure)
    assert f"failed {MAX_QUICK_FAILURES + 1} times" in str(supervisor.failure)
    assert supervisor.processes == {}


def test_a_child_that_never_became_ready_is_given_up_whatever_its_exit_code(
    python_child: MakeChild, supervise: Supervise, eventually: Eventually
) -> None:
    """A first start that fails again and again is an error to show, not a loop."""
    supervisor = supervise([python_child("store", "raise SystemExit(1)", probe=lambda: "not up")])
    eventually(supervisor.finished.is_set)
    assert isinstance(supervisor.failure, ChildGaveUp)


def test_a_program_that_does_not_exist_is_given_up(
    tmp_path: Path, supervise: Supervise, eventually: Eventually
) -> None:
    """The launcher's own exit code counts as a configuration error, and its message names the program."""
    supervisor = supervise([ChildSpec("store", ("/nowhere/valkey-server",), {}, tmp_path)])
    eventually(supervisor.finished.is_set)
    assert "cannot run /nowhere/valkey-server" in str(supervisor.failure)


def test_a_child_that_makes_no_progress_is_killed_and_started_again(
    python_child: MakeChild, supervise: Supervise, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Waiting for the same thing too long is stuck."""
    supervise([python_child("store", SLEEP, probe=lambda: "waiting for its socket", start_limit_s=0.1)])
    eventually(lambda: "ended by signal 9; restarting" in caplog.text)
    assert "store: no progress for 0.1 s; killing it" in caplog.text


def test_a_child_that_makes_progress_is_waited_for_and_reported(
    python_child: MakeChild,
    supervise: Supervise,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A store that loads a long log says how far it is, and is not killed meanwhile."""
    caplog.set_level(logging.INFO)
    steps = iter(range(50))

    def probe() -> str | None:
        step = next(steps, None)
        return None if step is None else f"loading its log, {step} % done"

    timing = Timing(tick_s=0.02, progress_s=0.1)
    supervisor = supervise([python_child("store", SLEEP, probe=probe, start_limit_s=0.5)], timing)
    eventually(lambda: supervisor.ready)
    assert "% done" in caplog.text
    assert "killing" not in caplog.text


def test_a_child_is_not_restarted_while_what_it_needs_is_not_ready(
    python_child: MakeChild, supervise: Supervise, eventually: Eventually
) -> None:
    """A worker that cannot start without the store must not be blamed while the store loads."""
    store_up = [True]
    store = python_child("store", SLEEP, probe=lambda: None if store_up[0] else "loading")
    supervisor = supervise([store, python_child("worker", SLEEP, needs=("store",))])
    eventually(lambda: supervisor.ready)
    store_up[0] = False
    before = dict(supervisor.processes)
    os.kill(before["store"], signal.SIGKILL)
    eventually(lambda: supervisor.processes.get("store", before["store"]) != before["store"])
    os.kill(before["worker"], signal.SIGKILL)
    eventually(lambda: "worker" not in supervisor.processes)
    time.sleep(0.3)  # longer than the longest pause of this test's timing
    assert "worker" not in supervisor.processes
    store_up[0] = True
    eventually(lambda: supervisor.ready)
