"""What is damaged in the store stops nothing else: it is said once, and tried again after a while."""

import logging
import time
from typing import Final

from dither_estimator.errors import EstimationError
from dither_protocol.errors import RegistryError, StorageError, WindowError

HOLD_S: Final = 30.0
"""How long something that could not be published waits for the next try."""

FAULTS: Final = (EstimationError, RegistryError, StorageError, WindowError)
"""What a damaged cell, mark or definition shows as."""

_REMEMBERED: Final = 10_000

_log = logging.getLogger("dither_estimator")


class Faults:
    """Remembers what was said, and what has to wait."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._held: dict[object, float] = {}

    def note(self, where: str, error: Exception) -> None:
        """Say once that something cannot be published as it is."""
        text = f"{where}: {error}"
        if text not in self._said:
            if len(self._said) >= _REMEMBERED:
                self._said.clear()
            self._said.add(text)
            _log.error("not published, everything else is: %s", text)

    def hold(self, what: object) -> None:
        """Let something wait."""
        self._held[what] = time.monotonic() + HOLD_S

    def holds(self, what: object) -> bool:
        """Whether something has to wait still."""
        until = self._held.get(what)
        if until is None:
            return False
        if time.monotonic() >= until:
            del self._held[what]
            return False
        return True
