"""Growth with the number of cells, of closed windows, and of the combinations of dimensions within one window."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import numpy as np

from dither_estimator.cells import pack
from dither_estimator.published import Draft, Place, Published
from dither_estimator.store import Store as WorkerStore
from dither_estimator.worker import Worker
from dither_protocol.registry import registry_from_document
from dither_protocol.storage import estimate_field
from growth_cost import Point, cost, cost_each
from growth_parts import (
    Ground,
    check_settled,
    count_all,
    ground,
    read,
    rested_read,
    settle,
    sign_in,
    worker_peak_bytes,
)
from own_store import used_bytes

SIZES: Final = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
QUICK_SIZES: Final = (10, 100, 1_000, 3_000)
WINDOWS: Final = (10, 30, 100, 300, 1_000, 3_000, 10_000)
QUICK_WINDOWS: Final = (10, 100, 1_000)
COMBINATIONS: Final = (1, 3, 10, 30, 100, 300, 1_000)
QUICK_COMBINATIONS: Final = (1, 10, 100)
_PER_WINDOW: Final = 100
_CHANGED: Final = 10
_PER_BATCH: Final = 1_000
_D: Final = 8
_REPORT: Final = b"\3\0\0\0"


def document(combinations: int) -> dict[str, Any]:
    """A registry of one hourly question with eight answers and so many combinations of dimensions."""
    metric = {
        "version": 1,
        "type": "categorical",
        "description": "A question",
        "categories": [f"value {i}" for i in range(_D)],
        "epsilon": 1.0,
        "mechanism": "grr",
        "period": "hour",
        "late_days": 1,
        "min_reports": 1,
        "dimensions": {"place": [f"p{i}" for i in range(combinations)]},
    }
    return {"schema": 1, "project": "growth", "metrics": {"m": metric}}


def measure(cells: int) -> Iterator[Point]:
    """The costs of so many cells: hours back from now, each with up to a hundred combinations of dimensions."""
    made = document(_PER_WINDOW)
    labels = _hours(-(-cells // _PER_WINDOW))
    names = [f"m:1:{label}:place=p{i}" for label in labels for i in range(_PER_WINDOW)][-cells:]
    with ground(registry_from_document(made), made) as store:
        empty = used_bytes(store.redis)
        _admit(store, names)
        with store.worker() as worker:
            yield Point("cells/commit", cells, cost(lambda: count_all(worker), store.redis).both_s)
            yield Point("cells/store-counters", cells, used_bytes(store.redis) - empty)
            yield Point("cells/publish-all", cells, cost(lambda: settle(worker), store.redis).both_s)
        check_settled(store)
        yield Point("cells/store-memory", cells, used_bytes(store.redis) - empty)
        yield Point("cells/restart", cells, cost(lambda: _restart(store), store.redis, repeats=2).both_s)
        with store.worker() as worker:
            settle(worker)
            yield from _few(store, worker, cells, names[-_CHANGED:])
        yield from _looks(store, cells)
        _admit(store, names[-_CHANGED:])
        yield Point("cells/worker-memory", cells, worker_peak_bytes(store))


def _few(store: Ground, worker: Worker, cells: int, changed: Sequence[str]) -> Iterator[Point]:
    """What ten changed cells cost, and nothing at all."""
    counted, published = [], []
    for _ in range(5):
        _admit(store, changed)
        counted.append(cost(lambda: count_all(worker), store.redis).both_s)
        published.append(cost(lambda: settle(worker), store.redis).both_s)
        check_settled(store)
    yield Point("cells/count-few", cells, min(counted))
    yield Point("cells/publish-few", cells, min(published))
    yield Point("cells/idle-round", cells, cost(lambda: settle(worker), store.redis, repeats=5).both_s)


def _looks(store: Ground, cells: int) -> Iterator[Point]:
    client = store.application()
    sign_in(client)
    newest = _hours(1)[0]
    for name, path in (
        ("ledger", "/v1/ledger"),
        ("scrape", "/metrics"),
        ("window", f"/v1/metrics/m/estimates?from={newest}"),
        ("history", "/v1/metrics/m/estimates?dimensions=*"),
    ):
        yield Point(f"cells/{name}", cells, cost_each(partial(read, client, path)))
    yield Point("cells/metric-page", cells, rested_read(client, "/metrics/m"))


def measure_windows(windows: int) -> Iterator[Point]:
    """The cost of one more hour that closes, after so many closed ones."""
    made = document(1)
    labels = _hours(windows + 60)
    with ground(registry_from_document(made), made) as store:
        _close_all(store, labels[:windows])
        closing = []
        with store.worker() as worker:
            for label in labels[windows : windows + 4]:
                _admit(store, [f"m:1:{label}:place=p0"])
                closing.append(cost(lambda: settle(worker), store.redis).both_s)
                check_settled(store)
        yield Point("windows/close", windows, min(closing[1:]))


def measure_combinations(combinations: int) -> Iterator[Point]:
    """The cost of publishing one changed cell of a window, by how many combinations a window may have."""
    made = document(combinations)
    names = [f"m:1:{_hours(1)[0]}:place=p{i}" for i in range(combinations)]
    with ground(registry_from_document(made), made) as store, store.worker() as worker:
        _admit(store, names)
        settle(worker)
        published = []
        for _ in range(4):
            _admit(store, names[-1:])
            count_all(worker)
            published.append(cost(lambda: settle(worker), store.redis).both_s)
            check_settled(store)
        yield Point("combinations/publish-one", combinations, min(published))


def _close_all(store: Ground, labels: Sequence[str]) -> None:
    """Leave closed windows behind, as they stand once published, without the work of their rollups."""
    metric = store.registry.metrics["m"]
    connection = WorkerStore(store.url)
    connection.open()
    published = Published(connection)
    total = pack(1, np.eye(1, _D, dtype=np.int64)[0])
    for label in labels:
        window = metric.parse_window(label)
        draft = Draft(estimate_field(None), 1, final=True, document={"status": "final"})
        place = Place("m", 1, window, metric.closes_at(window))
        published.publish(place, [draft], datetime.now(UTC), total)
    connection.close()


def _hours(count: int) -> list[str]:
    """The labels of so many hours, the last of them this one."""
    now = datetime.now(UTC)
    return [(now - timedelta(hours=back)).strftime("%Y-%m-%dT%H") for back in reversed(range(count))]


def _admit(store: Ground, names: Sequence[str]) -> None:
    """One report about each cell."""
    starts = range(0, len(names), _PER_BATCH)
    store.admit([(name, [_REPORT]) for name in names[start : start + _PER_BATCH]] for start in starts)


def _restart(store: Ground) -> None:
    with store.worker() as worker:
        settle(worker)
