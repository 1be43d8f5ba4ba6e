import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dither_cli import child
from dither_cli.child_process import MAX_LOG_BYTES, ChildProcess, ChildSpec, rotate

HANG_LIMIT_S = 60
Eventually = Callable[[Callable[[], object]], None]
linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a child of its parent's death"
)


def launch(parent: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Run the launcher as the supervisor does."""
    arguments = [sys.executable, "-I", "-S", child.__file__, str(parent), "--", *command]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=HANG_LIMIT_S, check=False)


def test_the_launcher_becomes_the_command() -> None:
    """Arguments arrive as they are, and the exit code is the command's own."""
    done = launch(
        os.getpid(), sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(7)", "--", "a b"
    )
    assert done.stdout.strip() == "['--', 'a b']"
    assert done.returncode == 7


def test_a_program_that_is_not_there_has_an_exit_code_of_its_own() -> None:
    """The supervisor must tell "no such program" from a program that failed."""
    done = launch(os.getpid(), "/nowhere/at/all")
    assert done.returncode == child.CANNOT_RUN
    assert "cannot run /nowhere/at/all" in done.stderr


@linux_only
def test_a_launcher_whose_parent_is_gone_already_runs_nothing() -> None:
    """Between fork and the request to the kernel the parent may die: then no signal would ever come."""
    done = launch(os.getpid() + 1, sys.executable, "-c", "print('ran')")
    assert done.returncode == child.PARENT_GONE
    assert done.stdout == ""


@linux_only
def test_a_child_ends_when_its_parent_is_killed(eventually: Eventually) -> None:
    """SIGKILL leaves a parent no chance to clean up; the kernel does it."""
    sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    code = (
        "import os, subprocess, time\n"
        f"command = [{sys.executable!r}, '-I', '-S', {child.__file__!r}, str(os.getpid()), '--', *{sleeper!r}]\n"
        "print(subprocess.Popen(command, start_new_session=True).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        orphan = psutil.Process(int(parent.stdout.readline()))
        eventually(lambda: orphan.cmdline() == sleeper)  # past the launcher
        parent.kill()
        eventually(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE)


def test_output_goes_to_the_log_and_its_end_is_the_tail(
    tmp_path: Path, python_child: Callable[..., ChildSpec], eventually: Eventually
) -> None:
    """The tail shows this run only, both streams, and not more than the last lines."""
    log_file = tmp_path / "c.log"
    log_file.write_text("an earlier run\n")
    code = "import sys\nfor i in range(30): print(i, file=sys.stderr if i % 2 else sys.stdout, flush=True)"
    process = ChildProcess(python_child("c", code), log_file)
    eventually(lambda: process.exit_code() == 0)
    assert process.tail().split() == [str(i) for i in range(10, 30)]
    assert log_file.read_text().startswith("an earlier run\n0\n")


def test_a_tail_of_a_log_that_was_removed_is_empty(
    tmp_path: Path, python_child: Callable[..., ChildSpec], eventually: Eventually
) -> None:
    """An error message must not fail for want of a file."""
    process = ChildProcess(python_child("c", "print('x')"), tmp_path / "c.log")
    eventually(lambda: process.exit_code() == 0)
    (tmp_path / "c.log").unlink()
    assert process.tail() == ""


def test_long_logs_are_put_aside(tmp_path: Path) -> None:
    """One earlier log is kept, and a short log is left alone."""
    log_file = tmp_path / "c.log"
    rotate(log_file)
    log_file.write_bytes(b"x" * MAX_LOG_BYTES)
    rotate(log_file)
    assert log_file.exists()
    log_file.write_bytes(b"x" * (MAX_LOG_BYTES + 1))
    rotate(log_file)
    assert not log_file.exists()
    assert (tmp_path / "c.log.1").stat().st_size == MAX_LOG_BYTES + 1
