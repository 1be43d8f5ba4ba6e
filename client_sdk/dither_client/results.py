"""What the SDK answers: small frozen values, to be looked at by the app and never sent anywhere."""

from enum import StrEnum
from typing import NamedTuple


class RecordStatus(StrEnum):
    """What became of one call of `Client.record`."""

    QUEUED = "queued"
    ALREADY_REPORTED = "already_reported_this_window"
    NOT_DRAWN = "not_drawn"
    BUDGET_EXHAUSTED = "budget_exhausted"
    NOT_CONSENTED = "not_consented"
    DISABLED = "disabled"
    DROPPED = "dropped"


class RecordResult(NamedTuple):
    """The outcome of `Client.record`. It depends on ledger, registry, consent and queue, never on the value.

    Attributes:
        status: what became of the answer.
        reason: for `dropped` and `disabled`, why; else empty.
    """

    status: RecordStatus
    reason: str = ""


class FlushResult(NamedTuple):
    """The outcome of `Client.flush`: what this call saw happen, in reports.

    Attributes:
        sent: accepted by the server.
        duplicate: in batches that the server already had from an earlier try.
        rejected: refused by the server one by one.
        dropped: given up: a final refusal of their batch, or too old to be accepted by anybody.
        pending: still on the device.
        timed_out: whether reports are pending because the timeout, or the back-off, ended the wait.
    """

    sent: int
    duplicate: int
    rejected: int
    dropped: int
    pending: int
    timed_out: bool


class Pending(NamedTuple):
    """Exactly what is going to leave the device.

    Attributes:
        batches: bodies of sealed batches; every try sends these bytes.
        reports: reports that are not in a batch yet, as the JSON text that will stand in one.
    """

    batches: list[bytes]
    reports: list[str]
