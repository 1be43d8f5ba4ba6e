"""The store as the server uses it: the only module here that knows Redis.

A client is thread-safe, and opens its connections when they are first used. Two errors come out of here:
`StoreUnavailable` for what may be over in a moment, `StoreRefused` for what a person has to put right.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from dither_protocol.registry import Registry
from dither_protocol.registry.envelope import SignedRegistry
from dither_protocol.spreading import Faults, ask, spread
from dither_protocol.storage import META_KEY, PartitionKeys, partition_of, partition_tags, quota_key
from dither_protocol.store_url import StoreUrlError, parse_store_url
from dither_server.admission import Admission
from dither_server.admit_call import Outcome, admit_call
from dither_server.admitting import Admitting, Rounds
from dither_server.announcing import announce, older_versions
from dither_server.catalogue import Catalogue
from dither_server.conservation import Conservation, View
from dither_server.counting_state import CountingState, read_counting_state
from dither_server.disk_floor import DiskFloor
from dither_server.lines import Lines, Replies
from dither_server.looking import read_conservation
from dither_server.nodes import ALONE, ClusterNodes, Nodes, OneServer
from dither_server.quota import Part, Quota, ask_store
from dither_server.readiness import Readiness
from dither_server.reading import read_published
from dither_server.selection import Selection
from dither_server.settings import ConfigurationError, Settings
from dither_server.store_memory import Memory, read_memory
from dither_server.store_rules import (
    CONFIG_NAMES,
    ELSEWHERE_KINDS,
    LOST_KINDS,
    Config,
    Published,
    StoreRefused,
    StoreUnavailable,
    check_config,
    check_meta,
    expected_meta,
    high_water,
    least_memory,
    text_map,
)
from dither_server.trials import Guard, Trials

_CONNECT_TIMEOUT_S: Final = 1.0
_READ_TIMEOUT_S: Final = 1.0
_TRIES_AGAIN: Final = 1
_PREPARE_WAIT_S: Final = 1.0

# The replies by which a living store says "not now"; any other is a fault of ours and stays an error 500.
_NOT_NOW: Final = (
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.TryAgainError,
    redis.exceptions.AskError,  # a slot is on its way to another master
)
# redis-py has no class for these; the last one ends a WAIT whose store has become a replica
_NOT_NOW_WORDS: Final = ("MISCONF", "BUSY", "NOREPLICAS", "UNBLOCKED")
_FINDING: Final = "nodes"
"""Stands for a master where the nodes of a cluster have still to be found."""

_Found = TypeVar("_Found")

_FAULTS: Final = Faults(redis.ConnectionError, redis.TimeoutError, redis.exceptions.MovedError)


def _in_our_words(error: BaseException) -> BaseException:  # noqa: PLR0911  # one return per kind of error is the table
    """What an error of the library means here; the error itself where it is none, or a fault of ours."""
    match error:
        case redis.exceptions.RedisClusterException():
            return _cluster_error(error)
        case redis.exceptions.MovedError():
            return StoreRefused("is a node of a cluster; use cluster:// in DITHER_STORE_URL")
        case redis.TimeoutError():
            return StoreUnavailable("timeout")
        case redis.AuthenticationError():  # a ConnectionError to redis-py, and nothing that waiting would cure
            return StoreRefused("does not accept the password in DITHER_STORE_URL")
        case redis.BusyLoadingError():  # likewise
            return StoreUnavailable("loading")
        case redis.ConnectionError():
            return StoreUnavailable("connection")
        case redis.exceptions.ReadOnlyError():
            return StoreUnavailable("readonly")
        case redis.exceptions.ClusterError():
            return StoreUnavailable("refusing")
        case redis.ResponseError() if isinstance(error, _NOT_NOW) or str(error).startswith(_NOT_NOW_WORDS):
            return StoreUnavailable("refusing")
    return error


def _cluster_error(error: redis.exceptions.RedisClusterException) -> Exception:
    """What the library means when it finds no cluster; the error itself where it is a fault of ours."""
    if isinstance(error.__cause__, redis.AuthenticationError):
        return StoreRefused("does not accept the password in DITHER_STORE_URL")
    if "mode is not enabled" in str(error):
        return StoreRefused("is no cluster, or hides CLUSTER SLOTS; for one server use redis://")
    if "cannot be connected" in str(error) or "not covered" in str(error):
        return StoreUnavailable("cluster")
    return error


class _Cluster(redis.RedisCluster):
    """The library's client of a cluster, within our limits."""

    # After silence another try would take as long, and after "down" it would be as much in vain.
    ERRORS_ALLOW_RETRY: Any = (redis.ConnectionError,)

    def pipeline(self, transaction: Any = None, shard_hint: Any = None) -> Any:
        """A pipeline over the masters; see `dither_server.nodes`."""
        return _ClusterPipeline(self, bool(transaction))


class _ClusterPipeline(redis.client.Pipeline):
    """Commands for a cluster, in one round trip to each master. A transaction stays within one slot."""

    def __init__(self, cluster: Any, transaction: bool) -> None:
        some_master = cluster.get_redis_connection(cluster.get_default_node())
        super().__init__(some_master.connection_pool, some_master.response_callbacks, transaction, None)
        self._cluster = cluster
        self._ask = partial(ask, transaction=transaction)

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The result of each command, or its exception in its place."""
        commands, self.command_stack = self.command_stack, []
        results = spread(self._cluster, _FAULTS, commands, self._ask)
        for result in results if raise_on_error else ():
            if isinstance(result, Exception):
                raise result
        return results


def _open(url: str) -> Nodes:
    """The masters that a URL leads to.

    Raises:
        ConfigurationError: it is no URL of a store, or has an option that nobody knows.
    """
    library: Any = redis
    limits: dict[str, Any] = {"socket_connect_timeout": _CONNECT_TIMEOUT_S, "socket_timeout": _READ_TIMEOUT_S}
    try:
        found = parse_store_url(url)
        parsed = [library.connection.parse_url(each) for each in found.urls]
        options = parsed[0] | {}
        options.pop("connection_class", redis.Connection)(**options)  # connects when it is first used
        if found.clustered and not options.keys() <= set(library.cluster.REDIS_ALLOWED_KEYS):
            raise ValueError  # the library would leave it out, a rule for TLS as well, without a word
    except StoreUrlError as error:
        raise ConfigurationError("DITHER_STORE_URL", str(error)) from None
    except (TypeError, ValueError, redis.RedisError):
        raise ConfigurationError("DITHER_STORE_URL", "has an option with an unknown name or value") from None
    # A lost connection is tried again at once. Silence is not: whoever sent the batch tries again, later.
    retry = Retry(NoBackoff(), _TRIES_AGAIN, (redis.ConnectionError,))
    if not found.clustered:
        return OneServer(redis.Redis.from_url(url, retry=retry, **limits))

    def connect() -> _Cluster:
        others = [library.cluster.ClusterNode(each["host"], each.get("port", 6379)) for each in parsed[1:]]
        return _Cluster(url=found.urls[0], startup_nodes=others, retry=retry, **limits)

    return ClusterNodes(connect, _FAULTS)


def _config(client: Any) -> Config | None:
    """The options of a master; None where it hides them."""
    return _shown(lambda: text_map(client.config_get(*CONFIG_NAMES)))


def _shown(ask: Callable[[], _Found]) -> _Found | None:
    """What a master says about itself; None where it hides that."""
    try:
        return ask()
    except redis.exceptions.NoPermissionError:
        return None
    except redis.ResponseError as error:
        if "unknown command" in str(error).lower():  # renamed or disabled, as hosted stores do
            return None
        raise


class Store:
    """The partitions of a Redis or Valkey server, or of a cluster of them.

    Args:
        settings: where it is and what is asked of it.
        registry: the metrics to announce; ``signed`` is its envelope, where it has one.

    Attributes:
        high_water_bytes: backlog of a partition from which it takes no more.
        disk: that of the store, where it is this machine's.
    """

    def __init__(self, settings: Settings, registry: Registry, signed: SignedRegistry | None = None) -> None:
        self._settings = settings
        self._registry, self._signed = registry, signed
        self._keys = tuple(PartitionKeys(tag) for tag in partition_tags(settings.partitions))
        self._nodes = _open(settings.store_url)
        self._trial = Trials(_in_our_words)
        replicas = settings.replicas if settings.ack == "replica" else 0
        self._lines = Lines(Replies(redis.ResponseError, redis.ConnectionError))
        rounds = Rounds(self._nodes, self._lines, replicas, self._trial, redis.exceptions.NoScriptError)
        self._admitting = Admitting(rounds)
        self._readiness = Readiness(self._nodes, self._keys, rounds, _config)
        self._fit: set[str] = set()
        self.disk = DiskFloor(settings.store_path, settings.min_free_bytes)
        self.high_water_bytes = high_water(None, settings)
        self._preparing = Lock()
        self._catalogue: Catalogue | None = None

    def close(self) -> None:
        """Close the idle connections."""
        self._lines.drop()
        self._nodes.close()

    @property
    def _redis(self) -> Any:
        """The library's client: of the server, or of the cluster as a whole."""
        return self._nodes.client

    def catalogue(self) -> Catalogue:
        """The accepted metrics, once the store has been found fit and knows them.

        The first call of a process, and the first after a call that could not reach the store, prepares it: so a
        server that was started before its store, or whose store came back as another one, checks it when it can.

        Raises:
            StoreUnavailable: it cannot be prepared now.
            StoreRefused: it must not be used.
        """
        ready = self._catalogue  # read once: another thread may withdraw it
        if ready is not None:
            return ready
        fault = self._trial.circuit(ALONE).fault()
        if fault:  # somebody finds out whether it is over: nobody waits for that one
            raise StoreUnavailable(fault)
        if not self._preparing.acquire(timeout=_PREPARE_WAIT_S):
            raise StoreUnavailable("preparing")
        try:
            with self._guard(), self._trial():
                ready = self._catalogue or self._prepare()
                self._catalogue = ready
                return ready
        finally:
            self._preparing.release()

    def _guard(self, master: str = ALONE) -> Guard:
        """Errors of the store in our words; what was lost is prepared again before it is used.

        Of a cluster that is the master alone: what lives on the others goes on.
        """
        return Guard(_in_our_words, partial(self._lose, master))

    def _lose(self, master: str, error: StoreUnavailable) -> None:
        if error.kind in LOST_KINDS:
            self._fit.discard(master)
            self._catalogue = self._catalogue if self._nodes.clustered else None
        if error.kind in ELSEWHERE_KINDS:
            self._nodes.start_over()
            self._lines.drop()

    def _prepare(self) -> Catalogue:
        masters = self._nodes.masters()
        configs = [_config(client) for client in masters.values()]
        for config in configs:
            check_config(config, self._settings)
        self.high_water_bytes = high_water(least_memory(configs), self._settings, len(masters))
        self._create()
        self._fit = set(masters)
        return Catalogue(self._registry, older_versions(self._redis, self._registry))

    def _create(self) -> None:
        for name, value in expected_meta(self._settings).items():
            self._redis.hsetnx(META_KEY, name, value)
        check_meta(text_map(self._redis.hgetall(META_KEY)), self._settings)
        announce(self._redis, self._registry, self._signed)

    def _take_up(self, master: str) -> None:
        """Check a master of a cluster that is new, or back, before it is used: it may be another server by now."""
        if not self._nodes.clustered or master in self._fit:
            return
        with self._trial(master):
            client = self._nodes.masters().get(master)
            if client is None:
                raise StoreUnavailable("connection")  # replaced a moment ago
            try:
                config = _config(client)
            except (redis.ConnectionError, redis.TimeoutError):
                self._nodes.look_again(master)
                raise
            check_config(config, self._settings)
        with suppress(StoreUnavailable), self._trial():  # what belongs on others waits until they are back
            self._create()
        self._fit.add(master)

    def _master_of(self, key: str) -> str:
        if not self._nodes.clustered:
            return ALONE
        with self._guard(), self._trial(_FINDING):
            return self._nodes.master_of(key)

    def admit(self, admission: Admission) -> Outcome:
        """Run the admit script: afterwards the batch is durable, or nothing has changed.

        Raises:
            StoreUnavailable: it is not known to be durable; the same batch may be tried again.
        """
        if not self.disk.has_room():
            raise StoreUnavailable("disk")
        keys = self._keys[partition_of(admission.batch_id, len(self._keys))]
        names, arguments = admit_call(keys, admission, self.high_water_bytes)
        master = self._master_of(keys.stream)
        with self._guard(master):
            self._take_up(master)
            return Outcome(self._admitting.run(master, (len(names), *names, *arguments)))

    def take_quota(self, key_id: str, quota: Quota, least: int, wished: int) -> Part:
        """Take a part of the quota of an ingest key; see `dither_server.quota.ask_store`.

        Raises:
            StoreUnavailable: it is not known to be taken.
        """
        master = self._master_of(quota_key(key_id, quota.period))
        with self._guard(master):
            self._take_up(master)
            with self._trial(master):
                return ask_store(self._redis, key_id, quota, least, wished)

    def published(self, name: str, selection: Selection) -> Published:
        """What is published about a metric, as far as it is asked for.

        Raises:
            StoreUnavailable: the store cannot be read now.
        """
        return self.read(lambda client, _: read_published(client, name, selection))

    def conservation(self, view: View, budget_s: float) -> Conservation:
        """What became of the reports, as far as it is asked for; see `dither_server.looking`.

        Raises:
            StoreUnavailable: nothing of the store can be read now.
        """
        return self.read(lambda client, keys: read_conservation(client, keys, view, budget_s, self._reading))

    def counting_state(self, now: datetime) -> CountingState:
        """The workers, and what waits for them at the time ``now``, aware. Raises StoreUnavailable."""
        return self.read(lambda client, keys: read_counting_state(client, keys, now))

    def read(self, reader: Callable[[Any, Sequence[PartitionKeys]], _Found]) -> _Found:
        """What a reader of another module finds, given the library's client and the keys of the partitions.

        Raises:
            StoreUnavailable: the store cannot be read now.
        """
        with self._guard():
            return reader(self._redis, self._keys)

    def memory(self) -> dict[str, Memory | None]:
        """The memory of each master by its name; None where that hides it. Raises StoreUnavailable."""
        with self._guard():
            return read_memory(self._nodes.masters(), _shown)

    @contextmanager
    def _reading(self, keys: PartitionKeys) -> Iterator[None]:
        master = self._nodes.master_of(keys.stream)
        with self._guard(master), self._trial(master):
            yield

    def failing_checks(self) -> list[str]:
        """The names of the readiness checks that fail now; empty where the store may take batches."""
        failing = [] if self.disk.has_room() else ["disk"]
        checks = self._readiness.checks(self.high_water_bytes)
        try:
            self.catalogue()
            with self._guard():
                masters = list(self._nodes.masters())
            for master in masters:
                with self._guard(master):
                    self._take_up(master)
            return failing + [name for name, check in checks.items() if not self._passes(check)]
        except StoreRefused:
            return [*failing, "store-fit"]
        except StoreUnavailable as error:  # there is no more to be learnt, and each check would wait in vain
            return [*failing, "replicas" if error.kind == "replicas" else "store-writable"]

    def _passes(self, check: Callable[[], bool]) -> bool:
        try:
            with self._guard(), self._trial():
                return check()
        except (StoreRefused, redis.RedisError):
            return False
