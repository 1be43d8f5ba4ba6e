"""What work costs, in operations of the store and bytes that it sends: by what changed, not by what is there."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest

from dither_estimator.cells import pack
from dither_estimator.definitions import Definitions
from dither_estimator.published import Draft, Place, Published
from dither_estimator.publisher import Publisher
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol.registry import Registry
from support.store import Store as Valkey
from support.worker_store import (
    PARTITIONS,
    announce,
    append_entry,
    dark_entry,
    new_worker,
    partition_keys,
    published_estimates,
    published_rollups,
)

pytestmark = pytest.mark.usefixtures("engine")

LONG_S = 200.0
FEW, MANY = 20, 200
AHEAD, BEHIND = date(2100, 1, 1), date(2020, 1, 1)
"""First days of windows that are open, and of closed ones."""


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are renewed and definitions read again by the clock; what is counted here must not depend on it."""
    monkeypatch.setattr("dither_estimator.leases.RENEW_S", 1e9)
    monkeypatch.setattr("dither_estimator.definitions.DEFINITIONS_AGE_S", 1e9)


def _count(worker: Worker) -> None:
    while worker.count():
        pass


def _publish(valkey: Valkey) -> None:
    """All that is marked, by a publisher that knows nothing yet; afterwards nothing is."""
    store = Store(valkey.url)
    store.open()
    assert not Publisher(store, Definitions(store)).publish(PARTITIONS, LONG_S)
    store.close()
    client = valkey.client()
    assert not any(client.hlen(partition_keys(partition).dirty) for partition in range(PARTITIONS))


def _label(first: date, days: int) -> str:
    return (first + timedelta(days=days)).isoformat()


def _report(valkey: Valkey, days: Sequence[int]) -> None:
    """One report about each of these days from `AHEAD` on, over the partitions; each in a batch of its own."""
    for number, each in enumerate(days):
        append_entry(valkey, number % PARTITIONS, dark_entry(1, window=_label(AHEAD, each)))


def _with_cells(valkey: Valkey, registry: Registry, cells: int) -> Worker:
    """A store with so many open cells, counted and published; the worker that counted them."""
    announce(valkey, registry)
    worker = new_worker(valkey)
    _report(valkey, range(cells))
    _count(worker)
    _publish(valkey)
    assert len(published_estimates(valkey, "dark_mode", 1)) == cells
    return worker


def _operations(valkey: Valkey, work: Callable[[], object]) -> dict[str, int]:
    """How often each command was run meanwhile, those in scripts too."""
    client = valkey.client()
    client.config_resetstat()
    work()
    ran = client.info("commandstats")
    own = {
        "cmdstat_config|resetstat",
        "cmdstat_info",
        "cmdstat_hlen",
        "cmdstat_client|setinfo",
        "cmdstat_hello",
    }
    return {name: stats["calls"] for name, stats in ran.items() if name not in own}


def test_publishing_costs_what_changed_and_not_what_is_there(valkey: Valkey, registry: Registry) -> None:
    """The same operations for ten changed cells of 20 as of 200; and each more that changed adds the same."""
    costs: dict[tuple[int, int], dict[str, int]] = {}
    for cells, changes in ((FEW, (10,)), (MANY, (10, 20, 40))):
        worker = _with_cells(valkey, registry, cells)
        for changed in changes:
            _report(valkey, range(changed))
            _count(worker)
            costs[cells, changed] = _operations(valkey, lambda: _publish(valkey))
    assert costs[FEW, 10] == costs[MANY, 10]
    ten, twenty, forty = (sum(costs[MANY, changed].values()) for changed in (10, 20, 40))
    assert forty - twenty == 2 * (twenty - ten) > 0


def test_a_round_of_counting_costs_what_waits_and_not_what_is_there(
    valkey: Valkey, registry: Registry
) -> None:
    """The same operations, whether the store has 20 cells or 200."""
    costs = []
    for cells in (FEW, MANY):
        worker = _with_cells(valkey, registry, cells)
        _report(valkey, range(10))
        costs.append(_operations(valkey, lambda worker=worker: _count(worker)))
    assert costs[0] == costs[1]


def test_a_round_with_nothing_to_do_costs_the_same_whatever_is_there(
    valkey: Valkey, registry: Registry
) -> None:
    """Of counting and of publishing."""
    costs = []
    for cells in (FEW, MANY):
        worker = _with_cells(valkey, registry, cells)
        costs.append(_operations(valkey, lambda worker=worker: (_count(worker), _publish(valkey))))
    assert costs[0] == costs[1]


def _closed(valkey: Valkey, registry: Registry, windows: int) -> None:
    """A store with so many closed windows, as they stand once published."""
    announce(valkey, registry)
    store = Store(valkey.url)
    store.open()
    metric, published = registry.metrics["dark_mode"], Published(store)
    for number in range(windows):
        window = metric.parse_window(_label(BEHIND, number))
        draft = Draft("*", 1, final=True, document={"status": "final"})
        place = Place("dark_mode", 1, window, metric.closes_at(window))
        published.publish(place, [draft], datetime.now(UTC), pack(1, np.array([0, 1])))
    store.close()


def test_a_window_that_closes_reads_its_neighbours_and_not_the_history(
    valkey: Valkey, registry: Registry
) -> None:
    """With its rollups: as many bytes after 100 closed windows as after 1,000."""
    sent = []
    for windows in (100, 1_000):
        _closed(valkey, registry, windows)
        newest = _label(BEHIND, windows)
        append_entry(valkey, 0, dark_entry(1, window=newest))
        _count(new_worker(valkey))
        client = valkey.client()
        client.config_resetstat()
        _publish(valkey)
        sent.append(client.info("stats")["total_net_output_bytes"])
        assert published_rollups(valkey, "dark_mode", 1, 90)[newest]["windows"]["with_reports"] == 90
    assert sent[1] < 1.1 * sent[0]


def test_after_an_outage_each_window_has_its_rollups_published_once(
    valkey: Valkey, registry: Registry
) -> None:
    """Whatever the order of the marks: here the latest windows were counted first."""
    written = []
    for windows in (15, 30):
        announce(valkey, registry)
        worker = new_worker(valkey)
        for number in reversed(range(windows)):
            append_entry(valkey, 0, dark_entry(1, window=_label(BEHIND, number)))
            _count(worker)
        ran = _operations(valkey, lambda: _publish(valkey))
        written.append(ran["cmdstat_hset"])
    assert written[1] == 2 * written[0]
