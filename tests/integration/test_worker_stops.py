"""The worker as a process: it stops for faults that are not the entries', in time, and loses nothing by it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product

import pytest

from dither_estimator.poison import NOBODY
from dither_estimator.store import Commit, Store
from dither_estimator.worker import EXIT_CONFIG, EXIT_OK, Worker
from dither_protocol import storage
from dither_protocol.errors import RegistryError, StorageError
from dither_protocol.registry import encode_definition, registry_from_document
from dither_protocol.storage import Cell, PartitionKeys, encode_entry, partition_tags
from support.registries import small_registry
from support.store import Store as Valkey
from support.store import running_store

pytestmark = pytest.mark.usefixtures("engine")

HANG_LIMIT_S = 60
DAY = "2026-11-29"
DARK = Cell("dark_mode", 1, DAY, ()).name
KEYS = PartitionKeys(partition_tags(1)[0])
DEFINITION = storage.metric_key("dark_mode", 1)
RESTARTS = 6  # a supervisor's; three deaths are enough to halve a run, three more to set an entry aside
FULL = 2**63 - 1


@pytest.fixture(scope="module")
def server(engine: str) -> Iterator[Valkey]:
    """One server for the module."""
    with running_store(maxmemory="1gb") as store:
        yield store


@pytest.fixture
def valkey(server: Valkey) -> Valkey:
    """Emptied, with one partition, and the small registry announced."""
    client = server.client()
    client.flushall()
    client.hset(storage.META_KEY, mapping={"partitions": 1, "layout": storage.LAYOUT})
    registry = small_registry()
    for metric in registry:
        client.set(storage.metric_key(metric.name, metric.version), encode_definition(registry, metric.name))
    return server


def _append(valkey: Valkey, payload: bytes) -> None:
    valkey.client().xadd(KEYS.stream, {storage.ENTRY_FIELD: payload})
    valkey.client().incrby(KEYS.backlog, len(payload))


def _dark(*indexes: int) -> bytes:
    return encode_entry([(DARK, [index.to_bytes(4, "little") for index in indexes])])


def _start(valkey: Valkey) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "DITHER_STORE_URL": valkey.url}
    command = [sys.executable, "-m", "dither_estimator.worker"]
    return subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)


def _cell_n(valkey: Valkey) -> int:
    packed = valkey.client().get(KEYS.cell(DARK))
    return storage.decode_cell(packed)[0] if packed else 0


def test_a_definition_of_another_meaning_makes_no_poison(valkey: Valkey) -> None:
    """Restarted again and again by a supervisor, a worker that stops in order sets nothing aside (A2)."""
    client = valkey.client()
    right = client.get(DEFINITION)
    client.set(DEFINITION, json.dumps(json.loads(right) | {"params": "0" * 32}))
    _append(valkey, _dark(1, 0))
    for _ in range(RESTARTS):
        assert _start(valkey).wait(HANG_LIMIT_S) == EXIT_CONFIG
    assert (client.xlen(KEYS.dead), client.xlen(KEYS.stream)) == (0, 1)
    client.set(DEFINITION, right)
    Worker(Store(valkey.url)).tick()
    assert (_cell_n(valkey), client.xlen(KEYS.stream), client.xlen(KEYS.dead)) == (2, 0, 0)


class _Faulty(Store):
    def apply(self, partition: int, commit: Commit) -> bool:
        raise RuntimeError("a fault of the program")


@pytest.mark.parametrize(
    ("cell", "store", "error"),
    [
        (b"damaged", Store, StorageError),
        (storage.encode_cell(FULL, [0, FULL]), Store, StorageError),
        (None, _Faulty, RuntimeError),
    ],
    ids=["damaged cell", "full counter", "fault of the program"],
)
def test_an_exception_while_counting_makes_no_poison(
    valkey: Valkey, cell: bytes | None, store: type[Store], error: type[Exception]
) -> None:
    """A damaged cell, a counter that is full, a fault of the program: each try is taken back (A2)."""
    if cell is not None:
        valkey.client().set(KEYS.cell(DARK), cell)
    for _ in range(3):
        _append(valkey, _dark(1))
    for _ in range(12):
        with pytest.raises(error):
            Worker(store(valkey.url)).tick()
    assert (valkey.client().xlen(KEYS.dead), valkey.client().xlen(KEYS.stream)) == (0, 3)
    valkey.client().delete(KEYS.cell(DARK))
    Worker(Store(valkey.url)).tick()
    assert (_cell_n(valkey), valkey.client().xlen(KEYS.stream)) == (3, 0)


def test_deaths_that_came_before_a_handled_fault_still_count(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking a try back puts the earlier tries in its place."""
    _append(valkey, _dark(1))

    def deadly(decoded: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("dither_estimator.worker.tally", deadly)
        for _ in range(2):
            with pytest.raises(SystemExit):
                Worker(Store(valkey.url)).tick()
    assert valkey.client().get(KEYS.attempt).startswith(b" 1 2 worker/")
    for _ in range(2):
        with pytest.raises(RuntimeError):
            Worker(_Faulty(valkey.url)).tick()
        assert valkey.client().get(KEYS.attempt) == f" 1 2 {NOBODY}".encode()


def test_nobody_takes_back_the_attempt_of_another(valkey: Valkey) -> None:
    """Two workers on one partition: the later note stays."""
    store = Store(valkey.url)
    store.open()
    store.note_attempt(0, "5-0 3 1")
    store.note_attempt(0, "5-0 3 2")
    store.take_back_attempt(0, "5-0 3 1", "")
    assert store.attempt(0) == "5-0 3 2"
    store.take_back_attempt(0, "5-0 3 2", "")
    assert store.attempt(0) == ""


def test_a_full_store_drains_and_its_estimates_follow(
    valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """Above maxmemory entries are counted to the last; estimates wait until there is room (A1, A3)."""
    reports = [index.to_bytes(4, "little") for index in (0, 1)] * 500
    for _ in range(500):
        _append(valkey, encode_entry([(DARK, reports)]))
    client = valkey.client()
    client.config_set("maxmemory", "1mb")
    try:
        worker = Worker(Store(valkey.url))
        for _ in range(5):
            worker.tick()
        assert (client.xlen(KEYS.stream), client.xlen(KEYS.dead), _cell_n(valkey)) == (0, 0, 500_000)
        assert client.get(KEYS.backlog) == b"0"
        client.config_set("maxmemory", "1")
        _append_when_full(valkey)
        assert worker.tick() is False
        assert (client.xlen(KEYS.stream), _cell_n(valkey)) == (0, 500_001)
        assert list(client.hgetall(KEYS.dirty)) == [DARK.encode()]
    finally:
        client.config_set("maxmemory", "1gb")
    assert caplog.text.count("the store is full") == 1
    worker.tick()
    assert client.hlen(KEYS.dirty) == 0
    companion = client.hget(storage.estimates_key("dark_mode", 1, DAY), storage.companion_field("*"))
    assert companion.startswith(b"500001 ")


def _append_when_full(valkey: Valkey) -> None:
    """One more entry, as if it had been admitted just before the store was full."""
    script = "#!lua flags=allow-oom\nredis.call('XADD', KEYS[1], '*', 'b', ARGV[1])"
    valkey.client().eval(script, 1, KEYS.stream, _dark(1))
    script = "#!lua flags=allow-oom\nredis.call('INCRBY', KEYS[1], ARGV[1])"
    valkey.client().eval(script, 1, KEYS.backlog, len(_dark(1)))


VALUES = 1_024
DIMENSIONS = {name: [f"{name}{number}" for number in range(10)] for name in "abc"}


def _announce_big(valkey: Valkey) -> list[str]:
    """A metric of 1,024 values by 1,000 cells; the names of its cells on one day."""
    table = {
        "version": 1,
        "type": "categorical",
        "description": "Big",
        "categories": [f"v{number}" for number in range(VALUES)],
        "epsilon": 1.0,
        "mechanism": "oue",
        "dimensions": DIMENSIONS,
        "min_reports": 1,
    }
    registry = registry_from_document({"schema": 1, "project": "test-app", "metrics": {"big": table}})
    valkey.client().set(storage.metric_key("big", 1), encode_definition(registry, "big"))
    valkey.client().sadd(storage.versions_key("big"), 1)
    combinations = product(*DIMENSIONS.values())
    return [Cell("big", 1, DAY, tuple(zip("abc", each, strict=True))).name for each in combinations]


def _fill_big(valkey: Valkey) -> list[str]:
    """Each of its cells with 2,000 reports, none of them published."""
    names = _announce_big(valkey)
    packed = storage.encode_cell(2_000, range(VALUES))
    valkey.client().mset({KEYS.cell(name): packed for name in names})
    valkey.client().hset(KEYS.dirty, mapping=dict.fromkeys(names, "5-0"))
    return names


def test_a_worker_that_is_told_to_stop_while_it_publishes_stops(valkey: Valkey) -> None:
    """SIGTERM with hundreds of cells to publish: it ends within seconds, and the next start goes on (A4)."""
    names = _fill_big(valkey)
    client = valkey.client()
    process = _start(valkey)
    deadline = time.monotonic() + HANG_LIMIT_S
    while client.hlen(KEYS.dirty) == len(names) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    _append(valkey, _dark(1))
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_LIMIT_S) == EXIT_OK
    left = client.hlen(KEYS.dirty)
    assert 0 < left < len(names)
    assert (_cell_n(valkey), client.xlen(KEYS.stream)) == (1, 0)
    worker = Worker(Store(valkey.url))
    deadline = time.monotonic() + HANG_LIMIT_S
    while client.hlen(KEYS.dirty) == left and time.monotonic() < deadline:
        assert worker.tick() is True
    assert 0 < client.hlen(KEYS.dirty) < left


def test_entries_are_counted_while_cells_wait_to_be_published(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no time for publishing at all a tick still takes one step of it, after it has counted (A4)."""
    monkeypatch.setattr("dither_estimator.worker.PUBLISH_BUDGET_S", 0.0)
    names = _fill_big(valkey)
    valkey.client().hset(KEYS.dirty, names[7], "4-0")
    worker = Worker(Store(valkey.url))
    client = valkey.client(decode=True)
    published: list[set[str]] = [set()]
    for number in range(20):
        _append(valkey, _dark(1))
        assert worker.tick() is True
        assert _cell_n(valkey) == number + 1
        fields = client.hkeys(storage.estimates_key("big", 1, DAY))
        found = set(fields) - set(map(storage.companion_field, fields))
        if found != published[-1]:
            published.append(found)
    oldest = storage.estimate_field(storage.parse_cell(names[7]).dimensions)
    assert published[1] == {"*"}
    assert oldest in published[2]
    assert 10 < len(published[-1]) < 20


def test_a_commit_is_cut_by_the_size_of_its_cells(valkey: Valkey) -> None:
    """A thousand batches to as many cells of 8 KiB: no apply carries more than 8 MiB, and all are counted (A3)."""
    carried: list[int] = []

    class Watched(Store):
        def apply(self, partition: int, commit: Commit) -> bool:
            dead = sum(len(payload) for _, _, payload in commit.dead_entries)
            carried.append(sum(map(len, commit.cells.values())) + dead)
            return super().apply(partition, commit)

    names = _announce_big(valkey)
    report = bytes(VALUES // 8)
    for name in names:
        _append(valkey, encode_entry([(name, [report])]))
    worker = Worker(Watched(valkey.url))
    while worker.count():
        pass
    assert max(carried) <= 8 << 20
    assert sum(carried) == len(names) * 8 * (VALUES + 1)
    assert len(carried) > 1
    counted = valkey.client().hget(KEYS.outcome("big", DAY), "counted")
    assert counted == b"1000"


def test_a_definition_that_cannot_be_read_is_no_error_of_the_note(valkey: Valkey) -> None:
    """Definitions are looked up before anything is noted: there is no attempt to take back (A2)."""
    valkey.client().set(DEFINITION, b"{damaged")
    _append(valkey, _dark(1))
    with pytest.raises(RegistryError):
        Worker(Store(valkey.url)).tick()
    assert valkey.client().exists(KEYS.attempt) == 0
