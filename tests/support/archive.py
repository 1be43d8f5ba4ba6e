"""What the tests of the archive share: every shape of report, and what an archive and a store say about them.

As a program it is a worker that ends itself, as kill -9 would, at one step of archiving::

    python archive.py URL FOLDER STEP
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dither_estimator import archive_file
from dither_estimator.archive import Archive
from dither_estimator.archive_claim import Claims
from dither_estimator.archive_folder import Folder
from dither_estimator.counting import count_packed
from dither_estimator.definitions import Definitions
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_fleet import randomize_many
from dither_protocol import storage
from dither_protocol.registry import Registry, encode_definition, registry_from_document
from dither_protocol.storage import Cell, PartitionKeys, decode_cell, encode_entry, partition_tags
from support.store import Store as Valkey

SHAPES = {"grr": 4, "oue": 20, "olh": 50, "hadamard": 30, "projective": 40}
"""A mechanism of each shape of report, with its number of values."""

PARTITIONS = 2
KEYS = [PartitionKeys(tag) for tag in partition_tags(PARTITIONS)]

STEPS = ("claimed", "writing", "written", "committed", "revealed")
"""Where the program ends: in this order during a step of archiving."""

Counted = dict[str, tuple[int, list[int]]]
"""By name of the cell: n and counters."""


def shapes() -> Registry:
    """A metric for each shape, named for its mechanism; `oue` has dimensions."""
    metrics = {
        name: {
            "version": 1,
            "type": "categorical",
            "description": name,
            "categories": [f"v{number}" for number in range(d)],
            "epsilon": 1.0,
            "mechanism": name,
            "min_reports": 1,
        }
        for name, d in SHAPES.items()
    }
    metrics["oue"]["dimensions"] = {"os": ["linux", "mac os, 26"]}
    return registry_from_document({"schema": 1, "project": "test-app", "metrics": metrics})


def announce_shapes(client: Any) -> Registry:
    """Empty the store, and leave it as a server that knows `shapes` does."""
    registry = shapes()
    client.flushall()
    client.hset(storage.META_KEY, mapping={"partitions": PARTITIONS, "layout": storage.LAYOUT})
    for metric in registry:
        client.set(storage.metric_key(metric.name, metric.version), encode_definition(registry, metric.name))
        client.sadd(storage.versions_key(metric.name), metric.version)
        client.sadd(storage.METRICS_KEY, metric.name)
    return registry


def entries(registry: Registry, batches: int, seed: int = 0, label: str = "2026-11-29") -> list[bytes]:
    """Stream entries of one batch each, with two reports to every metric."""
    draw = np.random.default_rng(seed)
    packed = {
        metric.name: [
            metric.mechanism.pack(data)
            for data in randomize_many(metric.mechanism, draw.integers(0, 4, 2 * batches))
        ]
        for metric in registry
    }
    found = []
    for batch in range(batches):
        groups = []
        for metric in registry:
            values = metric.dimensions.get("os", ())
            dimensions = (("os", values[batch % len(values)]),) if values else ()
            cell = Cell(metric.name, metric.version, label, dimensions)
            groups.append((cell.name, packed[metric.name][2 * batch : 2 * batch + 2]))
        found.append(encode_entry(groups))
    return found


def stored(client: Any) -> Counted:
    """What the cells of a store hold, summed over the partitions."""
    found: Counted = {}
    for keys in KEYS:
        prefix = keys.cell("")
        for key in client.keys(prefix.replace("[", r"\[") + "*"):
            n, counters = decode_cell(client.get(key))
            _add(found, key.decode().removeprefix(prefix), n, counters)
    return found


def archived(folder: Path, registry: Registry) -> Counted:
    """The same from the rows of an archive, by the estimator's own counting."""
    found: Counted = {}
    for path in sorted(folder.glob("*.parquet")):
        for part in archive_file.read(path):
            metric = registry.metric(part.key.metric)
            assert part.key.params == metric.params_hash
            dimensions = tuple(sorted(part.dimensions.items()))
            cell = Cell(metric.name, part.key.version, part.key.window, dimensions)
            counters, n = count_packed(metric.mechanism, part.packed(metric.mechanism))
            _add(found, cell.name, n, counters.tolist())
    return found


def append(valkey: Valkey, payloads: list[bytes]) -> None:
    """Put entries into the streams in turn, as the admit script does."""
    for number, payload in enumerate(payloads):
        with valkey.client().pipeline(transaction=True) as pipe:
            pipe.xadd(KEYS[number % PARTITIONS].stream, {storage.ENTRY_FIELD: payload})
            pipe.incrby(KEYS[number % PARTITIONS].backlog, len(payload))
            pipe.execute()


def archiving_worker(valkey: Valkey, folder: Path) -> Worker:
    """A worker of its own connection, in the place of the one before."""
    return Worker(Store(valkey.url), archive=folder)


def finish(worker: Worker) -> None:
    """Count everything and archive everything."""
    while worker.count():
        pass
    while worker.archive(at_once=True):
        pass


def left(valkey: Valkey) -> list[tuple[int, int]]:
    """(entries in the stream, bytes of the backlog) of each partition."""
    client = valkey.client()
    return [(client.xlen(keys.stream), int(client.get(keys.backlog) or 0)) for keys in KEYS]


def plain_archive(valkey: Valkey, folder: Path, store: Store | None = None) -> Archive:
    """An archive without a worker."""
    store = store or Store(valkey.url)
    store.open()
    return Archive(store, Definitions(store), Folder(folder), archive_file.write)


def _add(found: Counted, name: str, n: int, counters: Sequence[int]) -> None:
    before = found.get(name, (0, [0] * len(counters)))
    found[name] = before[0] + n, [a + b for a, b in zip(before[1], counters, strict=True)]


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _then_die(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> None:
        function(*arguments, **options)
        _die()

    return run


def _write_half(groups: Any, file: Any) -> None:
    """The beginning of a file, on the disk."""
    file.write(b"PAR1 and then nothing")
    file.flush()
    os.fsync(file.fileno())
    _die()


def _reveal(self: Folder, name: Any, original: Any = Folder.reveal) -> None:
    there = (self.path / ".unfinished" / name.unfinished).exists()
    original(self, name)
    if there:
        _die()


_PATCHES: Mapping[str, Callable[[], None]] = {
    "claimed": lambda: setattr(Claims, "claim", _then_die(Claims.claim)),
    "writing": lambda: setattr(archive_file, "write", _write_half),
    "written": lambda: setattr(Claims, "trim", _die),
    "committed": lambda: setattr(Claims, "trim", _then_die(Claims.trim)),
    "revealed": lambda: setattr(Folder, "reveal", _reveal),
}


def main(url: str, folder: str, step: str) -> None:
    """Count everything, archive everything, and end at the step."""
    _PATCHES[step]()
    worker = Worker(Store(url), archive=Path(folder))
    while worker.count():
        pass
    while worker.archive(at_once=True):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
