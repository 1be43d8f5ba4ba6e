"""What the tests of retention and of the archive share: a registry of many shapes, and days that are long over."""

from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from typing import Any

from dither_estimator.definitions import Definitions
from dither_estimator.expiry import Calendar
from dither_estimator.pruning import Pruner
from dither_estimator.retention import Retention
from dither_estimator.store import Store
from dither_protocol import storage
from dither_protocol.registry import Registry, encode_definition, registry_from_document
from dither_protocol.storage import Cell, encode_entry
from support.store import Store as Valkey
from support.worker_store import PARTITIONS, append_entry, new_worker, published_estimates

DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "project": "test-app",
    "metrics": {
        "dark_mode": {
            "version": 1,
            "type": "boolean",
            "description": "Whether the dark theme is on",
            "epsilon": 1.0,
            "mechanism": "rr",
            "late_days": 0,
            "min_reports": 1,
        },
        "browser": {
            "version": 1,
            "type": "categorical",
            "description": "Browser",
            "categories": ["a", "b", "c", "d"],
            "epsilon": 1.0,
            "mechanism": "grr",
            "late_days": 3,
            "dimensions": {"os": ["linux", "macos"], "channel": ["beta", "stable"]},
            "min_reports": 1,
        },
        "first_use": {
            "version": 1,
            "type": "boolean",
            "description": "Asked once",
            "epsilon": 1.0,
            "mechanism": "rr",
            "period": "once",
            "expires": "2026-01-31",
            "late_days": 0,
            "min_reports": 1,
        },
    },
}


LONG_AGO, RECENT = 40, 2
"""Days since a window that has expired after thirty days, and since one that has not."""

DIMENSIONS = (("channel", "beta"), ("os", "linux"))


def today() -> date:
    """By this machine's clock, which is the test store's too."""
    return datetime.now(UTC).date()


def day(days_ago: int) -> str:
    """The window of the day so many days ago."""
    return (today() - timedelta(days=days_ago)).isoformat()


def retention_registry(version: int = 1, **days: int) -> Registry:
    """The registry with ``retention_days`` for the named metrics."""
    document = deepcopy(DOCUMENT)
    for name, table in document["metrics"].items():
        table["version"] = version
        if name in days:
            table["retention_days"] = days[name]
    return registry_from_document(document)


def announce_retention(valkey: Valkey, version: int = 1, **days: int) -> Registry:
    """Announce it as a server does."""
    registry = retention_registry(version, **days)
    client = valkey.client()
    for metric in registry:
        client.set(storage.metric_key(metric.name, metric.version), encode_definition(registry, metric.name))
        client.sadd(storage.versions_key(metric.name), metric.version)
        client.sadd(storage.METRICS_KEY, metric.name)
    return registry


def index_entry(cell: Cell, *indexes: int) -> bytes:
    """A stream entry with reports of one cell whose mechanism sends indices."""
    return encode_entry([(cell.name, [index.to_bytes(4, "little") for index in indexes])])


def keys_about(valkey: Valkey, metric: str, label: str) -> set[str]:
    """Every key that is about a window, and every member or field elsewhere that is, as ``key -> member``."""
    client = valkey.client(decode=True)
    found = set()
    for key in client.keys("*"):
        parts = key.split(":")
        if metric in key and label in parts:
            found.add(key)
        kind = client.type(key)
        held = {
            "hash": client.hkeys,
            "set": client.smembers,
            "zset": lambda key: client.zrange(key, 0, -1),
        }.get(kind)
        for member in held(key) if held and not key.startswith("dither:estimate:") else ():
            if label in member.replace("|", ":").split(":") and (metric in key or metric in member):
                found.add(f"{key} -> {member}")
    return found


def dark(days_ago: int) -> Cell:
    """The cell of `dark_mode` so many days ago."""
    return Cell("dark_mode", 1, day(days_ago), ())


def browser(days_ago: int, version: int = 1) -> Cell:
    """A cell of `browser` so many days ago."""
    return Cell("browser", version, day(days_ago), DIMENSIONS)


def fill(valkey: Valkey) -> None:
    """Reports of old and new windows, counted, published and closed; nothing expires."""
    announce_retention(valkey)
    for cell in (
        dark(LONG_AGO),
        dark(RECENT),
        browser(LONG_AGO),
        browser(RECENT),
        Cell("first_use", 1, "once", ()),
    ):
        append_entry(valkey, 0, index_entry(cell, 0, 1, 1))
        append_entry(valkey, 3, index_entry(cell, 0))
    worker = new_worker(valkey)
    while worker.tick():
        pass
    assert published_estimates(valkey, "dark_mode", 1)[f"{day(LONG_AGO)}|*"]["n"] == 4


def prune(valkey: Valkey, store: Store | None = None, clock: Any = None, **arguments: Any) -> None:
    """One whole round of a worker that has all partitions."""
    store = store or Store(valkey.url)
    store.open()
    clock = clock or (lambda: datetime.now(UTC))
    retention = Retention(store, Definitions(store), clock=clock)
    arguments = {"publishing": True, "budget_s": 60.0} | arguments
    retention.prune(PARTITIONS, range(PARTITIONS), **arguments)


def partition_pruner(valkey: Valkey) -> tuple[Store, Pruner]:
    """A store, and a pruner on it."""
    store = Store(valkey.url)
    store.open()
    return store, Pruner(store, Calendar(store, Definitions(store)))


def everything(_: str, __: str) -> bool:
    """Choose every window."""
    return True
