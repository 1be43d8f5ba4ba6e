"""The secret that signs sessions: one for all processes of all servers, kept by the store.

It is made by whoever finds none, and looked at again once a second. So processes agree within a second, also after the
loss of the store's data, and an operator who deletes it ends all sessions, without a restart.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from dither_protocol.storage import SESSIONS_KEY, PartitionKeys
from dither_server.store import Store
from dither_server.store_rules import StoreRefused, StoreUnavailable

LOOK_INTERVAL_S: Final = 1.0
"""For so long a secret is used before the store is asked whether it is still the same, seconds."""
SIGN_IN_WAIT_S: Final = 5.0
"""For so long somebody with a good key waits for a store that is slow, seconds; others are told at once."""

_LOG: Final = logging.getLogger(__name__)
_ASK_AGAIN_S: Final = 0.1
_BYTES: Final = 32
_HEX: Final = re.compile(rf"[0-9a-f]{{{2 * _BYTES}}}", re.ASCII)


class SessionSecret:
    """The secret, as this process knows it.

    Args:
        store: keeps it.
        clock: monotonic time, seconds.
        sleep: lets so many seconds of it pass.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sleep = sleep
        self._known: bytes | None = None
        self._look_again_s = 0.0

    def look(self) -> None:
        """Read it before it is needed, so that the first person who signs in waits for no write of a busy store."""
        try:
            self()
        except Exception as error:  # whatever is wrong with one key of people's keeps no device out
            _LOG.warning("the secret of sessions is read when somebody signs in: %s", error)

    def wait(self) -> bytes:
        """The secret, also of a store that answers only after a moment.

        Raises:
            StoreUnavailable: it did not for `SIGN_IN_WAIT_S`.
            StoreRefused: as a call raises it.
        """
        deadline = self._clock() + SIGN_IN_WAIT_S
        while True:
            try:
                return self()
            except StoreUnavailable:
                if self._clock() >= deadline:
                    raise
            self._sleep(_ASK_AGAIN_S)

    def __call__(self) -> bytes:
        """The secret, 32 bytes. While the store is away it is the one that was read last.

        Raises:
            StoreUnavailable: the store cannot be read now, and this process has read none yet.
            StoreRefused: the store must not be used, or what it keeps is no secret; likewise.
        """
        known, now_s = self._known, self._clock()
        if known is not None and now_s < self._look_again_s:
            return known
        # Before reading: while a store is silent one thread waits for it, and the others go on.
        self._look_again_s = now_s + LOOK_INTERVAL_S
        try:
            self._known = self._read()
        except (StoreUnavailable, StoreRefused) as error:
            if isinstance(error, StoreRefused):
                _LOG.error("sessions of the dashboard: %s", error)
            if known is None:
                raise
            return known
        return self._known

    def _read(self) -> bytes:
        # Reading alone where that is enough: a store that takes no writes must not lock people out.
        found = self._store.read(_find)
        if found is None:
            self._store.catalogue()  # a store that is not fit for use is not written to
            found = self._store.read(_make)
        text = found.decode("ascii", "replace") if isinstance(found, bytes) else found
        if not _HEX.fullmatch(text):
            raise StoreRefused(f"keeps no secret under {SESSIONS_KEY}; delete it, and a new one is made")
        return bytes.fromhex(text)


def _find(client: Any, _: Sequence[PartitionKeys]) -> bytes | str | None:
    found: bytes | str | None = client.get(SESSIONS_KEY)
    return found


def _make(client: Any, _: Sequence[PartitionKeys]) -> bytes | str:
    fresh = secrets.token_hex(_BYTES)
    found: bytes | str | None = client.set(SESSIONS_KEY, fresh, nx=True, get=True)
    return fresh if found is None else found  # somebody was faster
