"""What is in flight: the reports of the stream entries that the counters do not contain yet. Pure.

Entries are read oldest first, page by page, while others append, count and trim. That does no harm: an entry never
changes, and what is trimmed before it was read lies before the checkpoint, so it was not in flight any more.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from dither_protocol.storage import ENTRY_FIELD, entry_position, entry_reports
from dither_server.admission import Bucket

Entry = tuple[bytes, Mapping[bytes, bytes]]
"""A stream entry as the store gives it: its id and its fields."""

_NUMBER_BITS: Final = 64
_REMEMBERED_SHAPES: Final = 4_096
_Shape = tuple[tuple[Bucket, int], ...]


class InFlight:
    """The sums at the last moment of reading.

    Attributes:
        reports: number of reports in flight by (metric, window), among the entries read so far.
    """

    def __init__(self) -> None:
        self.reports: dict[Bucket, int] = {}
        self._entries: deque[tuple[int, _Shape]] = deque()
        self._shapes: dict[_Shape, _Shape] = {}  # entries are many and alike: one object for all of a kind
        self._last = 0

    @property
    def next_id(self) -> str:
        """The smallest id that was not read: where to go on."""
        return f"{self._last >> _NUMBER_BITS}-{(self._last & (1 << _NUMBER_BITS) - 1) + 1}"

    def take(self, checkpoint: bytes | None, entries: Iterable[Entry]) -> None:
        """Go on to a later moment.

        Args:
            checkpoint: of that moment; None before the first commit.
            entries: those that follow `next_id`, of the same moment.

        Raises:
            StorageError: the checkpoint is none.
        """
        counted = _place(checkpoint) if checkpoint else 0
        while self._entries and self._entries[0][0] <= counted:
            self._add(self._entries.popleft()[1], -1)
        self._last = max(self._last, counted)
        for entry_id, fields in entries:
            place = _place(entry_id)
            if place <= counted:  # an archive keeps it
                continue
            found = tuple(entry_reports(fields.get(ENTRY_FIELD, b"")).items())
            if len(self._shapes) >= _REMEMBERED_SHAPES:
                self._shapes.clear()
            shape = self._shapes.setdefault(found, found)
            self._entries.append((place, shape))
            self._add(shape, 1)
            self._last = place

    def _add(self, shape: _Shape, sign: int) -> None:
        for bucket, reports in shape:
            self.reports[bucket] = self.reports.get(bucket, 0) + sign * reports


def _place(entry_id: bytes) -> int:
    milliseconds, number = entry_position(entry_id)
    return milliseconds << _NUMBER_BITS | number
