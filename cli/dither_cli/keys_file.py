"""The keys file as commands change it: read whole and replaced whole, by one command at a time."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dither_cli.files import naming
from dither_server.auth import Role, StoredKey, keys_text, parse_keys

PREFIXES: Final = {Role.INGEST: "dik", Role.VIEWER: "dvt", Role.ADMIN: "dat"}
"""What a key begins with, so that who finds one knows what it is: ingest key, viewer's or admin's token."""


class KeysFile:
    """The file that holds the hashes of all keys. Running servers follow it.

    Args:
        path: of the file. Where it is a link, what it leads to is changed.

    Attributes:
        path: the same, absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path.expanduser()))

    def read(self) -> tuple[StoredKey, ...]:
        """All keys.

        Raises:
            OSError: it cannot be read.
            ConfigurationError: it breaks a rule.
        """
        with naming(self.path):
            text = self.path.read_bytes()
        return parse_keys(text)

    @contextmanager
    def changing(self) -> Iterator[list[StoredKey]]:
        """All keys, to be changed: what the list holds at the end is written. None where there is no file yet.

        A crash leaves the old file or the new one. An exception inside leaves the old one.

        Raises:
            OSError: it cannot be read or written.
            ConfigurationError: it breaks a rule.
        """
        with self._locked() as folder:
            before = self.read() if self.path.exists() else ()
            keys = list(before)
            yield keys
            if tuple(keys) != before:
                parse_keys(keys_text(keys).encode())  # what no server would take is not written
                with naming(self.path):
                    self._replace(keys_text(keys))
                    os.fsync(folder)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        # The folder is locked, not the file: that one is another file after each change.
        with naming(self.path.parent):
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(folder)

    def _replace(self, text: str) -> None:
        """Mode and owner stay, so that the server can still read it; a new file has mode 0600."""
        before = self.path.stat() if self.path.exists() else None
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.unlink(missing_ok=True)
        try:
            with open(
                os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
            ) as file:
                file.write(text)
                if before is not None:
                    os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
                    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                        os.fchown(file.fileno(), before.st_uid, before.st_gid)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
        finally:
            fresh.unlink(missing_ok=True)
