"""The free space that the store's disk must have. A store whose disk is full ends; it is left alone before that."""

import os
import time
from pathlib import Path
from typing import Final

_LOOK_EVERY_S: Final = 1.0


class DiskFloor:
    """Looks at a disk, at most once a second.

    Args:
        path: a folder on the disk; None where the store's disk is another machine's, and nothing is looked at.
        min_free_bytes: free space, for other users than root, below which there is too little.
    """

    def __init__(self, path: Path | None, min_free_bytes: int) -> None:
        self._path = path
        self.min_free_bytes = min_free_bytes
        self._looked_at = -_LOOK_EVERY_S
        self._enough = True

    def has_room(self) -> bool:
        """Whether there was enough free space when it was looked at last. A folder that is gone has none."""
        if self._path is None:
            return True
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now  # first: a disk that hangs should hold one thread, not each that comes
            free = self.free_bytes()
            self._enough = free is not None and free >= self.min_free_bytes
        return self._enough

    def free_bytes(self) -> int | None:
        """The free space now, for other users than root; None where the folder is not known, or is gone."""
        if self._path is None:
            return None
        try:
            found = os.statvfs(self._path)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize
