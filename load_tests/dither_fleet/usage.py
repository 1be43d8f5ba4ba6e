"""What a process takes: memory, descriptors, threads, processor time."""

from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Usage:
    """One process at one moment.

    Attributes:
        pid: its process id.
        rss_bytes: resident memory, pages that it shares with others among it.
        pss_bytes: the same, each shared page divided by those who share it; the resident memory where the system
            does not say.
        uss_bytes: pages that are its own alone.
        descriptors: open files and sockets.
        threads: how many.
        cpu_s: processor time so far, seconds.
    """

    pid: int
    rss_bytes: int
    pss_bytes: int
    uss_bytes: int
    descriptors: int
    threads: int
    cpu_s: float


def usage_of(pid: int) -> Usage | None:
    """A process of this user now; None where there is none."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            memory = process.memory_full_info()
            times = process.cpu_times()
            return Usage(
                pid=pid,
                rss_bytes=memory.rss,
                pss_bytes=getattr(memory, "pss", memory.rss),
                uss_bytes=memory.uss,
                descriptors=process.num_fds(),
                threads=process.num_threads(),
                cpu_s=times.user + times.system,
            )
    except psutil.Error:
        return None


def children_of(pid: int) -> list[int]:
    """Process ids of the children of a process, the oldest first; none where it is gone."""
    try:
        children = psutil.Process(pid).children()
    except psutil.Error:
        return []
    return [child.pid for child in sorted(children, key=lambda child: (_started(child), child.pid))]


def _started(process: psutil.Process) -> float:
    try:
        return float(process.create_time())
    except psutil.Error:
        return 0.0
