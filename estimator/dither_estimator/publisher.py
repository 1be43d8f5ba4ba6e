"""Publishing: estimates of what changed and of what closes, a little at a time, so that counting goes on meanwhile.

One round publishes all that is marked as changed when it begins, the longest marked first, then the windows whose time
to close has come. It is a generator that stops after each estimate and each slice of cells that was read, so a tick
takes as many steps of it as it has time for, and the next tick goes on from there. After a round that took long
nothing is published for a while: what changes all the time is published as often as is of use, not as it can be.
"""

import logging
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from operator import itemgetter
from typing import Final

from dither_estimator.definitions import Definitions
from dither_estimator.faults import FAULTS, Faults
from dither_estimator.published import Published, WindowKey
from dither_estimator.store import Store, StoreFullError
from dither_estimator.sums import Sums
from dither_estimator.window_publisher import Marks, Round, WindowPublisher
from dither_protocol.errors import StorageError
from dither_protocol.storage import COMBINED, Cell, parse_cell

CLOSING_INTERVAL_S: Final = 5.0
"""How often it is looked for windows that close without a further report."""
COMPARING_INTERVAL_S: Final = 300.0
"""How often the closing times of open windows are compared with the metrics' definitions, which may change."""

REST: Final = 4
"""After a round publishing rests for so many times what the round took: one fifth of a processor is enough for it."""
SHORTEST_REST_S: Final = 1.0
"""A shorter one is none: while nothing waits the worker's own pauses are rest enough."""
LONGEST_REST_S: Final = 60.0

_log = logging.getLogger("dither_estimator")


class Publisher:
    """Publishes what changed and what closes.

    Args:
        store: where counts are read and estimates are written.
        definitions: gives the metrics.
    """

    def __init__(self, store: Store, definitions: Definitions) -> None:
        self._store = store
        self._published = Published(store)
        self._definitions = definitions
        self._faults = Faults()
        self._windows = WindowPublisher(store, self._published, definitions, self._faults)
        self._partitions = 0
        self._round: Iterator[None] | None = None
        self._refused = False
        self._look_at = 0.0
        self._compare_at = 0.0
        self._spent_s = 0.0  # on the round that was begun
        self._rest_until = 0.0

    def publish(
        self,
        partitions: int,
        budget_s: float,
        stop: threading.Event | None = None,
        *,
        resting: bool = True,
    ) -> bool:
        """Publish for at most about ``budget_s``, at least one step; whether to go on at once.

        A store without memory for estimates is no error: what was not published stays marked, and is tried again
        by the next call. Nor is what is damaged in the store: it is said, and everything else is published.

        Args:
            partitions: how many the store has.
            budget_s: after so long no further step is begun.
            stop: the same, as soon as it is set.
            resting: begin no round while the rest after the last one lasts.
        """
        if resting and self._round is None and time.monotonic() < self._rest_until:
            return False
        self._partitions = partitions
        try:
            return self._steps(time.monotonic() + budget_s, stop)
        except StoreFullError:
            if not self._refused:
                _log.warning("the store is full: estimates wait until it has room, counting goes on")
            self._refused, self._round = True, None
            return False
        except Exception:
            self._round = None  # it cannot go on, and is none to rest from: what it left is still marked
            raise

    def _steps(self, deadline: float, stop: threading.Event | None) -> bool:
        begun_before = self._round is not None
        while True:
            if self._round is None:
                self._round, self._spent_s = self._publish_round(), 0.0
            if not self._finish(self._round, deadline, stop):
                return True
            self._round = None
            rest_s = self._rest()
            if rest_s or not begun_before:
                return False
            begun_before = False  # the end of an older round: look for what changed since

    def _finish(self, steps: Iterator[None], deadline: float, stop: threading.Event | None) -> bool:
        """Take the steps of a round that there is time for; whether it came to its end."""
        began = time.monotonic()
        try:
            return all(
                time.monotonic() <= deadline and not (stop is not None and stop.is_set()) for _ in steps
            )
        finally:
            self._spent_s += time.monotonic() - began

    def _rest(self) -> float:
        """Begin to rest from the round that has ended; for how long, 0 where it was short."""
        rest_s = min(REST * self._spent_s, LONGEST_REST_S)
        if rest_s < SHORTEST_REST_S:
            return 0.0
        self._rest_until = time.monotonic() + rest_s
        return rest_s

    def _publish_round(self) -> Iterator[None]:
        marks = [self._store.dirty(partition) for partition in range(self._partitions)]
        changed = oldest_first(marks, self._faults)
        looking = time.monotonic() >= self._look_at
        if self._partitions and (changed or looking):
            # The watermark comes before any cell is read: then the cells contain all that it speaks of.
            watermark = self._published.watermark(self._partitions)
            now = Round(Sums(self._store, self._partitions), marks, watermark)
            for key, cells in changed.items():
                yield from self._try(key, self._windows.window(now, key, cells))
            if looking:
                yield from self._close(now)
            self._windows.clean(now)
            if looking:
                self._look_at = time.monotonic() + CLOSING_INTERVAL_S
        if self._refused:
            _log.info("the store takes estimates again")
            self._refused = False

    def _close(self, now: Round) -> Iterator[None]:
        """Publish the windows that close, and now and then those whose closing time was announced anew."""
        everything = time.monotonic() >= self._compare_at
        for window in self._published.open_windows(None if everything else now.watermark):
            try:
                key = window.key
            except StorageError as error:
                self._faults.note(f"an open window of {window.metric}", error)
                continue
            due = window.closes <= now.watermark.timestamp()
            # What is due may have been closed together with another version meanwhile.
            if self._published.is_open(window) if due else self._announced_anew(key, window.closes):
                yield from self._try(key, self._closing(now, key))
        if everything:
            self._compare_at = time.monotonic() + COMPARING_INTERVAL_S

    def _announced_anew(self, key: WindowKey, closes: float) -> bool:
        name, version, label = key
        if version == COMBINED:
            return False  # it follows its versions
        try:
            metric = self._definitions(name, int(version))
            return metric.closes_at(metric.parse_window(label)).timestamp() != closes
        except FAULTS:
            return True  # and the try will say why

    def _closing(self, now: Round, key: WindowKey) -> Generator[None, None, bool]:
        name, version, label = key
        if version == COMBINED:
            return (yield from self._windows.combined(now, name, label))
        return (yield from self._windows.window(now, key, [], every_cell=True))

    def _try(self, key: WindowKey, steps: Generator[None, None, bool]) -> Iterator[None]:
        """Take the steps of one window; where they do not lead to its end it waits for a while."""
        if self._faults.holds(key):
            return
        try:
            done = yield from steps
        except FAULTS as error:
            self._faults.note(":".join(map(str, key)), error)
            done = False
        if not done:
            self._faults.hold(key)


def oldest_first(marks: Marks, faults: Faults) -> dict[WindowKey, list[Cell]]:
    """The cells that are marked, by window, in the order of their oldest marks; windows of one version in that of time.

    A mark that names no cell is left where it is, and said.
    """
    oldest: dict[str, tuple[int, ...]] = {}
    for dirty in marks:
        for name, mark in dirty.items():
            age = _age(mark)
            oldest[name] = min(age, oldest.get(name, age))
    windows: dict[WindowKey, list[Cell]] = {}
    for name in sorted(oldest, key=lambda name: (oldest[name], name)):
        try:
            cell = parse_cell(name)
        except StorageError as error:
            faults.note("a mark of a changed cell", error)
            continue
        windows.setdefault((cell.metric, cell.version, cell.window), []).append(cell)
    return _in_time(windows)


def _in_time(windows: Mapping[WindowKey, list[Cell]]) -> dict[WindowKey, list[Cell]]:
    """The windows of each version in the order of time, in the places that they have together.

    A window that closes after later ones has their rollups published once more, up to 89 of each kind. After an outage
    many windows close together, and partitions mark them in any order. Labels of one period sort as their times do.
    """
    sorted_keys: dict[tuple[str, int | str], list[WindowKey]] = {}
    for key in windows:
        sorted_keys.setdefault(key[:2], []).append(key)
    turns = {version: iter(sorted(keys, key=itemgetter(2))) for version, keys in sorted_keys.items()}
    order = [next(turns[key[:2]]) for key in windows]
    return {key: windows[key] for key in order}


def _age(mark: bytes) -> tuple[int, ...]:
    """A checkpoint as numbers; one that is none counts as the oldest."""
    try:
        return tuple(map(int, mark.partition(b".")[0].split(b"-")))
    except ValueError:
        return ()
