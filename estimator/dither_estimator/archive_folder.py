"""The archive's folder: names of files, and how a file becomes visible whole or not at all.

A file is written below ``.unfinished``, put on the disk, committed in the store, and only then renamed to its name: so
whatever ``*.parquet`` finds is committed, at any instant and after any kill. A file that was committed and not yet
renamed is known by its token; any other that is left below ``.unfinished`` can never be committed any more.
"""

import fcntl
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from dither_protocol.errors import StorageError

LAYOUT: Final = 1
NO_FILE: Final = "-"
"""Begins the token of an archive that has no file yet: the word of its life follows."""
MARKER: Final = "archive.json"
_UNFINISHED: Final = ".unfinished"
_LOCK: Final = "lock"
_NEW: Final = "new-"  # no partition's tag begins so: nobody takes such a file for one to be committed
_SUFFIX: Final = ".parquet"
_ASIDE: Final = ".superseded"
_NAME: Final = re.compile(r"(p[0-9a-f]+)-([0-9]{8,})\.parquet", re.ASCII)

Writer = Callable[[IO[bytes]], object]
"""Writes the content of a file."""

_log = logging.getLogger("dither_estimator")


@dataclass(frozen=True, slots=True)
class Name:
    """A file of the archive.

    Attributes:
        tag: of the partition.
        number: of the file among those of the partition, from 1.
        token: ``life.word``, of its content; no other file ever has it.
    """

    tag: str
    number: int
    token: str = ""

    @property
    def visible(self) -> str:
        """The name by which readers find it."""
        return f"{self.tag}-{self.number:08d}{_SUFFIX}"

    @property
    def unfinished(self) -> str:
        """The name until it is committed."""
        return f"{self.tag}-{self.number:08d}-{self.token}"


def life_of(token: str) -> str:
    """The word that the archive of a partition got when it began; it gets another when it begins again."""
    return token.partition(".")[0].removeprefix(NO_FILE)


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is of a partition.

    Attributes:
        tag: of the partition.
        number: of its last file.
        left_over: files that are not visible.
        beyond: visible files after the last.
    """

    tag: str
    number: int
    left_over: list[Path]
    beyond: list[Path]


class Folder:
    """One archive, for all workers of a store: a folder that all of them see.

    Args:
        path: where it is; created when it is opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._unfinished = self.path / _UNFINISHED

    def open(self, identity: str, *, begun: bool) -> None:
        """Create what is missing, and check that the folder belongs to the store.

        Args:
            identity: of the store's archive.
            begun: whether something of the store was archived already: then it must have been here.

        Raises:
            OSError: it cannot be created, read or written.
            StorageError: it holds another archive, or another folder holds this store's.
        """
        marker = self.path / MARKER
        expected = {"layout": LAYOUT, "archive": identity}
        with self.changing():
            try:
                found = json.loads(marker.read_bytes())
            except FileNotFoundError:
                if begun:
                    raise StorageError(
                        f"{self.path} is not the folder that this store is archived into; "
                        f"to go on in another one, copy {MARKER} from the old one"
                    ) from None
                text = json.dumps(expected) + "\n"
                self._put(marker, lambda file: file.write(text.encode("ascii")))
                return
            except ValueError:
                raise StorageError(f"{marker} is damaged") from None
        if found != expected:
            raise StorageError(
                f"{self.path} holds the archive of another store, or of another version of Dither"
            )

    def files(self) -> list[Path]:
        """All visible files, in the order of their names."""
        return sorted(self.path / name for name in os.listdir(self.path) if _NAME.fullmatch(name))

    def survey(self, tag: str, number: int | None) -> Survey:
        """What there is of a partition; to be made before it is claimed.

        Args:
            tag: of the partition.
            number: of its last file, as the store says; None where the archive begins, or begins again.
        """
        left_over = [path for path in sorted(self._unfinished.iterdir()) if path.name.startswith(f"{tag}-")]
        if number is None:
            matches = (_NAME.fullmatch(path.name) for path in self.files())
            number = max((int(match[2]) for match in matches if match and match[1] == tag), default=0)
        beyond: list[Path] = []
        while (path := self.path / Name(tag, number + 1 + len(beyond)).visible).exists():
            beyond.append(path)
        return Survey(tag, number, left_over, beyond)

    def settle(self, found: Survey, token: str) -> None:
        """Bring a partition to what the store says, once it is claimed.

        Only what was there before the claim is touched: none of that can be committed any more. What came later may be
        the work of somebody who has claimed the partition since.

        Args:
            found: from before the claim.
            token: of the last file.
        """
        self.reveal(Name(found.tag, found.number, token))
        for path in found.left_over:
            path.unlink(missing_ok=True)
        for path in found.beyond:
            # The store came back from an earlier state: what the file holds is in its stream still, or never was.
            _log.warning("archive: %s is ahead of the store, and was put aside", path.name)
            with suppress(FileNotFoundError):
                path.replace(path.with_name(path.name + _ASIDE))

    def resume(self, found: Survey, life: str) -> int:
        """Begin a partition's archive, once it is claimed; the number of its last file.

        What an archiver of an earlier life was about to commit when it was ended, or had committed, becomes visible:
        its reports were counted, and have left the stream since without being written a second time.

        Args:
            found: from before the claim.
            life: the present one.
        """
        number = found.number
        for path in found.left_over:
            _, of_file, token = path.name.split("-")
            if life_of(token) != life and int(of_file) == number + 1 == found.number + 1:
                number += 1
                self.reveal(Name(found.tag, number, token))
            path.unlink(missing_ok=True)
        return number

    def write(self, name: Name, write: Writer) -> None:
        """Put a file on the disk, where no reader finds it yet; no trace of it stays where that fails."""
        path = self._unfinished / name.unfinished
        try:
            _write(path, write)
            _sync(self._unfinished)
        except BaseException:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise

    def reveal(self, name: Name) -> None:
        """Let readers find a committed file; nothing happens where they do already."""
        with suppress(FileNotFoundError):
            (self._unfinished / name.unfinished).replace(self.path / name.visible)
            _sync(self.path)
            _sync(self._unfinished)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Around a change of visible files: one process at a time, so that none brings back what another removed."""
        self._unfinished.mkdir(parents=True, exist_ok=True)
        with (self._unfinished / _LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in os.listdir(self._unfinished):
                if name.startswith(_NEW):  # of a process that was ended
                    (self._unfinished / name).unlink()
            yield

    def replace(self, path: Path, write: Writer) -> None:
        """Give a visible file another content, whole or not at all; only inside `changing`."""
        self._put(path, write)

    def remove(self, path: Path) -> None:
        """Remove a visible file; only inside `changing`."""
        path.unlink(missing_ok=True)
        _sync(self.path)

    def _put(self, path: Path, write: Writer) -> None:
        fresh = self._unfinished / f"{_NEW}{secrets.token_hex(8)}"
        try:
            _write(fresh, write)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
        _sync(self.path)


def _write(path: Path, write: Writer) -> None:
    with path.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Put the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
