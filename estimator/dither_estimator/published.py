"""What the worker writes for readers: published estimates, and beside them which windows are open still.

Each call touches one partition or the keys of one metric, which share a slot, so a cluster shards without change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, cast

from dither_estimator.publication import as_final, encode_document, instant
from dither_estimator.store import Store
from dither_protocol import storage
from dither_protocol.errors import StorageError
from dither_protocol.windows import Window

CALL_BYTES: Final = 1 << 20
"""Texts of one call; a single estimate may be larger."""

WindowKey = tuple[str, int | str, str]
"""(metric, version or `dither_protocol.storage.COMBINED`, label of the window)."""

_COMPANION: Final = storage.companion_field("").encode()


class Result(IntEnum):
    """What became of one estimate (scripts/publish.lua)."""

    WRITTEN = 1
    UNCHANGED = 0
    LATER_STANDS = -1
    """One from more reports."""
    FINAL_STANDS = -2
    """A final one, so this was published as final too."""


@dataclass(frozen=True)
class Draft:
    """An estimate to be published.

    Attributes:
        field: `dither_protocol.storage.estimate_field`; of a rollup the label of its last window.
        n: reports that it is based on.
        final: whether every report in time is counted.
        document: what to publish; None to take back what is published.
    """

    field: str
    n: int
    final: bool
    document: dict[str, Any] | None

    @cached_property
    def text(self) -> str:
        """The document as JSON, without its opening brace: the script puts revision and watermark in front."""
        return "" if self.document is None else encode_document(self.document)[1:]

    def as_final(self) -> "Draft":
        """The same as a final estimate."""
        return replace(self, final=True, document=self.document and as_final(self.document))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the estimates of one window stand.

    Attributes:
        metric: name.
        version: or `dither_protocol.storage.COMBINED`.
        window: what they are about.
        closes: when reports about it are no longer accepted.
    """

    metric: str
    version: int | str
    window: Window
    closes: datetime

    @property
    def key(self) -> str:
        """The hash of its estimates."""
        return storage.estimates_key(self.metric, self.version, self.window.label)

    @property
    def member(self) -> str:
        """The window in the metric's sorted sets."""
        return storage.published_member(self.version, self.window.label)


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """A window whose published estimates are not final.

    Attributes:
        metric: name.
        member: of the metric's sorted set, which names the window.
        closes: Unix seconds, as they were when it was published last.
    """

    metric: str
    member: str
    closes: float

    @property
    def key(self) -> WindowKey:
        """Which window it is.

        Raises:
            StorageError: the member names none.
        """
        version, label = storage.parse_published_member(self.member)
        if version != storage.COMBINED and not version.isdecimal():
            raise StorageError("not a window of a version")
        return self.metric, int(version) if version.isdecimal() else version, label


class Published:
    """The published estimates of a store.

    Args:
        store: where they are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def watermark(self, partitions: int) -> datetime:
        """The time, by the clocks of the store's nodes, before which every accepted report is counted."""
        times = [self._store.watermark(partition) for partition in range(partitions)]
        return datetime.fromtimestamp(min(times) / 1000, UTC)

    def publish(
        self, place: Place, drafts: Sequence[Draft], watermark: datetime, total: bytes | None = None
    ) -> list[Result]:
        """Publish estimates of one window. A final estimate stays final: an open draft becomes final too there.

        Args:
            place: of the window.
            drafts: at least one, and in one call.
            watermark: before which every report is counted.
            total: the packed cell of the first draft, for rollups; kept once that is final.

        Raises:
            StoreFullError: the store has no memory for them; what stood before still stands.
        """
        results = self._publish(place, drafts, watermark, total)
        became_final = [
            draft.as_final()
            for draft, result in zip(drafts, results, strict=True)
            if result is Result.FINAL_STANDS
        ]
        if became_final:
            first = results[0] is Result.FINAL_STANDS
            self._publish(place, became_final, watermark, total if first else None)
        return results

    def _publish(
        self, place: Place, drafts: Sequence[Draft], watermark: datetime, total: bytes | None
    ) -> list[Result]:
        kept = total if drafts[0].final else None
        keys = [place.key, storage.published_key(place.metric), storage.open_key(place.metric)]
        head: list[str | bytes | int] = [place.member, _seconds(place.window.start), _seconds(place.closes)]
        head += [instant(watermark), "" if kept is None else place.window.label, kept or b""]
        keys.append(place.key if kept is None else storage.totals_key(place.metric, cast(int, place.version)))
        return self._run(keys, head, drafts)

    def publish_rollup(
        self, metric: str, version: int | str, windows: int, draft: Draft, watermark: datetime
    ) -> None:
        """Publish an estimate over so many consecutive windows. Raises what `publish` raises."""
        key = storage.rollups_key(metric, version, windows)
        self._run([key] * 4, ["", 0, 0, instant(watermark), "", b""], [draft])

    def _run(self, keys: list[str], head: list[str | bytes | int], drafts: Sequence[Draft]) -> list[Result]:
        arguments = head + [
            part for draft in drafts for part in (draft.field, draft.n, int(draft.final), draft.text)
        ]
        return [Result(result) for result in self._store.run("publish", keys, arguments)]

    def close(self, place: Place) -> bool:
        """A window is open no longer, if all its published estimates are final; whether they are."""
        return bool(self._store.run("close", [place.key, storage.open_key(place.metric)], [place.member]))

    def is_open(self, window: OpenWindow) -> bool:
        """Whether it is still so."""
        return self._store.command("ZSCORE", storage.open_key(window.metric), window.member) is not None

    def open_windows(self, latest: datetime | None = None) -> list[OpenWindow]:
        """The open windows of all metrics, or those that close by ``latest``, the earliest first."""
        names = sorted(name.decode() for name in self._store.command("SMEMBERS", storage.METRICS_KEY))
        by = "+inf" if latest is None else _seconds(latest)
        asked = [("ZRANGEBYSCORE", storage.open_key(name), "-inf", by, "WITHSCORES") for name in names]
        found = []
        for name, reply in zip(names, self._store.commands(asked), strict=True):
            for member, closes in _pairs(reply):
                found.append(OpenWindow(name, member.decode(), float(closes)))
        return sorted(found, key=lambda each: (each.closes, each.metric, each.member))

    def fields(self, place: Place) -> list[str]:
        """The fields that have a published estimate."""
        found = cast(list[bytes], self._store.command("HKEYS", place.key))
        return sorted(field.decode() for field in found if not field.startswith(_COMPANION))

    def labels_with_totals(self, metric: str, version: int, labels: Sequence[str]) -> set[str]:
        """Of these windows of a version the closed ones that had reports, by label."""
        found = cast(list[bytes], self._store.run("among", [storage.totals_key(metric, version)], labels))
        return {label.decode() for label in found}

    def totals(self, metric: str, version: int, labels: Sequence[str]) -> list[bytes | None]:
        """The packed cell of each closed window over all dimensions, None where it had no reports."""
        key = storage.totals_key(metric, version)
        return cast(list[bytes | None], self._store.command("HMGET", key, *labels) if labels else [])


def _seconds(when: datetime) -> int:
    return int(when.timestamp())


def _pairs(reply: Sequence[Any]) -> list[tuple[bytes, Any]]:
    """(member, score) from a reply WITHSCORES, in whichever shape the client gives it."""
    if reply and isinstance(reply[0], tuple | list):
        return [(member, score) for member, score in reply]
    return list(zip(reply[::2], reply[1::2], strict=True))
