"""Processes that a serve started: written down, recognised after a crash, and ended.

A process id alone proves nothing, since ids are used again. A recorded process is taken for the same only if it
also started at the recorded moment and leads its own session, as every child here does.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from dither_cli.files import write_private

_SAME_START_S: Final = 5.0
"""Tolerance on a start time, seconds: the kernel's idea of its boot time moves when the clock is set."""

_POLL_S: Final = 0.05
_KILLED_LIMIT_S: Final = 10.0


@dataclass(frozen=True)
class Recorded:
    """One child as it stands in ``processes.json``.

    Attributes:
        name: which child: store, ingest or estimator.
        pid: its process id, which is also the id of its session and process group.
        create_time: when it started, seconds since the epoch.
    """

    name: str
    pid: int
    create_time: float

    @classmethod
    def of(cls, name: str, pid: int) -> "Recorded | None":
        """Describe a running process; None if it is gone already."""
        try:
            return cls(name, pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return None

    def alive(self) -> bool:
        """Whether this very process still runs. A zombie does not."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.create_time) <= _SAME_START_S
            return same and process.status() != psutil.STATUS_ZOMBIE and os.getsid(self.pid) == self.pid
        except (psutil.NoSuchProcess, ProcessLookupError):
            return False


def write_record(path: Path, processes: Iterable[Recorded]) -> None:
    """Write down what runs now."""
    write_private(path, json.dumps([asdict(process) for process in processes], indent=1) + "\n")


def read_record(path: Path) -> list[Recorded]:
    """What the last serve wrote down; nothing where there is no file, or one that is damaged."""
    try:
        return [
            Recorded(str(item["name"]), int(item["pid"]), float(item["create_time"]))
            for item in json.loads(path.read_text(encoding="utf-8"))
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal every process of the group that ``pid`` leads; nothing happens if there is none."""
    with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
        os.killpg(pid, number)


def end(process: Recorded, limit_s: float, log: Callable[[str], None]) -> None:
    """End one recorded process: SIGTERM, wait up to ``limit_s`` seconds, then SIGKILL to its group."""
    if not process.alive():
        return
    log(f"{process.name}: ending process {process.pid}, left over from an earlier run")
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    if _wait_gone(process, limit_s):
        return
    log(f"{process.name}: process {process.pid} did not end within {limit_s:g} s; killing its group")
    signal_group(process.pid, signal.SIGKILL)
    if not _wait_gone(process, _KILLED_LIMIT_S):
        log(f"{process.name}: process {process.pid} is still there after SIGKILL")


def _wait_gone(process: Recorded, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while process.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def end_leftovers(path: Path, limits_s: Mapping[str, float], log: Callable[[str], None]) -> None:
    """End every process of the record that still runs, in the order of ``limits_s`` (seconds by name)."""
    order = list(limits_s)
    recorded = read_record(path)
    for process in sorted(recorded, key=lambda p: order.index(p.name) if p.name in order else -1):
        end(process, limits_s.get(process.name, 10.0), log)
    path.unlink(missing_ok=True)
