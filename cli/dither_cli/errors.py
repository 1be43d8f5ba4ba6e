"""What can keep `dither serve` from running.

::

    ServeError              .exit_code is what the shell gets
    ├── StateDirError       the state directory is in use, or not one
    ├── AddressError        nothing can listen on this host and port
    ├── StoreError          no embedded store can be started
    ├── ChildGaveUp         a child fails again and again at its start; .tail holds its last lines
    └── NotReadyError       everything runs, and still the service does not call itself ready
"""

from dither_cli.exit_codes import ExitCode
from dither_protocol.errors import DitherError


class ServeError(DitherError):
    """`dither serve` cannot do what it was asked to."""

    exit_code = ExitCode.SERVICE


class StateDirError(ServeError):
    """The state directory is in use by another serve, or is not fit to be one."""

    exit_code = ExitCode.STATE_DIR


class AddressError(ServeError):
    """Nothing can listen on this host and port."""

    exit_code = ExitCode.PORT


class StoreError(ServeError):
    """No embedded store can be started."""


class NotReadyError(ServeError):
    """All children run, and the service still does not call itself ready."""


class ChildGaveUp(ServeError):
    """A child fails again and again at its start.

    Attributes:
        name: which child.
        reason: how it ended.
        tail: its last lines of output.
    """

    def __init__(self, name: str, reason: str, tail: str) -> None:
        super().__init__(f"{name} {reason}" + (f"; its last lines:\n{tail}" if tail else ""))
        self.name = name
        self.reason = reason
        self.tail = tail
