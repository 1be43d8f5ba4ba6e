"""Every exit code of the `dither` command, with its meaning."""

from enum import IntEnum
from typing import Final

SIGNAL_EXIT: Final = 128
"""Plus its number is the exit code of a demo, simulation or audit that a signal broke off, as shells have it."""


class ExitCode(IntEnum):
    """What the shell sees. Stable: scripts rely on these numbers."""

    OK = 0
    """Done; for `dither serve`: stopped because it was asked to."""

    FAILED = 1
    """The answer is no: a registry or report is refused, a demo or simulation missed its limits, an audit found a
    broken promise, a file cannot be read or written."""

    USAGE = 2
    """The command cannot be run as given: bad option, or an extra that is not installed."""

    STATE_DIR = 3
    """The state directory is used by another `dither serve`, or cannot be used."""

    PORT = 4
    """The address to listen on is taken or impossible."""

    SERVICE = 5
    """The service did not come up, or a part of it cannot be kept running; no store answers."""
