"""Launcher of every child: `python -I -S child.py PARENT_PID -- COMMAND...`. Standard library only.

A child must not outlive a `dither serve` that is killed with SIGKILL. On Linux the kernel can be asked to send
a signal to a process when its parent dies; the request survives `exec`, so this file makes it and then becomes
the command. (Not `preexec_fn`: it runs Python between fork and exec of a threaded process, which can deadlock.)
Elsewhere there is no such request: the next start ends what was left over, see `processes.py`.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

PARENT_GONE: Final = 125
CANNOT_RUN: Final = 127

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def die_with(parent: int) -> None:
    """Ask for SIGTERM when the parent dies, and leave at once if it is dead already."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the request was made: no signal would ever come
        sys.exit(PARENT_GONE)


def main(arguments: Sequence[str]) -> None:
    """Become the command. Exits with CANNOT_RUN if there is no such program."""
    parent, _, *command = arguments
    die_with(int(parent))
    try:
        os.execv(command[0], command)  # noqa: S606  the command is the supervisor's own list, never a shell line
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error.strerror}\n")
        sys.exit(CANNOT_RUN)


if __name__ == "__main__":
    main(sys.argv[1:])
