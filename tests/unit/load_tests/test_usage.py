"""What a process takes, of real processes."""

import os
import subprocess
import sys
import threading

from dither_fleet.usage import children_of, usage_of
from support.serve_process import wait_until

_BLOCK = 64 << 20


def test_memory_descriptors_and_threads_of_this_process() -> None:
    """Each rises by what is taken, and no further than a little."""
    before = usage_of(os.getpid())
    held = b"x" * _BLOCK
    ends = os.pipe()
    go = threading.Event()
    waiting = threading.Thread(target=go.wait)
    waiting.start()
    after = usage_of(os.getpid())
    go.set()
    waiting.join()
    for end in ends:
        os.close(end)
    assert before is not None
    assert after is not None
    assert len(held) == _BLOCK
    for name in ("rss_bytes", "pss_bytes", "uss_bytes"):
        assert 0.9 * _BLOCK < getattr(after, name) - getattr(before, name) < 1.2 * _BLOCK
    assert after.uss_bytes <= after.pss_bytes <= after.rss_bytes
    assert after.descriptors == before.descriptors + 2
    assert after.threads == before.threads + 1
    assert after.cpu_s >= before.cpu_s
    assert after.pid == os.getpid()


def test_children_stand_by_age_and_what_has_ended_has_no_usage() -> None:
    """The older one first, although ids of processes may begin anew; a process that is gone is None."""
    code = "import sys; sys.stdin.read()"
    running = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) for _ in range(2)]
    try:
        ours = [pid for pid in children_of(os.getpid()) if pid in {each.pid for each in running}]
        assert ours == [each.pid for each in running]
        wait_until(lambda: (usage := usage_of(running[0].pid)) and usage.rss_bytes > 0, "the child's memory")
    finally:
        for each in running:
            each.communicate()
    assert usage_of(running[0].pid) is None
    assert children_of(running[0].pid) == []
