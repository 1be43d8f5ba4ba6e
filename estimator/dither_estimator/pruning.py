"""Pruning: windows are forgotten, in the partitions and where they are published.

Cells go by the same compare-and-set as counting, so a prune at any instant neither resurrects a cell nor loses what is
being counted. Every step is one bounded script call, and a step that was done already finds nothing: a kill anywhere
is made up for by the next prune.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Self, TypeAlias, cast

from dither_estimator.expiry import Calendar
from dither_estimator.store import Entry, Store, after
from dither_protocol import storage
from dither_protocol.storage import COMBINED, PartitionKeys

STEP_KEYS: Final = 1_000
"""Keys that one step touches at most."""
DEAD_PAGE: Final = 10
MAX_TRIES: Final = 20
"""A window whose checkpoint moves on is begun again at most so often; the next prune does the rest."""
LATEST_ARRIVAL: Final = timedelta(days=1)
"""So long after a window closed nothing about it can come in any more, however far two clocks are apart."""

Choice: TypeAlias = Callable[[str, str], bool]
"""Whether a window, by metric and label, is to go."""


@dataclass(frozen=True)
class Pruned:
    """What went, in numbers.

    Attributes:
        cells: counters.
        accounts: outcomes by metric, window and partition.
        estimates: published documents, rollups included.
        archived: reports in the archive.
        dead: entries that had been set aside.
    """

    cells: int = 0
    accounts: int = 0
    estimates: int = 0
    archived: int = 0
    dead: int = 0

    def __add__(self, other: Self) -> Self:
        """Both together."""
        sums = {name: mine + getattr(other, name) for name, mine in vars(self).items()}
        return type(self)(**sums)

    def __bool__(self) -> bool:
        """Whether there was anything."""
        return any(vars(self).values())


class Pruner:
    """Forgets windows.

    Args:
        store: where they are.
        calendar: when they close, and what cells they have.
        dry: only count what would go.
    """

    def __init__(self, store: Store, calendar: Calendar, *, dry: bool = False) -> None:
        self._store = store
        self._calendar = calendar
        self._dry = dry

    def partition(self, keys: PartitionKeys, choice: Choice, *, waiting: bool) -> Iterator[Pruned]:
        """Forget the chosen windows of one partition, step by step.

        Args:
            keys: of the partition.
            choice: which windows.
            waiting: whether windows go too that entries of the stream may still be about. What is accepted and not
                counted stays on their accounts then.
        """
        now = self._store.now()  # before the stream is looked at
        arrivals = oldest_uncounted(self._store, keys) or now
        (members,) = self._store.commands([("SMEMBERS", keys.outcomes)])
        for member in sorted(members):
            metric, _, label = member.decode("utf-8").partition(":")
            dates = self._calendar.dates(metric, label)
            if dates is None or not choice(metric, label):
                continue
            # Every uncounted entry, now and later, came in when the window had long been closed.
            settled = min(arrivals, now) >= dates.closes + LATEST_ARRIVAL
            if settled or waiting:
                yield from self._window(keys, metric, label, settled=settled)

    def _window(self, keys: PartitionKeys, metric: str, label: str, *, settled: bool) -> Iterator[Pruned]:
        """Forget one window of a partition. Its account goes last: while that is there, the window is found again."""
        for _ in range(MAX_TRIES):
            # First the checkpoint, then which cells there are: so what is counted meanwhile is noticed.
            checkpoint = cast(bytes | None, self._store.commands([("GET", keys.checkpoint)])[0]) or b""
            names = self._present(keys, self._calendar.cells(metric, label))
            account = keys.outcome(metric, label)
            while True:
                some, names = names[:STEP_KEYS], names[STEP_KEYS:]
                pruned = self._step(keys, checkpoint, some, () if names else (account,), settled=settled)
                if pruned is None:
                    break
                yield pruned
                if not names:
                    return
                checkpoint = marked(checkpoint)

    def _present(self, keys: PartitionKeys, names: Sequence[str]) -> list[str]:
        """Those of the cells that are there."""
        sizes = self._store.commands([("STRLEN", keys.cell(name)) for name in names])
        return [name for name, size in zip(names, sizes, strict=True) if size]

    def _step(
        self,
        keys: PartitionKeys,
        checkpoint: bytes,
        cells: Sequence[str],
        accounts: Sequence[str],
        *,
        settled: bool,
    ) -> Pruned | None:
        """One call of the script; None where the checkpoint has moved on, and nothing was changed."""
        if self._dry:
            return Pruned(cells=len(cells), accounts=len(accounts))
        touched = [keys.checkpoint, keys.dirty, keys.outcomes, *map(keys.cell, cells), *accounts]
        arguments: list[str | bytes | int] = [checkpoint, marked(checkpoint), len(cells), int(settled)]
        found = self._store.run("prune", touched, arguments)
        return None if found is None else Pruned(cells=found[0], accounts=found[1])

    def published(self, metric: str, choice: Choice) -> Iterator[Pruned]:
        """Forget what is published about the chosen windows of a metric, one window at each step."""
        versions = [version.version for version in self._calendar.versions(metric)]
        (members,) = self._store.commands([("ZRANGE", storage.published_key(metric), 0, -1)])
        texts = [member.decode("utf-8") for member in members]
        labels = dict.fromkeys(storage.parse_published_member(text)[1] for text in texts)
        for label in labels:
            if versions and choice(metric, label):
                yield self._forget(metric, label, [*versions, COMBINED])

    def _forget(self, metric: str, label: str, versions: Sequence[int | str]) -> Pruned:
        estimates = [storage.estimates_key(metric, version, label) for version in versions]
        totals = [storage.totals_key(metric, version) for version in versions if isinstance(version, int)]
        rollups = [
            storage.rollups_key(metric, version, windows)
            for version in versions
            for windows in storage.ROLLUPS
        ]
        if self._dry:
            fields = self._store.commands([("HLEN", key) for key in estimates])
            over = self._store.commands([("HEXISTS", key, label) for key in rollups])
            return Pruned(estimates=sum(fields) // 2 + sum(over))  # each of the former has its companion
        keys = [storage.published_key(metric), storage.open_key(metric), *estimates, *totals, *rollups]
        members = [storage.published_member(version, label) for version in versions]
        return Pruned(estimates=self._store.run("forget", keys, [len(estimates), label, *members]))

    def dead_about(self, keys: PartitionKeys, choice: Choice) -> Pruned:
        """Forget the entries of a partition that were set aside and have reports about one of the chosen windows."""
        going = [
            entry_id
            for entry_id, payload in self._dead(keys, "+")
            if any(choice(metric, label) for metric, label in storage.entry_reports(payload))
        ]
        if not self._dry:
            self._store.commands([("XDEL", keys.dead, entry_id) for entry_id in going])
        return Pruned(dead=len(going))

    def dead(self, keys: PartitionKeys, before: datetime) -> Pruned:
        """Forget the entries of a partition that were set aside before a time."""
        oldest = int(before.timestamp() * 1_000)
        if self._dry:
            return Pruned(dead=sum(1 for _ in self._dead(keys, f"({oldest}")))
        (trimmed,) = self._store.commands([("XTRIM", keys.dead, "MINID", oldest)])
        return Pruned(dead=trimmed)

    def _dead(self, keys: PartitionKeys, end: str) -> Iterator[Entry]:
        start = b"-"
        while True:
            (page,) = self._store.commands([("XRANGE", keys.dead, start, end, "COUNT", DEAD_PAGE)])
            for entry_id, fields in page:
                start = b"(" + entry_id
                yield entry_id, fields.get(storage.ENTRY_FIELD, b"")
            if len(page) < DEAD_PAGE:
                return


def marked(checkpoint: bytes) -> bytes:
    """A checkpoint that says the same and compares unequal: ``5-0`` becomes ``5-0.1``, that ``5-0.2``."""
    entry_id, _, prunes = checkpoint.partition(b".")
    return b"%s.%d" % (entry_id or b"0-0", int(prunes or 0) + 1)


def oldest_uncounted(store: Store, keys: PartitionKeys) -> datetime | None:
    """When the oldest entry came in that is not counted yet; None where all are."""
    checkpoint = cast(bytes | None, store.commands([("GET", keys.checkpoint)])[0])
    start = after(checkpoint) if checkpoint else b"-"
    rows = store.commands([("XRANGE", keys.stream, start, "+", "COUNT", 1)])[0]
    return entry_time(rows[0][0]) if rows else None


def entry_time(entry_id: bytes) -> datetime:
    """When an entry of a stream came in, by the store's clock."""
    return datetime.fromtimestamp(int(entry_id.partition(b"-")[0]) / 1_000, UTC)
