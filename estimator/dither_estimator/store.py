"""The worker's view of the store: read streams and cells, apply counts, publish estimates.

The only module of this room that knows Redis. Every method touches one partition or one key, so a cluster
shards without change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from dither_protocol import storage
from dither_protocol.errors import DitherError, StorageError
from dither_protocol.registry import Metric, decode_definition

CONNECT_TIMEOUT_S: Final = 1.0
READ_TIMEOUT_S: Final = 5.0  # longer than the server's second: an apply may carry 8 MiB to a disk

Entry = tuple[bytes, bytes]
"""A stream entry: its id and its payload."""


class StoreUnavailableError(DitherError):
    """The store cannot be reached or refuses to work now; what it holds is not lost."""


class StoreFullError(StoreUnavailableError):
    """The store has no memory for this write now; counting and reading go on."""


@dataclass(frozen=True)
class Commit:
    """Everything that one apply writes to a partition.

    Attributes:
        started_from: checkpoint that was read before the entries; b"" for none.
        checkpoint: id of the last entry contained.
        payload_bytes: size of the payloads of all entries contained, dead ones included.
        cells: new packed value of each cell that changed, by name.
        counted: reports counted, by (metric, window).
        dead: reports given up, by (metric, window).
        dead_entries: (id, reason, payload) of entries that could not be counted.
    """

    started_from: bytes
    checkpoint: bytes
    payload_bytes: int
    cells: Mapping[str, bytes]
    counted: Mapping[tuple[str, str], int]
    dead: Mapping[tuple[str, str], int] = field(default_factory=dict)
    dead_entries: Sequence[tuple[bytes, str, bytes]] = ()


def after(entry_id: bytes) -> bytes:
    """The smallest stream id above ``entry_id``."""
    milliseconds, sequence = entry_id.split(b"-")
    return b"%s-%d" % (milliseconds, int(sequence) + 1)


class Store:
    """A connection to the store of one deployment.

    Args:
        url: redis:// or unix:// URL.
    """

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(
            url,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=READ_TIMEOUT_S,
            # One retry is safe: apply compares the checkpoint, publish compares n.
            retry=Retry(NoBackoff(), 1),
        )
        self._apply = self._script("apply")
        self._attempt = self._script("attempt")
        self._publish = self._script("publish")
        self._clean = self._script("clean")
        self._keys: tuple[storage.PartitionKeys, ...] = ()

    def _script(self, name: str) -> Any:
        source = files("dither_estimator").joinpath("scripts", f"{name}.lua").read_text("utf-8")
        return self._redis.register_script(source)

    def open(self) -> int | None:
        """Read how the store is laid out; the number of partitions, None while no server has created it.

        Raises:
            StorageError: it has another layout than this version knows.
        """
        meta = cast(dict[bytes, bytes], self._call(self._redis.hgetall, storage.META_KEY))
        if b"partitions" not in meta:
            return None
        if int(meta.get(b"layout", 0)) != storage.LAYOUT:
            raise StorageError(f"the store has another layout; this version reads layout {storage.LAYOUT}")
        partitions = int(meta[b"partitions"])
        self._keys = tuple(storage.PartitionKeys(tag) for tag in storage.partition_tags(partitions))
        return partitions

    def checkpoint(self, partition: int) -> bytes:
        """Id of the last entry that the cells contain; b"" before the first commit."""
        return cast(bytes | None, self._call(self._redis.get, self._keys[partition].checkpoint)) or b""

    def entries(self, partition: int, checkpoint: bytes, count: int) -> list[Entry]:
        """At most ``count`` entries after ``checkpoint``, oldest first."""
        start = after(checkpoint) if checkpoint else b"-"
        rows = self._call(self._redis.xrange, self._keys[partition].stream, min=start, count=count)
        return [(entry_id, fields.get(storage.ENTRY_FIELD, b"")) for entry_id, fields in rows]

    def attempt(self, partition: int) -> str:
        """What `note_attempt` wrote last; empty where nothing ever was."""
        found = cast(bytes | None, self._call(self._redis.get, self._keys[partition].attempt))
        return (found or b"").decode("ascii")

    def note_attempt(self, partition: int, text: str) -> None:
        """Say which entries are about to be decoded, before they are: the decoding may be the end of this process."""
        self._call(self._attempt, [self._keys[partition].attempt], [text])

    def take_back_attempt(self, partition: int, text: str, before: str) -> None:
        """Say that the attempt ``text`` did not end this process: ``before`` stands in its place again."""
        self._call(self._attempt, [self._keys[partition].attempt], [before, text])

    def cells(self, partition: int, names: Sequence[str]) -> list[bytes | None]:
        """Packed values of cells, None for a cell that does not exist."""
        if not names:
            return []
        keys = self._keys[partition]
        return cast(list[bytes | None], self._call(self._redis.mget, [keys.cell(name) for name in names]))

    def apply(self, partition: int, commit: Commit) -> bool:
        """Write a commit if nobody else moved the checkpoint; whether it was written."""
        keys = self._keys[partition]
        outcomes = sorted(commit.counted.keys() | commit.dead.keys())
        arguments: list[Any] = [commit.started_from, commit.checkpoint]
        arguments += [after(commit.checkpoint), commit.payload_bytes, len(commit.cells)]
        for name, packed in commit.cells.items():
            arguments += [name, packed]
        arguments.append(len(outcomes))
        for outcome in outcomes:
            arguments += [commit.counted.get(outcome, 0), commit.dead.get(outcome, 0)]
        arguments.append(len(commit.dead_entries))
        for dead in commit.dead_entries:
            arguments += dead
        touched = [keys.checkpoint, keys.stream, keys.backlog, keys.dirty, keys.dead]
        touched += [keys.cell(name) for name in commit.cells]
        touched += [keys.outcome(metric, window) for metric, window in outcomes]
        return bool(self._call(self._apply, touched, arguments))

    def dirty(self, partition: int) -> dict[str, bytes]:
        """Cells that changed since they were published, with the checkpoint of their last change."""
        found = cast(dict[bytes, bytes], self._call(self._redis.hgetall, self._keys[partition].dirty))
        return {name.decode("utf-8"): mark for name, mark in found.items()}

    def clean(self, partition: int, marks: Iterable[tuple[str, bytes]]) -> None:
        """Forget that cells were unpublished, except those that changed again after ``marks``."""
        arguments: list[str | bytes] = [part for mark in marks for part in mark]
        if arguments:
            self._call(self._clean, [self._keys[partition].dirty], arguments)

    def publish(self, metric: Metric, field_name: str, n: int, document: str) -> bool:
        """Publish an estimate over ``n`` reports, unless a later one stands; whether it was written.

        Raises:
            StoreFullError: the store has no memory for it; what stood before still stands.
        """
        return self._publish_at(storage.estimate_key(metric.name, metric.version), field_name, n, document)

    def publish_combined(self, metric: str, field_name: str, n: int, document: str) -> bool:
        """The same for an estimate over several versions of ``metric``."""
        return self._publish_at(storage.combined_key(metric), field_name, n, document)

    def _publish_at(self, key: str, field_name: str, n: int, document: str) -> bool:
        return bool(self._call(self._publish, [key], [field_name, n, document]))

    def versions(self, metric: str) -> list[int]:
        """Every version of a metric that a server announced, in order."""
        found = cast(set[bytes], self._call(self._redis.smembers, storage.versions_key(metric)))
        return sorted(map(int, found))

    def definition(self, metric: str, version: int) -> Metric:
        """The definition that a server announced.

        Raises:
            StorageError: none was announced.
            RegistryError: this version of Dither gives its reports another meaning.
        """
        text = cast(bytes | None, self._call(self._redis.get, storage.metric_key(metric, version)))
        if text is None:
            raise StorageError(f"no server announced version {version} of metric '{metric}'")
        return decode_definition(text)

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def _call(self, command: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except redis.exceptions.OutOfMemoryError as error:
            raise StoreFullError("the store has no free memory") from error
        except redis.RedisError as error:
            raise StoreUnavailableError(f"{type(error).__name__}: {error}") from error
