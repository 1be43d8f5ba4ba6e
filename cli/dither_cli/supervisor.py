"""Keeps children running: ordered start, restart with back-off, ordered stop.

One thread starts all children, and lives until the last has ended. It must be one thread: the kernel's "tell me
when my parent dies" (see `child.py`) is about the thread that started the child, not about its process.

A start is given up, and everything stopped, when a child ended quickly more than MAX_QUICK_FAILURES times in a
row and either never was ready or says by its exit code that its configuration is wrong. Everything else, such as
a store on a full disk, is tried again for ever, at most every `Timing.max_backoff_s`.
"""

import atexit
import logging
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dither_cli.child import CANNOT_RUN
from dither_cli.child_process import ChildProcess, ChildSpec
from dither_cli.errors import ChildGaveUp
from dither_cli.processes import write_record
from dither_cli.timing import Timing

MAX_QUICK_FAILURES: Final = 3

_log = logging.getLogger(__name__)


class _Watched:
    """A child with its history. Only the supervisor's thread changes it."""

    def __init__(self, spec: ChildSpec, log_file: Path) -> None:
        self.spec = spec
        self.log_file = log_file
        self.process: ChildProcess | None = None
        self.ready = False
        self.ever_ready = False
        self.failures = 0
        self.quick_failures = 0
        self.due = 0.0
        self.waits_for = ""
        self.waits_since = 0.0
        self.reported = 0.0


class Supervisor:
    """Runs children until it is told to stop, or until one of them cannot be kept running.

    Args:
        specs: in the order of starting. Each waits for the first readiness of those before it.
        stop_order: names in the order of stopping.
        log_dir: folder for ``<name>.log``.
        record: file that always says which children run.
        timing: see `Timing`.

    Attributes:
        finished: set when no child runs any more.
        failure: why it stopped by itself; None if it was told to.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        stop_order: Sequence[str],
        log_dir: Path,
        record: Path,
        timing: Timing | None = None,
    ) -> None:
        self._children = [_Watched(spec, log_dir / f"{spec.name}.log") for spec in specs]
        self._by_name = {child.spec.name: child for child in self._children}
        self._stop_order = [self._by_name[name] for name in stop_order]
        self._record = record
        self._timing = timing or Timing()
        self._thread = threading.Thread(target=self._run, name="dither-supervisor", daemon=True)
        # Plain flags: a signal handler may set them, but must not touch the lock inside an Event.
        self._stop_asked = False
        self._hastened = False
        self.finished = threading.Event()
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Begin. Returns at once; see `ready` and `waits_for`."""
        atexit.register(self.stop)
        self._thread.start()

    def request_stop(self) -> None:
        """Ask for the ordered stop. Safe in a signal handler."""
        self._stop_asked = True

    def hasten(self) -> None:
        """Stop, with little patience. Safe in a signal handler."""
        self._stop_asked = self._hastened = True

    def stop(self) -> None:
        """Stop in order and return when no child runs any more. Does nothing the second time."""
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join()
        atexit.unregister(self.stop)

    @property
    def ready(self) -> bool:
        """Whether every child runs and has answered its probe."""
        return all(child.ready for child in self._children)

    @property
    def processes(self) -> dict[str, int]:
        """Process ids of the children that run, by name."""
        return {c.spec.name: process.pid for c in self._children if (process := c.process) is not None}

    def _run(self) -> None:
        try:
            while not self._stop_asked:
                for child in self._children:
                    self._tick(child)
                time.sleep(self._timing.tick_s)
        except ChildGaveUp as error:
            self.failure = error
            _log.error("%s: %s; stopping everything", error.name, error.reason)
        except BaseException as error:  # whatever it is, the children must not be left alone
            self.failure = error
            _log.exception("stopping everything")
        finally:
            self._stop_all()
            self.finished.set()

    def _tick(self, child: _Watched) -> None:
        if child.process is None:
            if time.monotonic() >= child.due and self._may_start(child):
                self._start(child)
        elif (code := child.process.exit_code()) is not None:
            self._ended(child, child.process, code)
        elif not child.ready:
            self._probe(child, child.process)
        elif child.failures and child.process.age_s >= self._timing.healthy_s:
            child.failures = child.quick_failures = 0

    def _may_start(self, child: _Watched) -> bool:
        earlier = self._children[: self._children.index(child)]
        needed = all(self._by_name[name].ready for name in child.spec.needs)
        return needed and all(other.ever_ready for other in earlier)

    def _start(self, child: _Watched) -> None:
        try:
            child.process = ChildProcess(child.spec, child.log_file)
        except OSError as error:
            self._postpone(child, f"cannot be started: {error.strerror}")
            return
        child.waits_for, child.waits_since = "", time.monotonic()
        child.reported = child.waits_since
        self._write_record()
        _log.info("%s: started, pid %d", child.spec.name, child.process.pid)

    def _probe(self, child: _Watched, process: ChildProcess) -> None:
        waits_for, now = child.spec.probe(), time.monotonic()
        if waits_for is None:
            child.ready = child.ever_ready = True
            _log.info("%s: ready after %.1f s", child.spec.name, process.age_s)
            return
        if waits_for != child.waits_for:  # whatever makes progress is not stuck
            child.waits_for, child.waits_since = waits_for, now
        if now - child.reported >= self._timing.progress_s:
            child.reported = now
            _log.info("%s: %s", child.spec.name, waits_for)
        if now - child.waits_since > child.spec.start_limit_s:
            _log.warning("%s: no progress for %g s; killing it", child.spec.name, child.spec.start_limit_s)
            process.kill()

    def _ended(self, child: _Watched, process: ChildProcess, code: int) -> None:
        quick = process.age_s < self._timing.quick_s or not child.ready
        child.quick_failures = child.quick_failures + 1 if quick else 0
        child.process, child.ready = None, False
        self._write_record()
        how = f"ended by signal {-code}" if code < 0 else f"exited with code {code}"
        wrong = code in child.spec.config_exit_codes or code == CANNOT_RUN
        if child.quick_failures > MAX_QUICK_FAILURES and (wrong or not child.ever_ready):
            reason = f"failed {child.quick_failures} times at its start (it {how})"
            raise ChildGaveUp(child.spec.name, reason, process.tail())
        if process.age_s >= self._timing.healthy_s:
            child.failures = 0
        self._postpone(child, how)

    def _postpone(self, child: _Watched, why: str) -> None:
        child.failures += 1
        pause_s = self._timing.backoff_s(child.failures)
        child.due = time.monotonic() + pause_s
        _log.warning("%s: %s; restarting in %g s", child.spec.name, why, pause_s)

    def _stop_all(self) -> None:
        for child in self._stop_order:
            if child.process is None:
                continue
            asked, limit_s = time.monotonic(), child.spec.stop_limit_s
            by_itself = child.process.stop(partial(self._patience_s, limit_s))
            took_s = time.monotonic() - asked
            if by_itself:
                _log.info("%s: stopped after %.1f s", child.spec.name, took_s)
            else:
                _log.warning("%s: did not stop within %.1f s; killed", child.spec.name, took_s)
            child.process, child.ready = None, False
        self._write_record()

    def _patience_s(self, limit_s: float) -> float:
        return min(limit_s, self._timing.hastened_s) if self._hastened else limit_s

    def _write_record(self) -> None:
        running = [c.process.recorded for c in self._stop_order if c.process is not None]
        try:
            write_record(self._record, [recorded for recorded in running if recorded is not None])
        except OSError as error:  # a full disk must not end what still runs
            _log.warning("cannot record the running processes: %s", error.strerror)
