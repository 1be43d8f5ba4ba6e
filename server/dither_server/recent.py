"""What became of the reports of one to two weeks: the sums of today less those of a while ago. Pure.

The sums of a metric only grow, and what an operator is to be told is about now. So a look notes the sums beside it:
``next`` is taken once a week and becomes ``base`` when the following one is taken. Reports that were in flight then
belong to the time since: so the difference of balanced sums is balanced.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from datetime import timedelta
from typing import Final

import msgspec

from dither_server.conservation import Terms

EVERY: Final = timedelta(days=7)
"""How old ``next`` becomes."""

_Sums = dict[str, Terms]
_decode: Final = msgspec.json.Decoder(_Sums).decode
_decode_names: Final = msgspec.json.Decoder(frozenset[str]).decode


class Recent:
    """What earlier looks noted about one partition.

    Args:
        notes: fields of its hash ``audit``. One that cannot be read counts as absent: it only says since when.

    Attributes:
        names: metrics that the looks have seen.
    """

    def __init__(self, notes: Mapping[bytes, bytes]) -> None:
        self._notes = notes
        self._base = _read(notes.get(b"base"))
        at = notes.get(b"next_at", b"")
        self._next_at = int(at) if at.isdigit() else None
        try:
            self.names: Set[str] = _decode_names(notes.get(b"names", b"[]"))
        except msgspec.DecodeError:
            self.names = frozenset()

    def of(self, name: str, ever: Terms) -> Terms:
        """The terms of a metric since ``base``; since the store was created where there is none."""
        base = self._base.get(name)
        if base is None:
            return ever
        since = replace(
            ever,
            received=ever.received - base.received + base.in_flight,
            accepted=ever.accepted - base.accepted + base.in_flight,
            counted=ever.counted - base.counted,
            duplicate=ever.duplicate - base.duplicate,
            dead=ever.dead - base.dead,
            rejected={word: n - base.rejected.get(word, 0) for word, n in ever.rejected.items()},
        )
        numbers = (since.received, since.accepted, since.counted, since.duplicate, since.dead)
        if min(*numbers, *since.rejected.values()) < 0:  # the sums were lost, or begun anew
            return ever
        since.imbalance = since.gap
        return since

    def notes(self, now_s: int, ever: Mapping[str, Terms]) -> dict[str, bytes]:
        """Fields to be noted.

        Args:
            now_s: the store's time, Unix seconds.
            ever: the sums at that time.
        """
        # A store whose clock was far ahead and was set right goes on from there, too.
        if self._next_at is not None and abs(now_s - self._next_at) < EVERY.total_seconds():
            return {}
        found = {"next": msgspec.json.encode(ever), "next_at": b"%d" % now_s}
        if self._next_at is not None:
            found["base"] = self._notes.get(b"next", b"{}")
        return found

    def names_note(self, names: Set[str]) -> dict[str, bytes]:
        """The field of the metrics that were seen."""
        return {"names": msgspec.json.encode(sorted(names))}


def _read(text: bytes | None) -> _Sums:
    if text is None:
        return {}
    try:
        return _decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}
