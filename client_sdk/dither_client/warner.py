"""Warnings that do not flood the app's log: each kind at most once a minute."""

import time
from typing import Final

from dither_client.log import logger

PAUSE_S: Final = 60.0


class Warner:
    """Logs a warning unless one of its kind was logged less than a minute ago."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def warn(self, kind: str, message: str, *arguments: object) -> None:
        """Log ``message`` if it is time for this ``kind`` again."""
        now = time.monotonic()
        if now - self._last.get(kind, -PAUSE_S) >= PAUSE_S:
            self._last[kind] = now
            logger().warning(message, *arguments)
