"""`dither serve` as an operator runs it: a process of its own on a state directory of its own.

::

    with ServiceProcess(folder / "state", registry) as service:
        service.wait_ready()
        load(service.target())
        assert service.stop() == 0
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from dither_cli import child as launcher
from dither_cli.credentials import read_exports
from dither_cli.embedded_store import socket_path
from dither_cli.processes import end_leftovers, read_record
from dither_cli.simulate_place import Target, find_target
from dither_cli.state_dir import StateDir
from dither_fleet.usage import children_of
from dither_protocol.errors import DitherError

SERVE: Final = "serve"
STORE: Final = "store"

_READY_LINE: Final = "Ctrl-C stops it"
_LIMIT_S: Final = 120.0
_POLL_S: Final = 0.05
_KILLED_LIMITS_S: Final = {"ingest": 0.0, "estimator": 0.0, "store": 0.0}


class ServiceProcessError(DitherError):
    """The service does not start, or does not stop, as it should."""


class ServiceProcess:
    """One run of it. Leaving the context ends whatever of it is left.

    Args:
        state_dir: its state directory.
        registry: file of the registry.
        workers: of the server.
        cpus: processors that all of it may run on; empty for any.
        environ: variables ``DITHER_*`` on top; those of this process are left out.
    """

    def __init__(
        self,
        state_dir: Path,
        registry: Path,
        *,
        workers: int = 2,
        cpus: Iterable[int] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._state = StateDir(state_dir)
        self._output = state_dir.with_name(f"{state_dir.name}.out")
        options = ["--state-dir", str(state_dir), "--registry", str(registry), "--port", "0"]
        options += ["--workers", str(workers)]
        dither = [sys.executable, "-c", "from dither_cli.entry import main; main()", SERVE, *options]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DITHER_")}
        with self._output.open("wb") as output, running_on(cpus):
            # By the launcher: should this process be killed, the service ends, and does so in order.
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), "--", *dither],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=inherited | dict(environ or {}),
                start_new_session=True,  # Ctrl-C is for who runs the load; the service is stopped after that
            )

    @property
    def store_url(self) -> str:
        """The embedded store, as redis-py takes it."""
        return f"unix://{socket_path(self._state.path)}"

    def wait_ready(self) -> None:
        """Wait until it says where it is.

        Raises:
            ServiceProcessError: it ended, or says nothing for two minutes.
        """
        deadline = time.monotonic() + _LIMIT_S
        while _READY_LINE not in self.said():
            if self._popen.poll() is not None or time.monotonic() > deadline:
                raise ServiceProcessError(f"dither serve does not get ready:\n{self.said()}")
            time.sleep(_POLL_S)

    def said(self) -> str:
        """What it has printed."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def target(self) -> Target:
        """Where it listens, with its keys."""
        found = find_target(None, None, None, self._state.path, environ={}, allow_remote=False)
        if found is None:
            raise ServiceProcessError("dither serve has written down no address")
        return found

    @property
    def operator_token(self) -> str:
        """The secret that reads everything."""
        return read_exports(self._state.env)["DITHER_OPERATOR_TOKEN"]

    def pids(self) -> dict[str, int]:
        """Process ids by role, the server's master first and then its workers by age."""
        recorded = {each.name: each.pid for each in read_record(self._state.processes)}
        found = {SERVE: self._popen.pid}
        for name, pid in recorded.items():
            if name == "ingest":
                found["server master"] = pid
                workers = children_of(pid)
                found |= {f"server worker {number}": each for number, each in enumerate(workers, 1)}
            else:
                found[name] = pid
        return found

    def stop(self) -> int:
        """Ask for the ordered stop; its exit code.

        Raises:
            ServiceProcessError: it has not ended two minutes later.
        """
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
        try:
            return self._popen.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise ServiceProcessError("dither serve does not stop") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End whatever is left of it."""
        try:
            self.stop()
        except ServiceProcessError:
            self._popen.kill()
            self._popen.wait()
            end_leftovers(self._state.processes, _KILLED_LIMITS_S, lambda _: None)


@contextmanager
def running_on(cpus: Iterable[int]) -> Iterator[None]:
    """What is started meanwhile may run on these processors alone; on any where there are none."""
    wanted = set(cpus)
    if not wanted:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, wanted)
    try:
        yield
    finally:
        with suppress(OSError):  # the processors of before may be gone
            os.sched_setaffinity(0, before)
