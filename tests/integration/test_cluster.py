"""The service over a cluster of three masters, end to end; one of them is killed and restarted under load."""

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import requests

from dither_protocol.mechanisms.forms import decode_base64url
from dither_protocol.registry import parse_registry
from dither_protocol.storage import PartitionKeys, decode_cell, partition_of, partition_tags
from support.cluster import Cluster, Node, running_cluster
from support.server import Server, batch, bearer, running_server, write_files
from support.worker_fleet import eventually, worker_fleet

PARTITIONS = 48
BUCKETS = 12_000
THREADS = 4
REPORTS = 2  # of a batch
KEYS = tuple(PartitionKeys(tag) for tag in partition_tags(PARTITIONS))
_HANG_LIMIT_S = 60

REGISTRY = f"""
schema = 1
project = "cluster"

[metrics.bucket]
version = 1
type = "categorical"
description = "A value of one's own"
categories = [{", ".join(f'"b{place}"' for place in range(BUCKETS))}]
epsilon = 1.0
mechanism = "grr"
"""
PARAMS = parse_registry(REGISTRY).metrics["bucket"].params_hash


@pytest.mark.parametrize("partitions", [8, 48])
def test_partitions_spread_evenly_over_the_nodes(partitions: int) -> None:
    """By the nodes' own calculation, three masters hold 8 and 48 partitions in numbers that differ by one at most."""
    with running_cluster() as cluster:
        tags = partition_tags(partitions)
        held = Counter(cluster.node_of(PartitionKeys(tag).stream).port for tag in tags)
    assert sum(held.values()) == partitions
    assert sorted(held.values()) == sorted(partitions // 3 + (place < partitions % 3) for place in range(3))


@dataclass
class Load:
    """Threads that send batches of reports which no other batch has, each until it is taken, and some once more.

    Attributes:
        servers: in turn.
        taken: buckets of the batches that were answered 202.
        answers: (seconds, partition, status) of every answer, by a monotonic clock.
    """

    servers: Sequence[Server]
    taken: set[int] = field(default_factory=set)
    answers: list[tuple[float, int, int]] = field(default_factory=list)
    _places: "count[int]" = field(default_factory=count)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Load":
        self._threads = [threading.Thread(target=self._send, args=(turn,)) for turn in range(THREADS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_HANG_LIMIT_S)
            assert not thread.is_alive()

    def _send(self, turn: int) -> None:
        """New batches and others again in turn; once there is to be an end, the others until none is left.

        Again come those that were refused, and some that were taken: as if the answer had been lost.
        """
        again: deque[tuple[list[int], dict[str, Any]]] = deque()
        with requests.Session() as session:
            while again or not self._stop.is_set():
                turn += 1
                if self._stop.is_set() or (again and turn % 3 == 0):
                    places, document = again.popleft()
                else:
                    places = [next(self._places) for _ in range(REPORTS)]
                    assert places[-1] < BUCKETS, "the load outran its buckets"
                    document = _batch(places)
                url = f"{self.servers[turn % len(self.servers)].url}/v1/reports"
                answer = session.post(url, json=document, headers=bearer(), timeout=_HANG_LIMIT_S)
                partition = partition_of(decode_base64url(document["batch"], 16), PARTITIONS)
                self.answers.append((time.monotonic(), partition, answer.status_code))
                if answer.status_code == 503 or (places[0] % 10 == 0 and places[0] not in self.taken):
                    again.append((places, document))
                if answer.status_code == 202:
                    self.taken.update(places)
                else:
                    assert answer.status_code == 503, answer.text
                time.sleep(0.02)

    def statuses(self, partitions: set[int], since: float) -> Counter[int]:
        """How often each status was answered for some partitions since then."""
        return Counter(
            status for at, partition, status in self.answers if at > since and partition in partitions
        )


def _batch(places: Sequence[int]) -> dict[str, Any]:
    today = datetime.now(UTC).date()
    reports = [
        {
            "metric": "bucket",
            "version": 1,
            "params": PARAMS,
            "window": today.isoformat(),
            "dimensions": {},
            "data": place,
        }
        for place in places
    ]
    return batch(*reports, until=today + timedelta(days=3))


def _partitions_of(cluster: Cluster, node: Node) -> set[int]:
    return {number for number, keys in enumerate(KEYS) if cluster.node_of(keys.stream) is node}


def _counters(cluster: Cluster) -> Counter[int]:
    """Reports counted in each bucket, over all partitions and days."""
    found: Counter[int] = Counter()
    for packed in cluster.values("dither:{*}:cell:bucket:*").values():
        n, counters = decode_cell(packed)
        assert sum(counters) == n
        found.update({place: number for place, number in enumerate(counters) if number})
    return found


def test_a_master_that_dies_under_load_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """Killed and restarted, it keeps nothing from the others; in the end each report sent was counted once.

    A refused batch is sent again, the same bytes, until it is taken, and every fifth one once more after that.
    """
    environ = {"DITHER_PARTITIONS": str(PARTITIONS)}
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster())
        servers = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            write_files(tmp_path / name, REGISTRY)
            servers.append(stack.enter_context(running_server(tmp_path / name, cluster.url, environ)))
        fleet = stack.enter_context(worker_fleet(cluster))
        for name in ("first", "second"):
            fleet.start(name)
        with Load(servers) as load:
            victim = cluster.nodes[1]
            its_own = _partitions_of(cluster, victim)
            others = set(range(PARTITIONS)) - its_own
            eventually(lambda: len(load.taken) > 200, "a load")

            victim.kill()
            dead = time.monotonic()
            eventually(lambda: load.statuses(its_own, dead)[503] > 10, "refusals for the dead master")
            eventually(lambda: load.statuses(others, dead)[202] > 50, "batches taken by the living ones")
            assert load.statuses(its_own, dead + 0.1)[202] == 0

            victim.start()
            back = time.monotonic()
            eventually(
                lambda: load.statuses(its_own, back)[202] > 50, "batches taken by the one that is back"
            )
        assert all(load.statuses({partition}, 0)[202] for partition in range(PARTITIONS))

        eventually(lambda: _counters(cluster).total() >= len(load.taken), "everything is counted")
        assert _counters(cluster) == dict.fromkeys(load.taken, 1)
        _assert_shown(servers[0], len(load.taken))


def _assert_shown(server: Server, reports: int) -> None:
    """The books balance, and the estimate is over all reports."""
    ledger = server.get("/v1/ledger").json()
    assert (ledger["balanced"], ledger["unsettled"]) == (True, [])

    def published() -> int:
        answer = server.get("/v1/metrics/bucket/estimates").json()
        return sum(estimate["n"] for version in answer["versions"] for estimate in version["estimates"])

    eventually(lambda: published() == reports, "an estimate over all reports")
    assert server.get("/readyz", None).status_code == 200
