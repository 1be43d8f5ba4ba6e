"""Retention: the worker forgets what its time has come for, at its start and about once an hour.

By the store's clock. A clock that is wrong by a year would forget a year, so nothing is forgotten while the store's
clock and this machine's are more than a day apart. Where both are one clock, a jump shows in the time since the last
prune: that is believed only after it has lasted for a day.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from dither_estimator.archive_folder import Folder
from dither_estimator.definitions import Definitions
from dither_estimator.expiry import Calendar
from dither_estimator.pruning import Pruned, Pruner
from dither_estimator.store import Store
from dither_protocol.storage import PRUNED_KEY, PartitionKeys, partition_tags

if TYPE_CHECKING:
    from dither_estimator.archive_pruning import ArchivePruner

INTERVAL_S: Final = 3_600.0
DEAD_DAYS: Final = timedelta(days=30)
"""How long an entry that was set aside is kept: it holds reports, and somebody has to look at it one day."""
MAX_APART: Final = timedelta(days=1)
"""Between the store's clock and this machine's."""
MAX_PAUSE: Final = timedelta(days=2)
"""Between two prunes, before it is taken for a clock that jumped ..."""
HOLD: Final = timedelta(days=1)
"""... until it has lasted so long."""

_log = logging.getLogger("dither_estimator")


@dataclass(frozen=True)
class Mark:
    """What the workers note about their prunes, both by the store's clock.

    Attributes:
        pruned: the last prune.
        held: since when there is none because the clock may have jumped; None while it has not.
    """

    pruned: datetime
    held: datetime | None = None


def judged(mark: Mark | None, now: datetime) -> tuple[bool, Mark]:
    """Whether a prune may trust the clock that says ``now``, and what to note."""
    if mark is None or now - mark.pruned <= MAX_PAUSE:
        return True, Mark(now)
    held = mark.held if mark.held is not None and mark.held <= now else now
    if now - held >= HOLD:
        return True, Mark(now)
    return False, Mark(mark.pruned, held)


class Retention:
    """Forgets, a little at a time, so that counting goes on meanwhile.

    Args:
        store: what it is about.
        definitions: of the metrics.
        folder: of the archive, where there is one.
        clock: this machine's.
    """

    def __init__(
        self,
        store: Store,
        definitions: Definitions,
        folder: Folder | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._folder = folder
        self._archive: ArchivePruner | None = None
        self._definitions = definitions
        self._clock = clock
        self._due = float("-inf")
        self._round: Iterator[Pruned] | None = None
        self._total = Pruned()

    def prune(
        self,
        partitions: int,
        mine: Sequence[int],
        *,
        publishing: bool,
        budget_s: float,
        stop: threading.Event | None = None,
    ) -> None:
        """Go on for at most about ``budget_s``, where a round is under way or due.

        Args:
            partitions: how many the store has.
            mine: those to look after.
            publishing: whether to look after what is published, too.
            budget_s: after so long no further step is begun.
            stop: the same, as soon as it is set.

        Raises:
            StoreUnavailableError: the store does not answer; the next call goes on.
        """
        deadline = time.monotonic() + budget_s
        if self._round is None:
            if time.monotonic() < self._due or not (mine or publishing):
                return
            keys = [PartitionKeys(partition_tags(partitions)[number]) for number in mine]
            self._round = self._prune_round(keys, publishing=publishing)
        try:
            for pruned in self._round:
                self._total += pruned
                if time.monotonic() > deadline or (stop is not None and stop.is_set()):
                    return
        except BaseException:
            self._round = None  # a generator ends with its first exception: the round begins anew
            raise
        self._finish()

    def _finish(self) -> None:
        if self._total:
            said = ", ".join(f"{name} {number}" for name, number in vars(self._total).items() if number)
            _log.info("forgotten, their time being over: %s", said)
        self._round, self._total = None, Pruned()
        self._due = time.monotonic() + INTERVAL_S

    def _prune_round(self, keys: Sequence[PartitionKeys], *, publishing: bool) -> Iterator[Pruned]:
        now = self._trusted_time()
        if now is None:
            return
        calendar = Calendar(self._store, self._definitions)
        pruner = Pruner(self._store, calendar)

        def expired(metric: str, label: str) -> bool:
            return calendar.expired(metric, label, now)

        for partition in keys:
            yield from pruner.partition(partition, expired, waiting=False)
            yield pruner.dead(partition, now - DEAD_DAYS)
        if publishing:
            for metric in calendar.metrics():
                yield from pruner.published(metric, expired)
            yield from self._prune_archive(calendar, now)

    def _prune_archive(self, calendar: Calendar, now: datetime) -> Iterator[Pruned]:
        if self._folder is None:
            return
        if self._archive is None:
            from dither_estimator.archive_pruning import ArchivePruner  # noqa: PLC0415  pyarrow, for an archive only

            self._archive = ArchivePruner(self._folder)
        try:
            yield from self._archive.expire(calendar, now)
        except OSError as error:
            _log.warning("archive: nothing more of it is forgotten for an hour: %s", error)

    def _trusted_time(self) -> datetime | None:
        """The store's time; None where it may be wrong, which is said."""
        now = self._store.now()
        apart = abs(now - self._clock())
        if apart > MAX_APART:
            _log.warning(
                "nothing is forgotten: the store's clock and this machine's are %s apart", _days(apart)
            )
            return None
        trusted, mark = judged(self._mark(), now)
        fields = {b"pruned": mark.pruned, b"held": mark.held or mark.pruned}
        stamps = [part for name, when in fields.items() for part in (name, _milliseconds(when))]
        self._store.run("stamp", [PRUNED_KEY], stamps)
        if trusted:
            return now
        _log.warning(
            "nothing is forgotten for a day: the last prune was %s ago by the store's clock, which may have jumped",
            _days(now - mark.pruned),
        )
        return None

    def _mark(self) -> Mark | None:
        (found,) = self._store.commands([("HMGET", PRUNED_KEY, "pruned", "held")])
        if None in found:
            return None
        pruned, held = (datetime.fromtimestamp(int(stamp) / 1_000, UTC) for stamp in found)
        return Mark(pruned, held if held != pruned else None)


def _milliseconds(when: datetime) -> int:
    return int(when.timestamp() * 1_000)


def _days(span: timedelta) -> str:
    return f"{span / timedelta(days=1):.1f} days"
