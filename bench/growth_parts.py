"""What the measurements of growth share: a store of their own with a server's settings over it, workers and requests.

Each measurement runs in a fresh process, so its memory is its own.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import redis
from flask.testing import FlaskClient

from dither_estimator.store import Store as WorkerStore
from dither_estimator.worker import Worker
from dither_protocol.registry import Registry
from dither_protocol.storage import PartitionKeys, encode_entry, partition_of, partition_tags
from dither_server.admission import Admission
from dither_server.admit_call import Outcome, admit_call
from dither_server.app import create_app
from dither_server.auth import key_hash
from dither_server.settings import Settings
from dither_server.store import Store as ServerStore
from growth_cost import cost, memory_bytes
from own_store import own_store

INGEST_KEY: Final = "ingest"
OPERATOR_KEY: Final = "operator"
UNTIL: Final = date(2100, 1, 4)
_HIGH_WATER_BYTES: Final = 128 << 20
_ADMIT: Final = files("dither_server").joinpath("scripts/admit.lua").read_bytes()
_AT_ONCE: Final = 500
_FOR_EVER_S: Final = 3_600.0
_HANG_LIMIT_S: Final = 3_600.0
_REST: Final = 12
"""The dashboard reuses its readings for ten times as long as they took."""


@dataclass(frozen=True)
class Ground:
    """A store with a server's settings over it.

    Attributes:
        url: of the store.
        redis: a client of it.
        settings: of a server.
        registry: that the server announced.
    """

    url: str
    redis: redis.Redis
    settings: Settings
    registry: Registry

    def admit(self, batches: Iterable[Sequence[tuple[str, list[bytes]]]]) -> None:
        """Take batches of packed reports about some cells, as the ingest route does after its checks; many in one call.

        Args:
            batches: (name of a cell, packed reports about it) for each cell of a batch.
        """
        script = self.redis.script_load(_ADMIT)
        keys = [PartitionKeys(tag) for tag in partition_tags(self.settings.partitions)]
        with self.redis.pipeline(transaction=False) as pipe:
            for place, groups in enumerate(batches):
                admission = _admission(groups)
                partition = partition_of(admission.batch_id, len(keys))
                names, arguments = admit_call(keys[partition], admission, _HIGH_WATER_BYTES)
                pipe.evalsha(script, len(names), *names, *arguments)
                if place % _AT_ONCE == _AT_ONCE - 1:
                    _all_new(pipe.execute())
            _all_new(pipe.execute())

    def application(self) -> FlaskClient:
        """The server's application over this store, in this process, and somebody who asks it."""
        return create_app(self.settings).test_client()

    @contextmanager
    def worker(self) -> Iterator[Worker]:
        """A worker of its own connection; it gives its leases back."""
        store = WorkerStore(self.url)
        worker = Worker(store)
        try:
            yield worker
        finally:
            worker.leave()
            store.close()


@contextmanager
def ground(registry: Registry, document: dict[str, Any]) -> Iterator[Ground]:
    """A fresh store in which a server has announced a registry; ``document`` is the registry as JSON."""
    with (
        own_store(fsync="everysec") as url,
        tempfile.TemporaryDirectory() as name,
        redis.Redis.from_url(url) as client,
    ):
        folder = Path(name)
        (folder / "registry.toml").write_text(toml(document))
        keys = [
            {"name": name, "role": role, "sha256": key_hash(key)}
            for name, role, key in (("app", "ingest", INGEST_KEY), ("people", "operator", OPERATOR_KEY))
        ]
        (folder / "keys.json").write_text(json.dumps({"keys": keys}))
        settings = Settings(
            store_url=url, registry=folder / "registry.toml", keys_file=folder / "keys.json",
            ack="memory", high_water_bytes=_HIGH_WATER_BYTES,
        )  # fmt: skip
        server = ServerStore(settings, registry)
        server.catalogue()  # announces
        server.close()
        yield Ground(url, client, settings, registry)


def toml(value: dict[str, Any], path: tuple[str, ...] = ()) -> str:
    """A document as TOML. Strings, numbers, and lists of strings are written as JSON writes them."""
    plain = [f"{key} = {json.dumps(each)}" for key, each in value.items() if not isinstance(each, dict)]
    lines = [f"[{'.'.join(path)}]", *plain] if path else plain
    tables = [toml(each, (*path, key)) for key, each in value.items() if isinstance(each, dict)]
    return "\n".join([*lines, *tables])


def count_all(worker: Worker) -> None:
    """Count until nothing waits."""
    while worker.count():
        pass


def settle(worker: Worker) -> None:
    """Count, then publish, until there is nothing left."""
    count_all(worker)
    worker.may_publish()
    while worker.publish(_FOR_EVER_S, resting=False):
        pass


def is_settled(store: Ground) -> bool:
    """Whether everything is counted and published."""
    keys = [PartitionKeys(tag) for tag in partition_tags(store.settings.partitions)]
    return not any(store.redis.xlen(each.stream) or store.redis.hlen(each.dirty) for each in keys)


def check_settled(store: Ground) -> None:
    """See that everything was counted and published: else a cost would be that of nothing.

    Raises:
        RuntimeError: it was not.
    """
    if not is_settled(store):
        raise RuntimeError("the worker has left something undone")


def _admission(groups: Sequence[tuple[str, list[bytes]]]) -> Admission:
    outcomes: dict[tuple[str, str], dict[str, int]] = {}
    for cell, packed in groups:
        metric, _, window, _ = cell.split(":", 3)
        counts = outcomes.setdefault((metric, window), {"received": 0, "accepted": 0})
        counts["received"] += len(packed)
        counts["accepted"] += len(packed)
    reports = sum(len(packed) for _, packed in groups)
    return Admission(os.urandom(16), UNTIL, reports, (), encode_entry(groups), outcomes)


def _all_new(outcomes: Sequence[int]) -> None:
    if any(outcome != Outcome.NEW for outcome in outcomes):
        raise RuntimeError("the store did not take a batch")


def worker_peak_bytes(store: Ground) -> float:
    """The most memory of a real worker process, from its start until nothing is left to do and three seconds more.

    Raises:
        RuntimeError: it does not come to an end.
    """
    given = {name: value for name, value in os.environ.items() if not name.startswith("DITHER_")}
    command = [sys.executable, "-m", "dither_estimator.worker"]
    environ = given | {"DITHER_STORE_URL": store.url}
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _HANG_LIMIT_S
        while not is_settled(store):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError("the worker has left something undone")
            time.sleep(0.05)
        time.sleep(3.0)
        return memory_bytes("VmHWM", process.pid)
    finally:
        process.terminate()
        process.wait()


def bearer(key: str) -> dict[str, str]:
    """The headers that present a key."""
    return {"Authorization": f"Bearer {key}"}


def read(client: FlaskClient, path: str) -> bytes:
    """A page or a document for an operator.

    Raises:
        RuntimeError: the answer is none.
    """
    answer = client.get(path, headers=bearer(OPERATOR_KEY))
    if answer.status_code != 200:
        raise RuntimeError(f"{path}: {answer.status}")
    return bytes(answer.data)


def rested_read(client: FlaskClient, path: str) -> float:
    """Processor seconds of a page of the dashboard whose readings have to be read anew; templates are compiled."""
    began = time.perf_counter()
    read(client, path)
    time.sleep(max(2.0, _REST * (time.perf_counter() - began)))
    return cost(lambda: read(client, path)).own_s


def sign_in(client: FlaskClient) -> None:
    """Open the dashboard: the pages are for browsers, which have a session."""
    client.get("/login", query_string={"token": OPERATOR_KEY})
