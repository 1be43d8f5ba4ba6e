"""The processes of an audit: devices and programs, each in a session of its own, and all ended with the audit."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Final, Self

from dither_protocol.errors import DitherError

_DEVICE: Final = (sys.executable, "-P", "-m", "dither_cli.audit_device")
_TAIL_LINES: Final = 6


class AuditError(DitherError):
    """What is to be audited cannot be asked: it fails, says nothing in time, or says what is no report."""


class Children:
    """Runs processes and ends those that still run when the block is left.

    Args:
        folder: a scratch folder for the states of devices.
        hang_limit_s: how long one process may take.
    """

    def __init__(self, folder: Path, hang_limit_s: float) -> None:
        self.folder = folder
        self._hang_limit_s = hang_limit_s
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """End all processes; no new one can be started."""
        with self._lock:
            self._closed = True
            for process in self._running:
                _end(process)

    @contextmanager
    def pool(self, workers: int) -> Iterator[ThreadPoolExecutor]:
        """Threads that run processes; what breaks the block off ends the processes before it waits for the threads."""
        with ThreadPoolExecutor(workers) as pool:
            try:
                yield pool
            except BaseException:
                self.end()
                raise

    def device(self, task: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Have a device do one task of `audit_device`.

        Args:
            task: what it reads.
            environ: more variables of its environment.

        Raises:
            AuditError: it failed or hung.
        """
        lines = self.lines(_DEVICE, json.dumps(task), environ)
        try:
            result: dict[str, Any] = json.loads(lines[-1])
        except (IndexError, ValueError):
            raise AuditError("a device ended without a result") from None
        return result

    def lines(
        self, command: Sequence[str], told: str = "", environ: Mapping[str, str] | None = None
    ) -> list[str]:
        """Run a command to its end; the lines that it printed.

        Raises:
            AuditError: it cannot be started, failed, or hung; with the last lines of its standard error.
        """
        name = Path(command[0]).name if command[0] != sys.executable else "the device"
        with TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            process = self._start(command, name, errors, environ)
            try:
                out, _ = process.communicate(told, timeout=self._hang_limit_s)
            except subprocess.TimeoutExpired:
                raise AuditError(f"{name} takes longer than {self._hang_limit_s:g} seconds") from None
            except UnicodeDecodeError:
                raise AuditError(f"{name} prints what is not UTF-8") from None
            finally:
                with self._lock:
                    _end(process)
                    self._running.discard(process)
            if process.returncode:
                errors.seek(0)
                tail = "\n".join(errors.read().splitlines()[-_TAIL_LINES:])
                raise AuditError(f"{name} {_ending(process.returncode)}" + (f":\n{tail}" if tail else ""))
        return out.splitlines()

    def _start(
        self, command: Sequence[str], name: str, errors: Any, environ: Mapping[str, str] | None
    ) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise AuditError("the audit is over")
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    encoding="utf-8",
                    env=os.environ | dict(environ or {}),
                    start_new_session=True,  # so that Ctrl-C is ours alone, and its children end with it
                )
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "its command holds a zero byte"
                raise AuditError(f"{name} cannot be started: {reason}") from None
            self._running.add(process)
        return process


def _end(process: subprocess.Popen[str]) -> None:
    """End a process that still runs, with all that it has started, and reap it."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _ending(code: int) -> str:
    return f"ended with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
