"""The books of a service in the test's own process: sending, asking, counting, measuring between steps of others."""

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient
from redis.client import Pipeline

from dither_estimator.worker import Worker
from dither_protocol.storage import PartitionKeys, partition_tags
from dither_protocol.wire import new_batch_id
from dither_server.app import create_app
from dither_server.catalogue import Catalogue
from dither_server.conservation import Conservation, View
from dither_server.looking import look
from dither_server.measuring import measure
from support.server import INGEST_KEY, NOW, OPERATOR_KEY, Clock, batch, bearer, registry, report, settings
from support.store import Store
from support.worker_store import new_worker

PARTITIONS = 2
KEYS = tuple(PartitionKeys(tag) for tag in partition_tags(PARTITIONS))
TODAY = ("dark_mode", "2126-11-29")
LONG_S = 60.0


def service_over(valkey: Store, folder: Path) -> FlaskClient:
    """The server over the store, emptied, with `PARTITIONS` partitions, at `NOW`."""
    with valkey.client() as redis:
        redis.flushall()
    made = settings(folder, valkey.url, partitions=PARTITIONS)
    return create_app(made, clock=Clock()).test_client()


def stock(client: FlaskClient, valkey: Store) -> None:
    """Forty batches of two reports about `TODAY` and one about the day before: some counted, some in flight."""
    reports = [report(), report(), report(window="2126-11-28")]
    for _ in range(20):
        send(client, *reports)
    count_all(new_worker(valkey))
    for _ in range(20):
        send(client, *reports)
    assert imbalance_of(client) == 0


def waiting_partition(redis: Any) -> PartitionKeys:
    """One that has entries in flight."""
    return next(keys for keys in KEYS if redis.xlen(keys.stream))


def send(client: FlaskClient, *reports: object, batch_id: bytes | None = None) -> dict[str, Any]:
    """Upload a batch, which is answered 202; the answer."""
    answer = client.post("/v1/reports", json=batch(*reports, batch_id=batch_id), headers=bearer(INGEST_KEY))
    assert answer.status_code == 202
    found: dict[str, Any] = answer.json
    return found


def ledger_of(client: FlaskClient, query: str = "") -> dict[str, Any]:
    """The answer of ``GET /v1/ledger``."""
    answer = client.get("/v1/ledger" + query, headers=bearer(OPERATOR_KEY))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json
    return found


def row_of(ledger: dict[str, Any], metric: str = "dark_mode") -> dict[str, Any]:
    """The row of a metric."""
    found: dict[str, Any] = next(row for row in ledger["metrics"] if row["metric"] == metric)
    return found


def _gauge(client: FlaskClient, name: str) -> str:
    answer = client.get("/metrics", headers=bearer(OPERATOR_KEY))
    assert answer.status_code == 200
    return next(line for line in answer.text.splitlines() if line.startswith(name)).rpartition(" ")[2]


def imbalance_of(client: FlaskClient, metric: str = "dark_mode") -> int:
    """The imbalance of a metric by the ledger, with which the gauge agrees."""
    found: int = row_of(ledger_of(client), metric)["imbalance"]
    assert float(_gauge(client, f'dither_conservation_imbalance_reports{{metric="{metric}"}}')) == found
    return found


def count_all(worker: Worker) -> None:
    """Count all that waits."""
    while worker.count():
        pass


def life(client: FlaskClient, worker: Worker, draw: random.Random) -> Callable[[], None]:
    """Uploads, retries and counting, one or more at a time."""
    known = [new_batch_id()]
    windows = [f"2126-11-{day}" for day in (26, 27, 28, 29)]

    def happens() -> None:
        for _ in range(draw.randint(0, 4)):
            if draw.random() < 0.3:
                worker.count()
                continue
            if draw.random() < 0.7:
                known.append(new_batch_id())
            reports = [report(window=draw.choice(windows), data=draw.randint(0, 2)) for _ in range(5)]
            reports += [report("browser", 3)] * draw.randint(0, 2) + [{}] * draw.randint(0, 1)
            send(client, *reports, batch_id=draw.choice(known[-3:]))

    return happens


def measure_now(
    client: Any, partitions: Sequence[PartitionKeys] = KEYS, budget_s: float = LONG_S
) -> Conservation:
    """The usual view at `NOW`, through a client that may be `Interleaved`."""
    view = View.from_query({}, Catalogue(registry()), NOW)
    return measure(client, partitions, view, budget_s, lambda keys: nullcontext())


def look_now(
    client: Any, partitions: Sequence[PartitionKeys] = KEYS, budget_s: float = LONG_S
) -> Conservation:
    """A look at the whole, through a client that may be `Interleaved`."""
    return look(client, partitions, registry().metrics, budget_s, lambda keys: nullcontext())


def plant(redis: Any, keys: PartitionKeys, windows: Sequence[str], metric: str = "toolbar") -> None:
    """Accounts of ten counted reports each, and the sums of their metric with them."""
    account = {"received": 12, "accepted": 10, "counted": 10, "duplicate": 1, "rejected:payload-invalid": 1}
    with redis.pipeline(transaction=False) as pipe:
        for window in windows:
            pipe.hset(keys.outcome(metric, window), mapping=account)
            pipe.sadd(keys.outcomes, f"{metric}:{window}")
        for word, reports in account.items():
            pipe.hincrby(keys.ever(metric), word, reports * len(windows))
        pipe.execute()


class Interleaved:
    """A client of the store before each step of which something else happens.

    A pipeline that is no transaction is no single step: there something happens between any two commands.
    """

    def __init__(self, client: Any, happens: Callable[[], None]) -> None:
        self._client = client
        self._happens = happens

    def pipeline(self, transaction: bool) -> Any:
        """A pipeline before which something happens."""
        self._happens()
        return self._client.pipeline(transaction=True) if transaction else _Loose(self._client, self._happens)


class _Loose(Pipeline):
    """A pipeline of single commands."""

    def __init__(self, client: Any, happens: Callable[[], None]) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, False, None)
        self._single = client
        self._happens = happens

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run them one by one."""
        results = []
        for arguments, options in self.command_stack:
            results.append(self._single.execute_command(*arguments, **options))
            self._happens()
        return results


def cell_reports(valkey: Store) -> int:
    """What was really counted: n summed over all cells."""
    with valkey.client() as redis:
        cells = [key for keys in KEYS for key in redis.scan_iter(keys.cell("*"))]
        return sum(int.from_bytes(redis.get(key)[:8], "little") for key in cells)
