"""Reading what the estimator published, as much as is asked for and no more.

``client`` is the redis-py client that `dither_server.store` opened: that module alone may import its package. All keys
of a metric share a cluster slot, so this works on a cluster unchanged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dither_protocol.storage import (
    COMBINED,
    companion_field,
    estimates_key,
    metric_key,
    parse_published_member,
    published_key,
    rollups_key,
    versions_key,
)
from dither_protocol.windows import ONCE
from dither_server.selection import ALL_DIMENSIONS, ONCE_SCORE, Selection, position
from dither_server.store_rules import Published, PublishedVersion

_COMPANION: Final = companion_field("").encode()

Estimates = dict[tuple[str, str], bytes]
"""Documents by (label of the window, dimensions)."""


def read_published(client: Any, name: str, selection: Selection) -> Published:
    """What is published about a metric, in two round trips."""
    with client.pipeline(transaction=False) as pipe:
        pipe.smembers(versions_key(name))
        pipe.zrangebyscore(published_key(name), *selection.scores)
        pipe.zrangebyscore(published_key(name), ONCE_SCORE, ONCE_SCORE)
        announced, in_range, at_once = pipe.execute()
    versions = sorted(map(int, announced))
    if not versions:
        return Published()
    windows, last = _page(_windows([*in_range, *at_once], selection), selection)
    asks = list(_asks(name, windows, selection))
    with client.pipeline(transaction=False) as pipe:
        for version in versions:
            pipe.get(metric_key(name, version))
        for ask in asks:
            if ask.fields:
                pipe.hmget(ask.key, ask.fields)
            else:
                pipe.hgetall(ask.key)
        found = pipe.execute()
    definitions, replies = found[: len(versions)], found[len(versions) :]
    estimates: dict[str, Estimates] = {}
    for ask, reply in zip(asks, replies, strict=True):
        estimates.setdefault(ask.version, {}).update(ask.documents(reply))
    known = [
        PublishedVersion(version, definition, estimates.get(str(version), {}))
        for version, definition in zip(versions, definitions, strict=True)
        if definition is not None
    ]
    return Published(known, estimates.get(COMBINED, {}), last)


def _windows(members: Sequence[bytes], selection: Selection) -> dict[str, list[str]]:
    """Labels of the chosen windows by version, `COMBINED` among them, each once."""
    windows: dict[str, list[str]] = {}
    for member in dict.fromkeys(members):
        version, window = parse_published_member(member.decode())
        if window != ONCE or selection.rollup is None:
            windows.setdefault(version, []).append(window)
    return windows


def _page(
    windows: Mapping[str, Sequence[str]], selection: Selection
) -> tuple[Mapping[str, Sequence[str]], str | None]:
    """The windows after the one that the selection names, as many as it asks for, whole.

    Returns:
        Their labels by version; and the last of them, where later ones are left out.
    """
    if selection.after is None and selection.limit is None:
        return windows, None
    positions = {position(label) for labels in windows.values() for label in labels}
    if selection.after is not None:
        begin = position(selection.after)
        positions = {each for each in positions if each > begin}
    chosen = [label for _, label in sorted(positions)]
    page = dict.fromkeys(chosen[: selection.limit])
    kept = {version: [label for label in labels if label in page] for version, labels in windows.items()}
    return kept, next(reversed(page)) if page and len(chosen) > len(page) else None


@dataclass(frozen=True, slots=True)
class _Ask:
    """One read of a hash of documents.

    Attributes:
        version: whose documents they are, or `COMBINED`.
        key: the hash.
        fields: those to read; none for all.
        names: (label, dimensions) of each field to read; of a hash that is read whole the label alone.
    """

    version: str
    key: str
    fields: Sequence[str]
    names: Sequence[tuple[str, str]]

    def documents(self, reply: Any) -> Estimates:
        """The documents of the store's reply."""
        if self.fields:
            return {name: found for name, found in zip(self.names, reply, strict=True) if found is not None}
        ((label, _),) = self.names
        return {
            (label, field.decode()): document
            for field, document in reply.items()
            if not field.startswith(_COMPANION)
        }


def _asks(name: str, windows: Mapping[str, Sequence[str]], selection: Selection) -> Iterator[_Ask]:
    if selection.rollup is not None:
        ends = sorted({label for labels in windows.values() for label in labels})
        for version in {**windows, COMBINED: ends} if ends else ():
            key = rollups_key(name, version, selection.rollup)
            yield _Ask(version, key, ends, [(label, ALL_DIMENSIONS) for label in ends])
        return
    fields = [] if selection.dimensions is None else [selection.dimensions]
    for version, labels in windows.items():
        for label in labels:
            key = estimates_key(name, version, label)
            yield _Ask(version, key, fields, [(label, selection.dimensions or "")])
