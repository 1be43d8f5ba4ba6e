"""Two publishers at once, step by step in any order: what stands in the end is what one alone would have published."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from dither_estimator.definitions import Definitions
from dither_estimator.publisher import Publisher
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol import storage
from dither_protocol.registry import registry_from_document
from dither_protocol.storage import COMBINED, ROLLUPS, Cell, encode_entry
from support.registries import COLORS
from support.store import Store as Valkey
from support.worker_store import (
    PARTITIONS,
    announce,
    announce_again,
    append_entry,
    day,
    partition_keys,
    published_estimates,
    published_rollups,
)

pytestmark = pytest.mark.usefixtures("engine")

SYSTEMS = ("linux", "macos")
REPORTS = {1: b"\x05", 2: b"\x02\0\0\0"}  # by oue, by grr
AGES = (8, 0, 9)  # the second window is open, the others are closed
KINDS = ("estimate", "rollup", "totals", "published", "open")


def _registry(version: int, mechanism: str) -> Any:
    table = {
        "version": version,
        "type": "categorical",
        "description": "Shade",
        "categories": COLORS,
        "epsilon": float(version),
        "mechanism": mechanism,
        "dimensions": {"os": list(SYSTEMS)},
        "min_reports": 2,
    }
    return registry_from_document({"schema": 1, "project": "p", "metrics": {"shade": table}})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits."""
    monkeypatch.setattr("dither_estimator.publisher.CLOSING_INTERVAL_S", 0.0)
    monkeypatch.setattr("dither_estimator.faults.HOLD_S", 0.0)


def _cells() -> Iterator[Cell]:
    for version in REPORTS:
        for age in AGES:
            for system in SYSTEMS:
                yield Cell("shade", version, day(-age), (("os", system),))


def _publisher(valkey: Valkey) -> Publisher:
    store = Store(valkey.url)
    store.open()
    return Publisher(store, Definitions(store))


def _state(valkey: Valkey) -> dict[str, Any]:
    """Everything that is published, without when and how often it was."""
    found: dict[str, Any] = {}
    for version in (1, 2, COMBINED):
        found |= {f"{version} {f}": d for f, d in published_estimates(valkey, "shade", version).items()}
        for size in ROLLUPS:
            rollups = published_rollups(valkey, "shade", version, size)
            found |= {f"{version} {size} {label}": document for label, document in rollups.items()}
    for document in found.values():
        del document["revision"], document["watermark"]
    return found | {"open": valkey.client().zrange(storage.open_key("shade"), 0, -1, withscores=True)}


def _published_anew(valkey: Valkey) -> dict[str, Any]:
    """What one publisher makes of the cells, alone and from nothing."""
    client = valkey.client()
    for kind in KINDS:
        for key in client.keys(f"dither:{kind}:*"):
            client.delete(key)
    for cell in _cells():
        for partition in range(PARTITIONS):
            if client.exists(partition_keys(partition).cell(cell.name)):
                client.hset(partition_keys(partition).dirty, cell.name, "1-0")
    _publisher(valkey).publish(PARTITIONS, 60)
    return _state(valkey)


def _history(valkey: Valkey, chance: random.Random) -> None:
    """Steps of two publishers in any order, reports counted in between, one of them begun anew now and then."""
    announce(valkey, _registry(1, "oue"))
    announce_again(valkey, _registry(2, "grr"))
    cells = list(_cells())[: chance.choice((1, 2, 4, 12))]
    counting = Worker(Store(valkey.url))
    publishers = [_publisher(valkey) for _ in range(2)]
    for _ in range(chance.choice((15, 30, 60))):
        what = chance.random()
        if what < 0.2:
            cell = chance.choice(cells)
            payload = encode_entry([(cell.name, [REPORTS[cell.version]] * chance.randint(1, 3))])
            append_entry(valkey, chance.randrange(PARTITIONS), payload)
            counting.count()
        elif what < 0.23:
            publishers[chance.randrange(2)] = _publisher(valkey)  # the other one died
        else:
            publishers[chance.randrange(2)].publish(PARTITIONS, 0.0)
    for publisher in publishers:
        publisher.publish(PARTITIONS, 60)


def test_two_publishers_leave_what_one_alone_would(valkey: Valkey) -> None:
    """Ten histories of them: all is published, from all reports, and no mark is left."""
    chance = random.Random(0)  # noqa: S311  an order of steps
    for number in range(10):
        _history(valkey, chance)
        state = _state(valkey)
        assert all(valkey.client().hlen(partition_keys(p).dirty) == 0 for p in range(PARTITIONS))
        assert state == _published_anew(valkey), f"history {number}"
