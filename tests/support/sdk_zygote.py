"""Forks a program that uses the SDK again and again, and kills each one at the instant that it is told.

A line ``first count delay`` on standard input is one run: a fresh process (everything is imported already, so that
the instants fall where it matters) records ``count`` questions from ``first`` on, delivers, and waits for the SIGKILL
that comes after ``delay`` seconds. The answer is how it ended.
"""

import os
import select
import signal
import sys
import time

import requests  # noqa: F401  imported before the fork, so that runs are short

from support.sdk_app import ask, make_client, registry


def _program(first: int, count: int) -> None:
    client = make_client(exit_timeout_s=5)
    for number in range(first, first + count):
        ask(client, number)
        client.flush(0.01)
    client.flush(30)
    time.sleep(30)


def _run(first: int, count: int, delay_s: float) -> int:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)  # the writer closes when this process ends
            _program(first, count)
        finally:
            os._exit(0)
    os.close(writer)
    select.select([reader], [], [], delay_s)
    os.kill(pid, signal.SIGKILL)  # not waited for yet, so the pid is still its own
    os.close(reader)
    return os.waitpid(pid, 0)[1]


def main() -> None:
    """Serve standard input."""
    registry()
    for line in sys.stdin:
        first, count, delay_s = line.split()
        print(_run(int(first), int(count), float(delay_s)), flush=True)


if __name__ == "__main__":
    main()
