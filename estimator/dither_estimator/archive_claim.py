"""The store's side of the archive: who may write for a partition, what is to be written, and the commit of a file.

The store holds one text for each partition that is archived: ``id number token claim``. Each claim and each file has a
word of its own, so no text ever comes back: a command that was on its way for too long finds another one, and does
nothing.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, cast

from dither_estimator.archive_folder import NO_FILE
from dither_estimator.store import Entry, Store, after
from dither_protocol.errors import StorageError
from dither_protocol.storage import PartitionKeys, entry_position

PAGE: Final = 500
STEP_BYTES: Final = 16 << 20
"""Payloads of one step ..."""
STEP_ENTRIES: Final = 20_000
"""... and entries: more would take longer than a lease lasts."""


@dataclass(frozen=True, slots=True)
class State:
    """What the store says about the archive of a partition.

    Attributes:
        entry: id of the last stream entry that the archive contains.
        number: of the last file.
        token: of the last file; begins with `NO_FILE` where none was committed since the archive began.
        claim: who may write the next.
    """

    entry: bytes
    number: int
    token: str
    claim: str

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """The inverse of `text`.

        Raises:
            StorageError: it is something else.
        """
        try:
            entry, number, token, claim = text.split(b" ")
            return cls(entry, int(number), token.decode("ascii"), claim.decode("ascii"))
        except ValueError:
            raise StorageError("the state of the archive is damaged") from None

    @property
    def begins(self) -> bool:
        """Whether there is no file yet."""
        return self.token.startswith(NO_FILE)

    @property
    def text(self) -> bytes:
        """The form in which the store keeps it."""
        return b"%s %d %s %s" % (self.entry, self.number, self.token.encode(), self.claim.encode())


class Claims:
    """Reads one store's streams behind the counters.

    Args:
        store: where they are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def state(self, keys: PartitionKeys) -> State | None:
        """What the store says now; None where there is no archive."""
        text = cast(bytes | None, self._store.commands([("GET", keys.archived)])[0])
        return None if text is None else State.parse(text)

    def claim(self, keys: PartitionKeys, before: State | None) -> State | None:
        """Claim a partition; None where somebody else was faster.

        Args:
            keys: of the partition.
            before: what `state` said. Where that is nothing, the archive begins after what is counted now.
        """
        arguments: list[str | bytes | int] = [before.text if before else b"", secrets.token_hex(8)]
        found = self._store.run("claim", [keys.archived, keys.checkpoint], arguments)
        return None if found is None else State.parse(found)

    def counted(
        self, partition: int, keys: PartitionKeys, state: State, size: int = STEP_BYTES
    ) -> list[Entry]:
        """The counted entries after what is archived: about ``size`` bytes of them, at least one if there is one."""
        checkpoint = cast(bytes | None, self._store.commands([("GET", keys.checkpoint)])[0]) or b"0-0"
        last = entry_position(checkpoint)
        entries: list[Entry] = []
        while size > 0 and len(entries) < STEP_ENTRIES:
            page = self._store.entries(partition, entries[-1][0] if entries else state.entry, PAGE, size)
            for entry in page:
                if size <= 0 or entry_position(entry[0]) > last:
                    return entries
                entries.append(entry)
                size -= len(entry[1])
            if len(page) < PAGE:
                break
        return entries

    def trim(self, keys: PartitionKeys, old: State, new: State | None, entries: Sequence[Entry]) -> bool:
        """Commit: entries leave the stream, and ``new`` stands in the place of ``old``; None ends the archive.

        Returns:
            False where somebody else has claimed it, or more is counted than an archive that ends contains.
        """
        last = entries[-1][0] if entries else old.entry
        size = sum(len(payload) for _, payload in entries)
        arguments: list[str | bytes | int] = [old.text, new.text if new else b"", last, after(last), size]
        return bool(
            self._store.run("trim", [keys.archived, keys.checkpoint, keys.stream, keys.backlog], arguments)
        )
