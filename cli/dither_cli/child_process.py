"""One child of the supervisor: how it is described, started, watched and ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dither_cli import child as launcher
from dither_cli.processes import Recorded, signal_group

MAX_LOG_BYTES: Final = 5_000_000
TAIL_LINES: Final = 20
_TAIL_BYTES: Final = 16_384
_POLL_S: Final = 0.02


def ready_at_once() -> None:
    """The probe of a child that has nothing to ask."""


@dataclass(frozen=True)
class ChildSpec:
    """What to run.

    Attributes:
        name: name in logs, records and `processes`.
        command: absolute path of the program, then its arguments.
        environ: its whole environment.
        directory: its working directory.
        probe: asked after the start until it returns None; otherwise it says what the child still waits for.
        needs: names of children that must be ready before this one is (re)started.
        start_limit_s: a child that waits for the same thing this long, seconds, is killed and started again.
        stop_limit_s: time from SIGTERM to SIGKILL, seconds.
        config_exit_codes: exit codes that mean "my configuration is wrong".
    """

    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str]
    directory: Path
    probe: Callable[[], str | None] = ready_at_once
    needs: tuple[str, ...] = ()
    start_limit_s: float = 60.0
    stop_limit_s: float = 10.0
    config_exit_codes: frozenset[int] = frozenset()


@dataclass
class ChildProcess:
    """One run of a child. Its output goes to ``log_file``, its group and session bear its own id.

    Attributes:
        spec: what was run.
        log_file: where stdout and stderr go.
        started: when it was started, monotonic seconds.
        recorded: what a later serve needs to recognise it; None if it ended at once.
    """

    spec: ChildSpec
    log_file: Path
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        rotate(self.log_file)
        with self.log_file.open("ab") as log:
            self._log_start = log.tell()
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), "--", *self.spec.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.spec.directory,
                env=dict(self.spec.environ),
                start_new_session=True,
            )
        self.recorded = Recorded.of(self.spec.name, self._popen.pid)

    @property
    def pid(self) -> int:
        """Its process id; the launcher becomes the command, so the id stays."""
        return self._popen.pid

    @property
    def age_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def exit_code(self) -> int | None:
        """None while it runs; else its exit code, or minus the signal that ended it.

        What it left behind in its group (gunicorn's workers, a rewrite of the store's log) is killed before
        the child is reaped: until then its id, and so the group's, cannot be anybody else's.
        """
        if self._popen.returncode is None and _has_ended(self._popen):
            signal_group(self.pid, signal.SIGKILL)
            self._popen.wait()
        return self._popen.returncode

    def stop(self, limit_s: Callable[[], float]) -> bool:
        """SIGTERM, wait, and SIGKILL to the whole group as a last resort.

        Args:
            limit_s: how long to wait, seconds; asked again and again, since the user may lose patience.

        Returns:
            Whether it ended by itself.
        """
        if self.exit_code() is None:
            self._popen.terminate()
        asked = time.monotonic()
        while self.exit_code() is None:
            if time.monotonic() - asked > limit_s():
                self.kill()
                return False
            time.sleep(_POLL_S)
        return True

    def kill(self) -> None:
        """SIGKILL to the whole group, and reap the child."""
        if self._popen.returncode is None:
            signal_group(self.pid, signal.SIGKILL)
            self._popen.wait()

    def tail(self) -> str:
        """The last lines of output of this run."""
        try:
            with self.log_file.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start if self._log_start <= size else 0, size - _TAIL_BYTES))
                lines = log.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])


def rotate(log_file: Path, limit_bytes: int = MAX_LOG_BYTES) -> None:
    """Put a long log aside as ``<name>.log.1``, over the one put aside before."""
    if log_file.exists() and log_file.stat().st_size > limit_bytes:
        log_file.replace(log_file.with_name(log_file.name + ".1"))


def _has_ended(popen: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended, if possible without reaping it."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return popen.poll() is not None
    return os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
