"""The store and the worker: bytes remembered, reports counted end to end, memory after ten million reports."""

import hashlib
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from functools import partial
from importlib.resources import files
from pathlib import Path
from time import perf_counter

import numpy as np
import redis

from dither_estimator.store import Store as WorkerStore
from dither_estimator.worker import Worker
from dither_fleet import randomize_many
from dither_protocol import mechanism
from dither_protocol.registry import Registry, parse_registry
from dither_protocol.storage import PartitionKeys, encode_entry, partition_tags
from dither_server.admission import Admission
from dither_server.admit_call import admit_call
from dither_server.settings import Settings
from dither_server.store import Store as ServerStore
from harness import ANY_MACHINE, Case, Row, beside
from own_store import own_store, used_bytes
from yardsticks import PYTHON, python_loop

_IDS = 200_000
_CELLS = 2_000
_MECHANISMS = (("grr", 16), ("oue", 128), ("projective", 128), ("olh", 1024))
_REPORTS = 500_000
_PER_BATCH = 20
_MANY = 10_000_000
_PER_LARGE_BATCH = 1_000
_PARTITIONS = 8
_WINDOW = "2100-01-01"
_UNTIL = date(2100, 1, 4)


def cases() -> Iterator[Case]:
    """What the store remembers, how fast the worker empties a stream: guarded. Then ten million reports."""
    yield Case("store", _size_rows, guarded=True)
    for name, d in _MECHANISMS:
        yield Case("store", partial(_worker_rows, name, d), guarded=True)
    yield Case("store", _ten_million)


def _size_rows() -> Iterator[Row]:
    sizes = [
        ("store bytes per batch id", _bytes_per_id(), 72),
        ("store bytes per waiting batch of 10 reports", _bytes_per_waiting(), None),
        *((f"store bytes per cell, {d} counters", _bytes_per_cell(d), None) for d in (16, 128, 1024)),
    ]
    for name, size, target in sizes:
        yield Row(name, size, "B", target, higher_is_better=False, over=1.0, yardstick=ANY_MACHINE)


def _worker_rows(name: str, d: int) -> Iterator[Row]:
    rate = _worker_rate(name, d)
    loop = beside(python_loop, python_loop)[0]
    title = f"worker reports/s, stream to counters, {name} d={d}"
    yield Row(title, rate, "1/s", over=1 / loop, yardstick=PYTHON)


def _registry(name: str, d: int) -> Registry:
    labels = ", ".join(f'"v{i}"' for i in range(d))
    return parse_registry(
        f'schema = 1\nproject = "bench"\n[metrics.m]\nversion = 1\ntype = "categorical"\ndescription = "d"\n'
        f'epsilon = 1.0\nmechanism = "{name}"\ncategories = [{labels}]\n'
    )


def _prepared(url: str, registry: Registry) -> redis.Redis:
    """A store in which a server has announced the registry."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            store_url=url, registry=Path(folder), keys_file=Path(folder), partitions=_PARTITIONS, ack="memory"
        )
        server = ServerStore(settings, registry)
        server.catalogue()
        server.close()
    return redis.Redis.from_url(url)


def _admit_all(client: redis.Redis, entries: Sequence[bytes]) -> None:
    """Run the admit script once per entry, each under an id of its own; round robin over the partitions."""
    source = files("dither_server").joinpath("scripts/admit.lua").read_bytes()
    client.script_load(source)
    sha = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    keys = [PartitionKeys(tag) for tag in partition_tags(_PARTITIONS)]
    pipe = client.pipeline(transaction=False)
    for place, entry in enumerate(entries):
        until = _UNTIL + timedelta(days=place % 3)
        outcomes = {("m", _WINDOW): {"received": 1, "accepted": 1}}
        admission = Admission(os.urandom(16), until, 1, (), entry, outcomes)
        names, arguments = admit_call(keys[place % _PARTITIONS], admission, 2**40)
        pipe.execute_command("EVALSHA", sha, len(names), *names, *arguments)
        if place % 1_000 == 999:
            pipe.execute()
    pipe.execute()


def _bytes_per_id() -> float:
    with own_store(fsync="everysec") as url:
        client = _prepared(url, _registry("grr", 2))
        _admit_all(client, [b""] * 100)  # so that every key is there
        before = used_bytes(client)
        _admit_all(client, [b""] * _IDS)
        return (used_bytes(client) - before) / _IDS


def _bytes_per_waiting() -> float:
    """A batch in the stream, its id included: ten reports of 8 bytes or less about one cell."""
    entries = _entries("grr", 16, 10 * _IDS, 10)
    with own_store(fsync="everysec") as url:
        client = _prepared(url, _registry("grr", 16))
        _admit_all(client, entries[:100])
        before = used_bytes(client)
        _admit_all(client, entries)
        return (used_bytes(client) - before) / len(entries)


def _bytes_per_cell(d: int) -> float:
    with own_store(fsync="everysec") as url, redis.Redis.from_url(url) as client:
        keys = PartitionKeys(partition_tags(_PARTITIONS)[0])
        before = used_bytes(client)
        packed = struct.pack(f"<{d + 1}q", *range(d + 1))
        for place in range(_CELLS):
            client.set(keys.cell(f"default_browser:1:2100-01-{place:05d}:os=linux"), packed)
        return (used_bytes(client) - before) / _CELLS


def _entries(name: str, d: int, reports: int, per_batch: int) -> list[bytes]:
    """Stream entries of real reports; the same thousand batches over and over."""
    oracle = mechanism(name, 1.0, d)
    batches = min(1_000, reports // per_batch)
    values = np.random.default_rng(1).integers(0, d, batches * per_batch)
    packed = [oracle.pack(data) for data in randomize_many(oracle, values)]
    cell = f"m:1:{_WINDOW}:"
    made = [
        encode_entry([(cell, packed[start : start + per_batch])])
        for start in range(0, len(packed), per_batch)
    ]
    return [made[place % len(made)] for place in range(reports // per_batch)]


def _worker_rate(name: str, d: int) -> float:
    """Reports per second from the stream to the counters, with every commit on disk before the next."""
    with own_store() as url:
        client = _prepared(url, _registry(name, d))
        _admit_all(client, _entries(name, d, _REPORTS, _PER_BATCH))
        return _REPORTS / _drain_s(url)


def _drain_s(url: str) -> float:
    store = WorkerStore(url)
    worker = Worker(store)
    began = perf_counter()
    while worker.count():
        pass
    elapsed = perf_counter() - began
    store.close()
    return elapsed


def _ten_million() -> Iterator[Row]:
    """Ten million reports, drained every million: what is left in the store beyond the ids and the cell."""
    entries = _entries("grr", 16, _MANY // 10, _PER_LARGE_BATCH)
    with own_store(fsync="everysec") as url:
        client = _prepared(url, _registry("grr", 16))
        sizes = []
        for _ in range(10):
            _admit_all(client, entries)
            _drain_s(url)
            seen = sum(client.memory_usage(key, samples=0) for key in client.scan_iter("dither:{*}:seen:*"))
            sizes.append(used_bytes(client) - seen)
        left = sum(client.xlen(key) for key in client.scan_iter("dither:{*}:stream"))
    yield Row("store entries left after 10 million reports", left, "entries", higher_is_better=False)
    yield Row(
        "store growth without ids, 1 to 10 million reports", sizes[-1] - sizes[0], "B", higher_is_better=False
    )
