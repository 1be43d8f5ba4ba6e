"""The worker's view of the store: read streams and cells, apply counts, publish estimates.

The only module of this room that knows Redis. Every script touches one partition or one metric, so a cluster shards
without change.
"""

import hashlib
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from dither_protocol import storage
from dither_protocol.errors import DitherError, StorageError
from dither_protocol.registry import Metric, decode_definition
from dither_protocol.spreading import Command, Faults, ask, spread
from dither_protocol.store_url import StoreUrlError, parse_store_url

CONNECT_TIMEOUT_S: Final = 1.0
READ_TIMEOUT_S: Final = 5.0  # longer than the server's second: an apply may carry 8 MiB to a disk

_COMMANDS_AT_ONCE: Final = 1_000
_FAULTS: Final = Faults(redis.ConnectionError, redis.TimeoutError, redis.exceptions.MovedError)

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
    """The smallest stream id above ``entry_id``, which may be a checkpoint that a prune has marked (``id.n``)."""
    milliseconds, sequence = entry_id.partition(b".")[0].split(b"-")
    return b"%s-%d" % (milliseconds, int(sequence) + 1)


class _Cluster(redis.RedisCluster):
    """The library's client of a cluster, within our limits."""

    # After silence another try would take as long, and after "down" it would be as much in vain.
    ERRORS_ALLOW_RETRY: Any = (redis.ConnectionError,)


class _Script:
    """A script that its server may have forgotten, or that another node has to learn.

    Args:
        client: gives the client to run it with.
        source: its text.
    """

    def __init__(self, client: Callable[[], Any], source: bytes) -> None:
        self._client = client
        self._source = source
        self._sha = hashlib.sha1(source, usedforsecurity=False).hexdigest()  # EVALSHA names a script so

    def __call__(self, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        """Run it on keys of one slot."""
        try:
            return self._client().evalsha(self._sha, len(keys), *keys, *arguments)
        except (
            redis.exceptions.NoScriptError
        ):  # EVAL leaves it with the server of its keys, and with no other
            return self._client().eval(self._source, len(keys), *keys, *arguments)


class Store:
    """A connection to the store of one deployment.

    Args:
        url: of a server or a cluster (`dither_protocol.store_url`).

    Raises:
        StoreUrlError: it is none, or has an option that nobody knows.
    """

    def __init__(self, url: str) -> None:
        self._url = parse_store_url(url)
        library: Any = redis
        try:
            self._starts = [library.connection.parse_url(each) for each in self._url.urls]
            options = dict(self._starts[0])
            options.pop("connection_class", redis.Connection)(**options)  # connects when it is first used
            if self._url.clustered and not options.keys() <= set(library.cluster.REDIS_ALLOWED_KEYS):
                raise ValueError  # the library would leave it out, a rule for TLS as well, without a word
        except (TypeError, ValueError, redis.RedisError):
            raise StoreUrlError("has an option with an unknown name or value") from None
        self._client: Any = None
        self._apply = self._script("apply")
        self._attempt = self._script("attempt")
        self._entries = self._script("entries")
        self._clean = self._script("clean")
        self._presence = self._script("presence")
        self._lease = self._script("lease")
        self._release = self._script("release")
        self._scripts: dict[str, Any] = {}
        self._keys: tuple[storage.PartitionKeys, ...] = ()

    @property
    def _redis(self) -> Any:
        """The library's client. Of a cluster it connects at its first use, for it has to find the nodes."""
        if self._client is None:
            self._client = self._call(self._connect)
        return self._client

    def _connect(self) -> Any:
        library: Any = redis
        limits: dict[str, Any] = {
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "socket_timeout": READ_TIMEOUT_S,
            # One retry is safe: apply compares the checkpoint, publish compares n.
            "retry": Retry(NoBackoff(), 1),
        }
        if not self._url.clustered:
            return redis.Redis.from_url(self._url.urls[0], **limits)
        nodes = [
            library.cluster.ClusterNode(each["host"], each.get("port", 6379)) for each in self._starts[1:]
        ]
        return _Cluster(url=self._url.urls[0], startup_nodes=nodes, **limits)

    def _script(self, name: str) -> _Script:
        source = files("dither_estimator").joinpath("scripts", f"{name}.lua").read_bytes()
        own = weakref.ref(self)  # a store that nobody uses any more closes its connections at once
        return _Script(lambda: cast(Store, own())._redis, source)

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

    def entries(self, partition: int, checkpoint: bytes, count: int, size: int = 1 << 20) -> list[Entry]:
        """Entries after ``checkpoint``, oldest first.

        Args:
            partition: of the store.
            checkpoint: after which; b"" for all that there are.
            count: at most so many, fewer only where there are no more of them, or where they exceed ``size``.
            size: bytes of payloads; the entry that goes beyond is the last one.
        """
        start = after(checkpoint) if checkpoint else b"-"
        ids, sizes, payloads = self._call(self._entries, [self._keys[partition].stream], [start, count, size])
        entries: list[Entry] = []
        at = 0
        for entry_id, length in zip(ids.split(), map(int, sizes.split()), strict=True):
            entries.append((entry_id, payloads[at : at + length]))
            at += length
        return entries

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

    def dead_count(self, partition: int) -> int:
        """How many entries were set aside and are still kept."""
        return cast(int, self._call(self._redis.xlen, self._keys[partition].dead))

    def heartbeat(self, owner: str, ttl_ms: int, replaces: str) -> dict[str, int]:
        """Say that a worker lives; every living one with when it was seen last, Unix milliseconds.

        Args:
            owner: the worker.
            ttl_ms: who was not seen for longer is dropped.
            replaces: those whose names begin so are dropped too; "" for nobody.
        """
        found = self._call(self._presence, [storage.WORKERS_KEY], [owner, ttl_ms, replaces])
        return {name.decode("utf-8"): int(seen) for name, seen in zip(found[::2], found[1::2], strict=True)}

    def leave(self, owner: str) -> None:
        """Say that a worker lives no longer."""
        self._call(self._redis.zrem, storage.WORKERS_KEY, owner)

    def workers(self) -> dict[str, int]:
        """The workers that said they live, with when they were seen last, Unix milliseconds."""
        found = self._call(self._redis.zrange, storage.WORKERS_KEY, 0, -1, withscores=True)
        return {name.decode("utf-8"): int(seen) for name, seen in found}

    def lease(self, key: str, owner: str, ttl_ms: int, replaces: str) -> bool:
        """Take a lease if it is free or ``owner``'s; whether ``owner`` holds it now. Arguments as in `heartbeat`."""
        return bool(self._call(self._lease, [key], [owner, ttl_ms, replaces]))

    def release(self, key: str, owner: str) -> None:
        """Give a lease back, unless it is another's by now."""
        self._call(self._release, [key], [owner])

    def renew(self, keys: Sequence[str], ttl_ms: int) -> list[bool]:
        """Let leases last; whether each of them still existed."""
        return [bool(found) for found in self.commands([("PEXPIRE", key, ttl_ms) for key in keys])]

    def holders(self, keys: Sequence[str]) -> list[str | None]:
        """The workers that hold leases; None for a free one."""
        found: list[bytes | None] = self.commands([("GET", key) for key in keys])
        return [None if each is None else each.decode("utf-8") for each in found]

    def cells(self, partition: int, names: Sequence[str]) -> list[bytes | None]:
        """Packed values of cells, None for a cell that does not exist."""
        if not names:
            return []
        keys = self._keys[partition]
        return cast(list[bytes | None], self._call(self._redis.mget, [keys.cell(name) for name in names]))

    def cells_by_partition(self, names: Sequence[str]) -> list[list[bytes | None]]:
        """What `cells` gives, of every partition, in few round trips."""
        if not names:
            return [[] for _ in self._keys]
        return self.commands([("MGET", *(keys.cell(name) for name in names)) for keys in self._keys])

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
        touched += [keys.archived, keys.outcomes]
        touched += [keys.cell(name) for name in commit.cells]
        for metric, window in outcomes:
            touched += keys.outcome(metric, window), keys.ever(metric)
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

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        """Run a script of this room, by its name, on keys of one cluster slot.

        Raises:
            StoreFullError: the store has no memory for it; nothing has changed.
        """
        if script not in self._scripts:
            self._scripts[script] = self._script(script)
        return self._call(self._scripts[script], keys, arguments)

    def commands(self, commands: Sequence[Sequence[str | bytes | int]]) -> list[Any]:
        """The answers to plain commands, each on keys of one cluster slot, in few round trips to each node.

        They may be run twice: for reading, and for writing what comes to the same when it is written again.
        """
        answers: list[Any] = []
        for start in range(0, len(commands), _COMMANDS_AT_ONCE):
            chunk: list[Command] = [
                (tuple(command), {}) for command in commands[start : start + _COMMANDS_AT_ONCE]
            ]
            answers += self._call(self._ask, chunk)
        return answers

    def _ask(self, commands: Sequence[Command]) -> list[Any]:
        client = self._redis
        answers = spread(client, _FAULTS, commands, ask) if self._url.clustered else ask(client, commands)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def now(self) -> datetime:
        """The time by the store's clock."""
        seconds, microseconds = self._call(self._redis.time)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)

    def information(self, section: str) -> list[dict[str, Any]]:
        """What each server of the store, replicas left out, says about itself under a heading of INFO."""
        if not self._url.clustered:
            return [self._call(self._redis.info, section)]
        found = self._call(self._redis.info, section, target_nodes=redis.RedisCluster.PRIMARIES)
        return [each for each in found.values() if isinstance(each, dict)] or [found]

    def command(self, *arguments: str | bytes | int) -> Any:
        """Run one command on keys of one cluster slot."""
        return self._call(self._redis.execute_command, *arguments)

    def watermark(self, partition: int) -> int:
        """The time by the store's clock, Unix milliseconds, before which every entry of a partition is counted."""
        keys = self._keys[partition]
        return int(self.run("watermark", [keys.checkpoint, keys.stream], []))

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
        if self._client is not None:
            self._client.close()

    def _call(self, command: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except redis.exceptions.OutOfMemoryError as error:
            raise StoreFullError("the store has no free memory") from error
        except redis.exceptions.MovedError as error:
            raise StorageError("the store is a node of a cluster; use cluster:// in its URL") from error
        except redis.RedisError as error:
            raise StoreUnavailableError(f"{type(error).__name__}: {error}") from error
        except redis.exceptions.RedisClusterException as error:
            if "mode is not enabled" in str(error):
                raise StorageError("the store is no cluster; use redis:// in its URL") from error
            if "cannot be connected" in str(error) or "not covered" in str(error):
                self._client = None  # no known node answers: look for the others where the URL begins
                raise StoreUnavailableError(f"{type(error).__name__}: {error}") from error
            raise
