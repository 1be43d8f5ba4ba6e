"""The archive: counted reports are written as Parquet before they leave the stream.

It reads the stream behind the counters, with a checkpoint of its own. While that exists, counting neither trims the
stream nor lowers the backlog; the archive does, once a file is on the disk. A step is: claim the partition, write a
file where no reader finds it, commit it in the store by compare-and-set, let readers find it. A kill at any instant
leaves a state that the next claim recognises by the file's token, and whoever claimed before cannot commit any more.
So each counted report is in the archive exactly once, whoever dies and however many try.
"""

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

from dither_estimator.archive_claim import STEP_BYTES, Claims, State
from dither_estimator.archive_folder import Folder, Name, life_of
from dither_estimator.definitions import Definitions
from dither_estimator.pruning import entry_time
from dither_estimator.store import Entry, Store, StoreFullError
from dither_estimator.tally import decode
from dither_protocol.errors import StorageError
from dither_protocol.storage import META_KEY, PartitionKeys, partition_tags

INTERVAL: Final = timedelta(hours=1)
"""So long after it came in a report is written at the latest. Not sooner: every file holds the reports of many batches
then, so that nobody can tell which of them came together, and there are not too many files after a year."""
SHARE_OF_MEMORY: Final = 8
"""Or as soon as a whole step is waiting in a partition, or this part of the store's memory in all of them: half of
where ingest takes no more."""
LOOK_S: Final = 60.0
"""How often the age of what waits is looked at, and how long a disk that failed is left alone."""

_FIELD: Final = "archive"  # of META_KEY

_log = logging.getLogger("dither_estimator")


class Archive:
    """Writes the archive of the partitions that it is given.

    Args:
        store: where the streams are.
        definitions: of the metrics.
        folder: where the files go.
        write: writes groups of reports as one file, as `dither_estimator.archive_file.write` does.
        interval: how old a report may become before it is written.
        high_water_bytes: the servers' mark, where an operator has set one.

    Attributes:
        folder: where the files go.
    """

    def __init__(
        self,
        store: Store,
        definitions: Definitions,
        folder: Folder,
        write: Callable[[Sequence[Any], IO[bytes]], object],
        *,
        interval: timedelta = INTERVAL,
        high_water_bytes: int | None = None,
    ) -> None:
        self.folder = folder
        self._store = store
        self._claims = Claims(store)
        self._definitions = definitions
        self._write = write
        self._interval = interval
        self._step_bytes = min(STEP_BYTES, (high_water_bytes or 2 * STEP_BYTES) // 2)
        self._opened = False
        self._begun: set[int] = set()
        self._mine: dict[int, State] = {}  # what the store holds of this process, as far as it knows
        self._numbers: dict[int, int] = {}  # of the last files
        self._look_at: dict[int, float] = {}
        self._retry_at = float("-inf")
        self._failing = False

    def begin(self, partitions: int, partition: int) -> None:
        """Let the archive of a partition begin, where there is none; before anything more of it is counted.

        The folder is not needed for that: while it cannot be reached, the stream is kept.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        if partition not in self._begun:
            keys = _keys(partitions, partition)
            if self._claims.state(keys) is None:
                self._claims.claim(keys, None)
            self._begun.add(partition)

    def advance(self, partitions: int, partition: int, *, at_once: bool = False) -> bool:
        """Go on with one partition, where it is time to; whether more may be to do at once.

        A disk that fails is no error of the worker's: it is said, and tried again after a while.

        Args:
            partitions: how many the store has.
            partition: the one to go on with.
            at_once: write what is counted, however little it is.

        Raises:
            StoreUnavailableError: the store does not answer; nothing is lost.
            StorageError: the folder is not this store's, or what was counted cannot be read any more.
        """
        if time.monotonic() < self._retry_at:
            return False
        keys = _keys(partitions, partition)
        try:
            self._open(partitions)
            state = self._claimed(partition, keys)
            if state is None or not (at_once or self._due(partition, keys)):
                return False
            return self._step(partition, keys, state)
        except OSError as error:
            self._mine.pop(partition, None)
            self._fail(error)
            return False
        except StoreFullError:
            return False
        except Exception:
            self._mine.pop(partition, None)  # nobody knows what became of the last call: a new claim tells
            raise

    def _open(self, partitions: int) -> None:
        if self._opened:
            return
        (identity,) = self._store.commands([("HGET", META_KEY, _FIELD)])
        if identity is None:
            self._store.commands([("HSETNX", META_KEY, _FIELD, secrets.token_hex(8))])
            (identity,) = self._store.commands([("HGET", META_KEY, _FIELD)])
        states = [self._claims.state(_keys(partitions, partition)) for partition in range(partitions)]
        begun = any(state is not None and not state.begins for state in states)
        self.folder.open(identity.decode("ascii"), begun=begun)
        limits = [int(node.get("maxmemory", 0)) for node in self._store.information("memory")]
        if all(limits):
            self._step_bytes = min(self._step_bytes, min(limits) // (SHARE_OF_MEMORY * partitions))
        self._opened = True
        _log.info("archive: writing to %s", self.folder.path)

    def _claimed(self, partition: int, keys: PartitionKeys) -> State | None:
        """The state of a partition that this process may write for; None where somebody else is about to."""
        state = self._claims.state(keys)
        if state is not None and state == self._mine.get(partition):
            return state
        found = self.folder.survey(keys.tag, None if state is None or state.begins else state.number)
        state = self._claims.claim(keys, state)
        if state is not None:
            if state.begins:
                self._numbers[partition] = self.folder.resume(found, life_of(state.token))
            else:
                self.folder.settle(found, state.token)
                self._numbers[partition] = state.number
            self._mine[partition] = state
        return state

    def _due(self, partition: int, keys: PartitionKeys) -> bool:
        (backlog,) = self._store.commands([("GET", keys.backlog)])
        if int(backlog or 0) >= self._step_bytes:
            return True
        if time.monotonic() < self._look_at.get(partition, 0.0):
            return False
        self._look_at[partition] = time.monotonic() + LOOK_S
        (oldest,) = self._store.commands([("XRANGE", keys.stream, "-", "+", "COUNT", 1)])
        return bool(oldest) and self._store.now() - entry_time(oldest[0][0]) >= self._interval

    def _step(self, partition: int, keys: PartitionKeys, state: State) -> bool:
        entries = self._claims.counted(partition, keys, state, self._step_bytes)
        if not entries:
            return False
        token = f"{life_of(state.token)}.{secrets.token_hex(8)}"
        name = Name(keys.tag, self._numbers[partition] + 1, token)
        groups = self._groups(entries)
        self.folder.write(name, lambda file: self._write(groups, file))
        new = State(entries[-1][0], name.number, name.token, state.claim)
        if not self._claims.trim(keys, state, new, entries):
            self._mine.pop(partition, None)
            _log.info("archive: partition %d was claimed by another worker, nothing written", partition)
            return False
        self.folder.reveal(name)
        self._mine[partition], self._numbers[partition] = new, name.number
        if self._failing:
            _log.info("archive: %s takes files again", self.folder.path)
            self._failing = False
        return True

    def _groups(self, entries: Sequence[Entry]) -> list[Any]:
        groups: list[Any] = []
        for each in decode(entries, self._definitions):
            if each.problem:
                raise StorageError(f"archive: a counted entry cannot be read any more: {each.problem}")
            groups += [(head.name, head.metric, packed) for head, packed in each.groups]
        return groups

    def _fail(self, error: OSError) -> None:
        if not self._failing:
            _log.error(
                "archive: %s cannot be written (%s); counting goes on, but nothing leaves the streams: "
                "when the backlog reaches its high-water mark, ingest answers 503",
                self.folder.path,
                error.strerror or error,
            )
        self._failing, self._retry_at = True, time.monotonic() + LOOK_S


def open_archive(
    store: Store, definitions: Definitions, path: Path | None, high_water_bytes: int | None = None
) -> "Archive | NoArchive":
    """The archive in a folder, or what stands for none.

    Raises:
        StorageError: pyarrow is not installed.
    """
    if path is None:
        return NoArchive(store)
    try:
        write = import_module(
            "dither_estimator.archive_file"
        ).write  # pyarrow: only where there is an archive
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise StorageError(
            "an archive needs the package 'pyarrow'. Install it with: pip install 'dither[archive]'"
        ) from None
    return Archive(store, definitions, Folder(path), write, high_water_bytes=high_water_bytes)


class NoArchive:
    """What a worker without an archive does with a store that has one: it ends it, or the backlog would only grow.

    Args:
        store: where the streams are.
    """

    folder: None = None

    def __init__(self, store: Store) -> None:
        self._store = store
        self._claims = Claims(store)
        self._look_at: dict[int, float] = {}
        self._said: set[int] = set()

    def begin(self, partitions: int, partition: int) -> None:
        """Nothing begins."""

    def advance(self, partitions: int, partition: int, *, at_once: bool = False) -> bool:
        """Let one step of what is counted leave the stream, where an archive keeps it; arguments as in `Archive`."""
        if time.monotonic() < self._look_at.get(partition, 0.0):
            return False
        keys = _keys(partitions, partition)
        before = self._claims.state(keys)
        if before is None:
            self._look_at[partition] = time.monotonic() + LOOK_S
            return False
        state = self._claims.claim(keys, before)
        if state is None:
            return True
        if partition not in self._said:
            self._said.add(partition)
            _log.warning(
                "partition %d was archived, and this worker has no DITHER_ARCHIVE: its archive ends here",
                partition,
            )
        entries = self._claims.counted(partition, keys, state)
        new = replace(state, entry=entries[-1][0]) if entries else None
        self._claims.trim(keys, state, new, entries)
        return True


def _keys(partitions: int, partition: int) -> PartitionKeys:
    return PartitionKeys(partition_tags(partitions)[partition])
