"""What the tests of the worker share: a store as a server leaves it, entries, and what came of them."""

import json
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
    for metric in registry:
        client.set(storage.metric_key(metric.name, metric.version), encode_definition(registry, metric.name))


def partition_keys(partition: int) -> PartitionKeys:
    """The keys of one partition."""
    return PartitionKeys(partition_tags(PARTITIONS)[partition])


def append_entry(valkey: Valkey, partition: int, payload: bytes) -> None:
    """Put an entry into a partition's stream, as the admit script does."""
    client = valkey.client()
    client.xadd(partition_keys(partition).stream, {storage.ENTRY_FIELD: payload})
    client.incrby(partition_keys(partition).backlog, len(payload))


def dark_entry(*indexes: int) -> bytes:
    """An entry of reports to `dark_mode`."""
    return encode_entry([(DARK, [index.to_bytes(4, "little") for index in indexes])])


def read_cell(valkey: Valkey, partition: int, name: str = DARK) -> tuple[int, list[int]] | None:
    """(n, counters) of a stored cell; None where there is none."""
    packed = valkey.client().get(partition_keys(partition).cell(name))
    if packed is None:
        return None
    n, counters = decode_cell(packed)
    return n, list(counters)


def published_estimates(valkey: Valkey, metric: str, version: int) -> dict[str, Any]:
    """The published documents of one version, by field."""
    found = valkey.client(decode=True).hgetall(storage.estimate_key(metric, version))
    return {field: json.loads(text) for field, text in found.items() if not field.startswith("n|")}


def new_worker(valkey: Valkey) -> Worker:
    """A worker of its own connection."""
    return Worker(Store(valkey.url))
