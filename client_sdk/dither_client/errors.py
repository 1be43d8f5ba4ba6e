"""Errors of the SDK, beside those of the protocol that `Client.record` raises for mistakes of the app.

::

    DitherError
    ├── MetricUsageError and its kinds       (dither_protocol.errors)
    ├── StrictError                          only with strict=True
    │   ├── BudgetExhaustedError
    │   └── NotConsentedError
    ├── RefusedError                         inside the SDK: the answer is not taken
    └── StateError                           inside the SDK: becomes a result, never reaches the app
        ├── StateBusyError
        ├── StateReentrantError
        ├── StateForkedError
        ├── StateFullError
        └── StateBrokenError
"""

from dither_client.results import RecordResult, RecordStatus
from dither_protocol.errors import DitherError


class StrictError(DitherError):
    """With ``strict=True``: an answer was not taken for a reason that is no mistake of the app."""


class BudgetExhaustedError(StrictError):
    """The report would spend more than the app's or the registry's limits allow."""


class NotConsentedError(StrictError):
    """The person at the device has not agreed, or no longer agrees."""


class StateError(DitherError):
    """The state cannot be used now."""

    reason = "state"


class StateBusyError(StateError):
    """Another process held the database for longer than the busy timeout."""

    reason = "busy"


class StateReentrantError(StateError):
    """This thread is inside a transaction already: a signal handler, a finalizer or a log handler came back."""

    reason = "reentrant"


class StateForkedError(StateError):
    """The process forked inside the transaction; the child's half of it is void."""

    reason = "forked"


class StateFullError(StateError):
    """The disk is full; nothing was written."""

    reason = "disk_full"


class StateBrokenError(StateError):
    """The database is corrupt, unwritable or of another version."""

    reason = "broken"


class RefusedError(DitherError):
    """Rolls the transaction of an answer back; becomes the ``result`` of `Client.record`, never reaches the app."""

    def __init__(self, status: RecordStatus, reason: str = "") -> None:
        super().__init__()
        self.result = RecordResult(status, reason)
