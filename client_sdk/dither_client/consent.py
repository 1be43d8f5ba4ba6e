"""May this device answer? The person's own decision, the app's argument, the environment, in this order."""

import sqlite3
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from dither_client.balance import CONSENT
from dither_client.errors import StateBusyError
from dither_client.outbox import erase
from dither_client.state import State, read_note, write_note

PATIENCE_S: Final = 5.0


class Standing(NamedTuple):
    """What holds where the person has not decided.

    Attributes:
        enabled: False switches the SDK off altogether.
        consent: what counts as the answer of somebody who was not asked.
    """

    enabled: bool
    consent: bool


def standing(enabled: bool | None, consent: bool | None, environ: Mapping[str, str]) -> Standing:
    """An explicit argument goes before the environment, the environment before the default, which is yes.

    ``DITHER_DISABLED=1`` switches off, ``DO_NOT_TRACK=1`` (consoledonottrack.com) counts as a no.
    """
    return Standing(
        enabled=environ.get("DITHER_DISABLED", "") in ("", "0") if enabled is None else enabled,
        consent=environ.get("DO_NOT_TRACK", "") in ("", "0") if consent is None else consent,
    )


def given(connection: sqlite3.Connection, default: bool) -> bool:
    """Whether the person agrees: what they decided last, else ``default``."""
    return _agrees(read_note(connection, CONSENT), default)


def _agrees(decided: str | None, default: bool) -> bool:
    return default if decided is None else decided == "yes"


def decided(connection: sqlite3.Connection) -> bool | None:
    """What the person decided; None where they have not."""
    note = read_note(connection, CONSENT)
    return None if note is None else note == "yes"


def decide(connection: sqlite3.Connection, agrees: bool) -> int:
    """Keep the person's decision; a no erases the queue and all that is memoised, and keeps the ledger (P8).

    Returns:
        How many reports were erased.
    """
    write_note(connection, CONSENT, "yes" if agrees else "no")
    if agrees:
        return 0
    from dither_client import memo  # noqa: PLC0415  not needed at the start

    memo.erase(connection)
    return erase(connection)


def decide_patiently(state: State, agrees: bool) -> int:
    """`decide` in a transaction of its own, waiting for other processes, and leaving no trace of what is erased.

    Raises:
        StateError: it could not be written, or another process held the state for PATIENCE_S.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with state.transaction(durable=True) as connection:
                erased = decide(connection, agrees)
            break
        except StateBusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    if not agrees:
        drop_traces_patiently(state)
    return erased


def drop_traces_patiently(state: State) -> None:
    """Leave no trace of what was erased, waiting for other processes at most PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not state.drop_traces() and time.monotonic() < deadline:
        time.sleep(0.05)


class Consent:
    """Whether a client may answer and send now.

    Args:
        state: where the person's decision is kept.
        standing: what holds where they have not decided.
    """

    def __init__(self, state: State, standing: Standing) -> None:
        self._state = state
        self._standing = standing
        self._withdrawn = False

    @property
    def enabled(self) -> bool:
        """Whether the SDK is switched on at all."""
        return self._standing.enabled

    def given(self, decided: str | None) -> bool:
        """Whether the person agrees, by the note of their decision as it is in the caller's transaction."""
        return not self._withdrawn and _agrees(decided, self._standing.consent)

    def may_send(self) -> bool:
        """Whether something may leave the device.

        Raises:
            StateError: the state cannot be read now.
        """
        if self._withdrawn or not self._standing.enabled:
            return False
        with self._state.transaction() as connection:
            return given(connection, self._standing.consent)

    def decide(self, agrees: bool) -> None:
        """Keep the person's decision. A no holds for this client even where it could not be written.

        Raises:
            StateError: it could not be written.
        """
        self._withdrawn = not agrees
        decide_patiently(self._state, agrees)
