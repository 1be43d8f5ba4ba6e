"""The processes of the fleet. Each one that ended and is still wanted is started again, as a supervisor would."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

_POLL_S: Final = 0.005
_STOP_LIMIT_S: Final = 30.0


class Unit:
    """One program of the fleet that is to run all the time.

    Attributes:
        name: in the journal.
        log: where its standard output and error go.
        exits: exit codes of the runs that have ended.
        restart_after_s: pause before the next restart.
    """

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.exits: list[int] = []
        self.restart_after_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._leaving: list[subprocess.Popen[bytes]] = []
        self._due = 0.0
        self._family: list[psutil.Process] = []

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _environ(self) -> Mapping[str, str]:
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        """Its process id; None while it does not run."""
        return self._process.pid if self._process is not None else None

    async def tend(self) -> None:
        """Notice its end; start it where it is due."""
        for process in [process for process in self._leaving if process.poll() is not None]:
            self._leaving.remove(process)
            self.exits.append(process.returncode)
        if self._process is not None and self._process.poll() is not None:
            self.exits.append(self._process.returncode)
            self._due = time.monotonic() + self.restart_after_s
            self._process, self.restart_after_s = None, 0.0
        if self._process is None and time.monotonic() >= self._due:
            await self.start()

    def leave(self) -> subprocess.Popen[bytes] | None:
        """Let another take its place at once; the process, which is to end soon."""
        old, self._process = self._process, None
        if old is not None:
            self._leaving.append(old)
        return old

    async def start(self) -> None:
        """Start it; it may not be ready yet."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self._environ()),
                cwd=self.log.parent,
                start_new_session=True,
                restore_signals=False,  # SIGXFSZ stays ignored: past a limit of file sizes a write fails
            )
        self._family.append(psutil.Process(self._process.pid))

    def signal(self, number: int) -> bool:
        """Send it a signal; whether it runs."""
        if self._process is None or self._process.poll() is not None:
            return False
        self._process.send_signal(number)
        return True

    def family(self) -> list[psutil.Process]:
        """Every process that it ever had and that runs still, children included."""
        found = dict.fromkeys(self._family)
        for process in self._family:
            with suppress(psutil.NoSuchProcess):
                found |= dict.fromkeys(process.children(recursive=True))
        self._family = [process for process in found if _alive(process)]
        return self._family

    def go_on(self) -> None:
        """SIGCONT to all of them."""
        for process in self.family():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    async def stop(self) -> None:
        """End all of them, by force where they do not end on SIGTERM."""
        self.go_on()
        family = self.family()
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_LIMIT_S
        while any(map(_alive, family)) and time.monotonic() < deadline:
            for own in self._own():
                own.poll()
            await asyncio.sleep(_POLL_S)
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()  # psutil checks that it is still the same process
        for own in self._own():
            own.wait()

    def _own(self) -> list[subprocess.Popen[bytes]]:
        return self._leaving + ([self._process] if self._process is not None else [])

    def tail(self, lines: int = 30) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
