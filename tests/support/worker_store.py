"""What the tests of the worker share: a store as a server leaves it, entries, and what came of them."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol import storage
from dither_protocol.registry import Registry, encode_definition
from dither_protocol.storage import Cell, PartitionKeys, decode_cell, encode_entry, partition_tags
from support.store import Store as Valkey

PARTITIONS = 4
DAY = "2026-11-29"
DARK = Cell("dark_mode", 1, DAY, ()).name


def announce(valkey: Valkey, registry: Registry) -> None:
    """Empty the store, and leave it as a server that knows this registry does."""
    client = valkey.client()
    client.flushall()
    client.hset(storage.META_KEY, mapping={"partitions": PARTITIONS, "layout": storage.LAYOUT})
    announce_again(valkey, registry)


def announce_again(valkey: Valkey, registry: Registry) -> None:
    """Write the definitions of a registry over those that are there, as a server's restart does."""
    client = valkey.client()
    for metric in registry:
        client.set(storage.metric_key(metric.name, metric.version), encode_definition(registry, metric.name))
        client.sadd(storage.versions_key(metric.name), metric.version)
        client.sadd(storage.METRICS_KEY, metric.name)


class TimedStore(Store):
    """A store whose watermark stands as if its clock were ``ahead`` by so much."""

    ahead = timedelta()

    def watermark(self, partition: int) -> int:
        """The store's own, moved."""
        return super().watermark(partition) + int(self.ahead.total_seconds() * 1000)


class Killed(BaseException):
    """What ends a worker at once, as SIGKILL does: nothing handles it."""


class MortalStore(TimedStore):
    """A store that ends its worker after ``left`` more writes of publishing."""

    left = 1_000_000

    def _write(self) -> None:
        if not self.left:
            raise Killed
        self.left -= 1

    def run(self, script: str, *arguments: Any) -> Any:
        """Reading ends nobody."""
        if script in ("publish", "close"):
            self._write()
        return super().run(script, *arguments)

    def clean(self, partition: int, marks: Iterable[tuple[str, bytes]]) -> None:
        """A call without marks writes nothing."""
        marks = list(marks)
        if marks:
            self._write()
        super().clean(partition, marks)


def day(days: int = 0) -> str:
    """The label of a day, so many after today by UTC."""
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


def partition_keys(partition: int) -> PartitionKeys:
    """The keys of one partition."""
    return PartitionKeys(partition_tags(PARTITIONS)[partition])


def append_entry(valkey: Valkey, partition: int, payload: bytes) -> None:
    """Put an entry into a partition's stream, as the admit script does."""
    client = valkey.client()
    client.xadd(partition_keys(partition).stream, {storage.ENTRY_FIELD: payload})
    client.incrby(partition_keys(partition).backlog, len(payload))


def dark_entry(*indexes: int, window: str = DAY) -> bytes:
    """An entry of reports to `dark_mode`."""
    name = Cell("dark_mode", 1, window, ()).name
    return encode_entry([(name, [index.to_bytes(4, "little") for index in indexes])])


def read_cell(valkey: Valkey, partition: int, name: str = DARK) -> tuple[int, list[int]] | None:
    """(n, counters) of a stored cell; None where there is none."""
    packed = valkey.client().get(partition_keys(partition).cell(name))
    if packed is None:
        return None
    n, counters = decode_cell(packed)
    return n, list(counters)


def published_estimates(valkey: Valkey, metric: str, version: int | str) -> dict[str, Any]:
    """The published documents of one version, or of `storage.COMBINED`, by ``window|field``."""
    client = valkey.client(decode=True)
    documents = {}
    for member in client.zrange(storage.published_key(metric), 0, -1):
        place, window = storage.parse_published_member(member)
        if place == str(version):
            found = client.hgetall(storage.estimates_key(metric, version, window))
            own = storage.companion_field("")
            documents |= {f"{window}|{f}": json.loads(t) for f, t in found.items() if not f.startswith(own)}
    return documents


def published_rollups(valkey: Valkey, metric: str, version: int | str, windows: int) -> dict[str, Any]:
    """The published documents over so many windows, by the label of the last one."""
    found = valkey.client(decode=True).hgetall(storage.rollups_key(metric, version, windows))
    own = storage.companion_field("")
    return {label: json.loads(text) for label, text in found.items() if not label.startswith(own)}


def new_worker(valkey: Valkey) -> Worker:
    """A worker of its own connection."""
    return Worker(Store(valkey.url))
