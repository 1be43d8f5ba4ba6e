"""The store as the server uses it: the only module here that knows Redis.

A client is thread-safe, and opens its connections when they are first used. Two errors come out of here:
`StoreUnavailable` for what may be over in a moment, `StoreRefused` for what a person has to put right.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from threading import Lock
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from dither_protocol.registry import Registry
from dither_protocol.storage import (
    META_KEY,
    PartitionKeys,
    combined_key,
    estimate_key,
    partition_of,
    partition_tags,
)
from dither_server.admission import Admission
from dither_server.admit_call import Outcome, admit_call
from dither_server.announcing import announce, definitions, older_versions
from dither_server.catalogue import Catalogue
from dither_server.group_commit import GroupCommit
from dither_server.settings import Settings
from dither_server.store_rules import (
    CONFIG_NAMES,
    Config,
    Published,
    PublishedVersion,
    StoreRefused,
    StoreUnavailable,
    check_config,
    check_meta,
    eviction_problem,
    expected_meta,
)

_CONNECT_TIMEOUT_S: Final = 1.0
_READ_TIMEOUT_S: Final = 1.0
_TRIES_AGAIN: Final = 1
_PREPARE_WAIT_S: Final = 1.0

ScriptCall = tuple[bytes | int | str, ...]
"""Number of keys, keys and arguments of one run of the admit script."""

# The replies by which a living store says "not now"; any other is a fault of ours and stays an error 500.
_NOT_NOW: Final = (
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
)
_NO_SCRIPT: Final = redis.exceptions.NoScriptError
_NOT_NOW_WORDS: Final = ("MISCONF", "BUSY", "NOREPLICAS")  # redis-py has no class for these


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except redis.TimeoutError:
        raise StoreUnavailable("timeout") from None
    except redis.AuthenticationError:  # a ConnectionError to redis-py, and nothing that waiting would cure
        raise StoreRefused("does not accept the password in DITHER_STORE_URL") from None
    except redis.ConnectionError as error:  # BusyLoadingError is one too
        kind = "loading" if isinstance(error, redis.BusyLoadingError) else "connection"
        raise StoreUnavailable(kind) from None
    except redis.ResponseError as error:
        if isinstance(error, _NOT_NOW) or str(error).startswith(_NOT_NOW_WORDS):
            raise StoreUnavailable("refusing") from None
        raise


class Store:
    """The partitions of one Redis or Valkey server.

    Args:
        settings: where it is and what is asked of it.
        registry: the metrics to announce.
    """

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._keys = tuple(PartitionKeys(tag) for tag in partition_tags(settings.partitions))
        self._redis: redis.Redis = redis.Redis.from_url(
            settings.store_url,
            socket_connect_timeout=_CONNECT_TIMEOUT_S,
            socket_timeout=_READ_TIMEOUT_S,
            retry=Retry(NoBackoff(), _TRIES_AGAIN),
        )
        self._admit_source = files("dither_server").joinpath("scripts/admit.lua").read_bytes()
        # EVALSHA names a script so
        self._admit_sha = hashlib.sha1(self._admit_source, usedforsecurity=False).hexdigest()
        self._admissions: GroupCommit[ScriptCall, Any] = GroupCommit(self._admit_all)
        self._preparing = Lock()
        self._catalogue: Catalogue | None = None

    def close(self) -> None:
        """Close the idle connections."""
        self._redis.close()

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
        if not self._preparing.acquire(timeout=_PREPARE_WAIT_S):
            raise StoreUnavailable("preparing")
        try:
            with self._guard():
                ready = self._catalogue or self._prepare()
                self._catalogue = ready
                return ready
        finally:
            self._preparing.release()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            with _store_errors():
                yield
        except StoreUnavailable as error:
            if error.kind in ("connection", "loading"):
                self._catalogue = None
            raise

    def _prepare(self) -> Catalogue:
        check_config(self._config(), self._settings)
        for name, value in expected_meta(self._settings).items():
            self._redis.hsetnx(META_KEY, name, value)
        check_meta(_text_map(self._redis.hgetall(META_KEY)), self._settings)
        announce(self._redis, self._registry)
        return Catalogue(self._registry, older_versions(self._redis, self._registry))

    def _config(self) -> Config | None:
        try:
            return _text_map(self._redis.config_get(*CONFIG_NAMES))
        except redis.exceptions.NoPermissionError:
            return None
        except redis.ResponseError as error:
            if "unknown command" in str(error).lower():  # renamed or disabled, as hosted stores do
                return None
            raise

    def admit(self, admission: Admission) -> Outcome:
        """Run the admit script: afterwards the batch is durable, or nothing has changed.

        Raises:
            StoreUnavailable: it is not known to be durable; the same batch may be tried again.
        """
        keys = self._keys[partition_of(admission.batch_id, len(self._keys))]
        names, arguments = admit_call(keys, admission, self._settings.high_water_bytes)
        with self._guard():
            return Outcome(self._admissions.submit((len(names), *names, *arguments)))

    def _admit_all(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run the admit script for each call, in one round trip; exceptions stand in the place of their results."""
        results = self._run_admit(calls)
        forgotten = [place for place, result in enumerate(results) if isinstance(result, _NO_SCRIPT)]
        if forgotten:  # those that ran are not run again: each would find itself a duplicate
            self._redis.script_load(self._admit_source)
            again = self._run_admit([calls[place] for place in forgotten])
            for place, result in zip(forgotten, again, strict=True):
                results[place] = result
        return results

    def _run_admit(self, calls: Sequence[ScriptCall]) -> list[Any]:
        with self._redis.pipeline(transaction=False) as pipe:
            for call in calls:
                pipe.execute_command("EVALSHA", self._admit_sha, *call)  # type: ignore[no-untyped-call]
            return pipe.execute(raise_on_error=False)

    def published(self, name: str, takes: Callable[[str], bool] = lambda field: True) -> Published:
        """What is published about a metric.

        Args:
            name: of the metric.
            takes: which fields are asked for; only their documents are read, whatever else there is.

        Raises:
            StoreUnavailable: the store cannot be read now.
        """
        with self._guard():
            known = definitions(self._redis, name)
            keys = [*(estimate_key(name, version) for version in known), combined_key(name)]
            with self._redis.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.hkeys(key)
                fields = [list(filter(takes, map(bytes.decode, each))) for each in pipe.execute()]
            *estimates, combined = self._documents(keys, fields)
        versions = [
            PublishedVersion(version, text, found)
            for (version, text), found in zip(known.items(), estimates, strict=True)
        ]
        return Published(versions, combined)

    def _documents(self, keys: Sequence[str], fields: Sequence[Sequence[str]]) -> list[dict[str, bytes]]:
        """The documents of some fields of each hash, in one round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for key, wanted in zip(keys, fields, strict=True):
                if wanted:
                    pipe.hmget(key, wanted)
            found = iter(pipe.execute())
        return [
            {
                field: document
                for field, document in zip(wanted, next(found) if wanted else (), strict=True)
                if document is not None  # gone since the fields were read
            }
            for wanted in fields
        ]

    def failing_checks(self) -> list[str]:
        """The names of the readiness checks that fail now; empty where the store may take batches."""
        try:
            self.catalogue()
        except StoreUnavailable:
            return ["store-writable"]
        except StoreRefused:
            return ["store-fit"]
        checks: dict[str, Callable[[], bool]] = {
            "store-writable": self._writable,
            "store-never-evicts": self._never_evicts,
            "admit-script": self._script_loads,
            "backlog": self._has_room,
        }
        return [name for name, check in checks.items() if not self._passes(check)]

    def _passes(self, check: Callable[[], bool]) -> bool:
        try:
            with self._guard():
                return check()
        except (StoreUnavailable, StoreRefused, redis.RedisError):
            return False

    def _writable(self) -> bool:
        # A write that changes nothing; a replica, a full store and one with a failing disk refuse it all the same.
        self._redis.hsetnx(META_KEY, "layout", expected_meta(self._settings)["layout"])
        return True

    def _never_evicts(self) -> bool:
        config = self._config()
        return config is None or not eviction_problem(config)

    def _script_loads(self) -> bool:
        return bool(self._redis.script_load(self._admit_source))

    def _has_room(self) -> bool:
        backlogs = [int(self._redis.get(keys.backlog) or 0) for keys in self._keys]
        return max(backlogs) < self._settings.high_water_bytes


def _text_map(found: Mapping[Any, Any]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in found.items()}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
