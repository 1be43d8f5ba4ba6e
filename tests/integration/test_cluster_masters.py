"""Masters of a cluster that hang, come back as others, or hold other slots: what the two stores make of it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dither_estimator.store import Store as WorkerStore
from dither_estimator.store import StoreUnavailableError
from dither_estimator.worker import Worker
from dither_protocol.errors import StorageError
from dither_protocol.mechanisms.forms import decode_base64url
from dither_protocol.storage import META_KEY, PartitionKeys, decode_cell, partition_of, partition_tags
from dither_server.app import create_app
from dither_server.settings import ConfigurationError
from support.buckets import bucket_batch, registry_text
from support.cluster import Cluster, Node, free_ports, running_cluster
from support.server import Clock, bearer, settings
from support.store import running_store

PARTITIONS = 12
KEYS = tuple(PartitionKeys(tag) for tag in partition_tags(PARTITIONS))
_HANG_LIMIT_S = 30
_SILENT_LIMIT_S = 10
"""Far above the 3 s that are promised, and far below what a time limit per command adds up to."""


@pytest.fixture(scope="module")
def whole() -> Iterator[Cluster]:
    """One cluster for the module; each test leaves it whole."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(whole: Cluster) -> Cluster:
    """The module's cluster, emptied."""
    whole.empty()
    return whole


class Site:
    """A server in this process, with batches that it can tell apart.

    Attributes:
        app: its test client.
        sent: how many batches were made.
    """

    def __init__(self, folder: Path, url: str, **changes: Any) -> None:
        found = settings(folder, url, registry_text=registry_text(), partitions=PARTITIONS, **changes)
        self.app: FlaskClient = create_app(found, clock=Clock()).test_client()
        self.sent = 0

    def batch_for(self, partitions: set[int]) -> dict[str, Any]:
        """A batch that lives in one of these partitions."""
        while True:
            document = bucket_batch(self.sent, day=Clock()().date())
            if partition_of(decode_base64url(document["batch"], 16), PARTITIONS) in partitions:
                self.sent += 1
                return document

    def post(self, document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and answer."""
        answer = self.app.post("/v1/reports", json=document, headers=bearer())
        return answer.status_code, answer.get_json()

    def taken_in_the_end(self, *documents: dict[str, Any]) -> None:
        """Send each until it is taken."""
        deadline = time.monotonic() + _HANG_LIMIT_S
        for document in documents:
            while self.post(document)[0] != 202:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def failing(self) -> list[str]:
        """The failing checks of readiness."""
        answer = self.app.get("/readyz")
        return [] if answer.status_code == 200 else list(answer.get_json()["failing"])


def _held(cluster: Cluster, node: Node) -> set[int]:
    """The partitions of a node."""
    return {number for number, keys in enumerate(KEYS) if cluster.node_of(keys.stream) is node}


def _counted(cluster: Cluster) -> list[int]:
    """Let a worker count all there is; the buckets that have reports, each as often as it has some."""
    store = WorkerStore(cluster.url)
    worker = Worker(store)
    try:
        while worker.tick():
            pass
    finally:
        worker.leave()
        store.close()
    found: list[int] = []
    for packed in cluster.values("dither:{*}:cell:bucket:*").values():
        for place, number in enumerate(decode_cell(packed)[1]):
            found += [place] * number
    return sorted(found)


def test_a_silent_master_holds_up_nobody_else(cluster: Cluster, tmp_path: Path) -> None:
    """Its batches get 503 soon, those of the others 202; when it goes on, so does the server, without a restart."""
    site, silent = Site(tmp_path, cluster.url), cluster.nodes[2]
    its_own = _held(cluster, silent)
    others = set(range(PARTITIONS)) - its_own
    for partition in range(PARTITIONS):
        site.taken_in_the_end(site.batch_for({partition}))
    assert any(_others_go_ahead(site, silent, its_own, others) for _ in range(3))
    silent.hang()
    try:
        waiting = [site.batch_for(its_own) for _ in range(5)]
        began = time.monotonic()
        refused = [site.post(document) for document in waiting]
        assert time.monotonic() - began < _SILENT_LIMIT_S
        assert {(status, answer["detail"]) for status, answer in refused} == {
            (503, "the store is unavailable (timeout)")
        }
        assert [site.post(site.batch_for(others))[0] for _ in range(20)] == [202] * 20
        began = time.monotonic()
        assert site.failing() == ["store-writable"]
        assert site.app.get("/v1/metrics/bucket/estimates", headers=bearer("operator_test")).status_code in (
            200,
            503,
        )
        assert time.monotonic() - began < _SILENT_LIMIT_S
    finally:
        silent.go_on()
    site.taken_in_the_end(*waiting)
    cluster.wait_until_whole()
    assert site.failing() == []
    assert _counted(cluster) == list(range(site.sent))


def _others_go_ahead(site: Site, silent: Node, its_own: set[int], others: set[int]) -> bool:
    """Whether a batch for a living master is taken while one for a master that falls silent is still waited for."""
    stuck, free = site.batch_for(its_own), site.batch_for(others)
    silent.hang()
    try:
        waiting = threading.Thread(target=lambda: site.post(stuck))
        waiting.start()
        time.sleep(0.2)
        taken = site.post(free)[0] == 202
        ahead = waiting.is_alive()
        waiting.join()
    finally:
        silent.go_on()
    site.taken_in_the_end(stuck, free)
    return taken and ahead


def test_a_master_that_comes_back_less_durable_gets_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """It is checked before the first batch after its return; the others never stop."""
    site, changed = Site(tmp_path, cluster.url), cluster.nodes[0]
    its_own = _held(cluster, changed)
    changed.kill()
    waiting = site.batch_for(its_own)
    assert site.post(waiting)[0] == 503
    before, changed.settings = changed.settings, {"appendfsync": "everysec"}
    try:
        changed.start()
        cluster.wait_until_whole()
        status, answer = site.post(waiting)
        assert (status, answer["type"]) == (503, "store-unavailable")
        assert site.failing() == ["store-fit"]
        assert site.post(site.batch_for(set(range(PARTITIONS)) - its_own))[0] == 202
        with changed.client() as client:
            client.config_set("appendfsync", "always")
        assert site.post(waiting)[1] == {"accepted": 1, "duplicate": False, "rejected": []}
        assert site.failing() == []
    finally:
        changed.settings = before


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("appendfsync", "everysec", "appendfsync everysec"),
        ("maxmemory-policy", "allkeys-lru", "maxmemory-policy allkeys-lru"),
    ],
)
def test_every_master_must_be_fit(
    cluster: Cluster, tmp_path: Path, option: str, value: str, words: str
) -> None:
    """One master of three that may lose or evict what was acknowledged is enough for a refusal."""
    with cluster.nodes[2].client() as client:
        before = client.config_get(option)[option]
        client.config_set(option, value)
        try:
            with pytest.raises(ConfigurationError, match=words):
                Site(tmp_path, cluster.url)
        finally:
            client.config_set(option, before)


def test_all_masters_away_and_back(cluster: Cluster, tmp_path: Path) -> None:
    """Nothing is taken while no node answers; when they do, server and worker go on without a restart."""
    site, store = Site(tmp_path, cluster.url), WorkerStore(cluster.url)
    site.taken_in_the_end(site.batch_for({0}))
    worker = Worker(store)
    worker.tick()
    for node in cluster.nodes:
        node.kill()
    waiting = [site.batch_for({partition}) for partition in range(PARTITIONS)]
    assert {site.post(document)[0] for document in waiting} == {503}
    assert site.failing() == ["store-writable"]
    with pytest.raises(StoreUnavailableError):
        worker.tick()
    for node in cluster.nodes:
        node.start()
    cluster.wait_until_whole()
    site.taken_in_the_end(*waiting)
    assert site.failing() == []
    worker.tick()
    worker.leave()
    store.close()
    assert _counted(cluster) == list(range(site.sent))


def test_a_cluster_that_is_away_at_the_start_is_found_later(cluster: Cluster, tmp_path: Path) -> None:
    """Server and worker start without it, and need no restart when it is there; one start node is enough."""
    for node in cluster.nodes:
        node.kill()
    url = f"cluster://127.0.0.1:{cluster.nodes[1].port}"
    site, store = Site(tmp_path, url), WorkerStore(url)
    assert site.post(site.batch_for({0}))[0] == 503
    with pytest.raises(StoreUnavailableError):
        store.open()
    for node in cluster.nodes:
        node.start()
    cluster.wait_until_whole()
    site.taken_in_the_end(site.batch_for({0}))
    assert store.open() == PARTITIONS
    store.close()


def test_a_slot_that_has_moved_is_followed(cluster: Cluster, tmp_path: Path) -> None:
    """A partition that another master has taken over is found there by server and worker, who learn of it by MOVED."""
    site, store = Site(tmp_path, cluster.url), WorkerStore(cluster.url)
    worker = Worker(store)
    worker.tick()
    source, target = cluster.nodes[0], cluster.nodes[1]
    (partition, *_) = sorted(_held(cluster, source))
    _give_slot(cluster, KEYS[partition], source, target)
    try:
        assert site.post(site.batch_for({partition}))[0] == 202
        with target.client() as client:
            assert client.xlen(KEYS[partition].stream) == 1
        while worker.tick():
            pass
        with target.client() as client:
            assert client.xlen(KEYS[partition].stream) == 0
            client.flushall()
    finally:
        _give_slot(cluster, KEYS[partition], target, source)
        worker.leave()
        store.close()


def _give_slot(cluster: Cluster, keys: PartitionKeys, source: Node, target: Node) -> None:
    """Move the slot of a partition without keys of its own, as an operator does."""
    with source.client() as old, target.client() as new:
        slot = int(old.execute_command("CLUSTER KEYSLOT", keys.stream))
        for name in old.execute_command("CLUSTER GETKEYSINSLOT", slot, 1_000):
            old.delete(name)
        taker = new.execute_command("CLUSTER MYID").decode()
        new.execute_command(
            "CLUSTER SETSLOT", slot, "IMPORTING", old.execute_command("CLUSTER MYID").decode()
        )
        old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", taker)
        for node in (target, source, *cluster.nodes):
            with node.client() as client:
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", taker)


def test_a_script_is_loaded_where_it_is_missing(cluster: Cluster, tmp_path: Path) -> None:
    """A master that has forgotten the scripts gets them with the next call, while another master is dead."""
    site, store = Site(tmp_path, cluster.url), WorkerStore(cluster.url)
    forgetful, dead = cluster.nodes[0], cluster.nodes[1]
    its_own = sorted(_held(cluster, forgetful))
    site.taken_in_the_end(site.batch_for(set(its_own)))
    assert store.open() == PARTITIONS
    dead.kill()
    try:
        with forgetful.client() as client:
            client.script_flush()
        assert site.post(site.batch_for(set(its_own)))[0] == 202
        store.note_attempt(its_own[0], "an attempt")
        assert store.attempt(its_own[0]) == "an attempt"
    finally:
        store.close()
        dead.start()
        cluster.wait_until_whole()


def test_the_kind_of_the_url_must_be_right(cluster: Cluster, tmp_path: Path) -> None:
    """A node of a cluster as a single server, and a single server as a cluster, are refused with a hint."""
    foreign = next(node for node in cluster.nodes if node is not cluster.node_of(META_KEY))
    single = f"redis://127.0.0.1:{foreign.port}"
    with pytest.raises(ConfigurationError, match="use cluster://"):
        Site(tmp_path, single)
    with pytest.raises(StorageError, match="use cluster://"):
        WorkerStore(single).open()
    with running_store(port=str(free_ports(1)[0])) as store, store.client() as client:
        url = f"cluster://127.0.0.1:{client.config_get('port')['port']}"
        with pytest.raises(ConfigurationError, match="use redis://"):
            Site(tmp_path, url)
        with pytest.raises(StorageError, match="use redis://"):
            WorkerStore(url).open()


def test_the_account_of_the_url_holds_for_every_node(cluster: Cluster, tmp_path: Path) -> None:
    """With a password on all nodes the right URL works, and a wrong one is refused without a word about it."""
    for node in cluster.nodes:
        with node.client() as client:
            client.execute_command("ACL SETUSER", "dither", "on", ">hunter2", "~*", "+@all")
    right = cluster.url.replace("cluster://", "cluster://dither:hunter2@")
    site = Site(tmp_path, right)
    site.taken_in_the_end(*(site.batch_for({partition}) for partition in range(PARTITIONS)))
    assert WorkerStore(right).open() == PARTITIONS
    with pytest.raises(ConfigurationError, match="does not accept the password") as refused:
        Site(tmp_path, right.replace("hunter2", "hunter3"))
    assert "hunter" not in str(refused.value)


def test_a_replica_that_is_promoted_is_followed(tmp_path: Path) -> None:
    """With DITHER_ACK=replica a promotion loses nothing that was taken; server and worker find it without a restart."""
    with running_cluster(replicated=True) as cluster:
        site = Site(tmp_path, cluster.url, ack="replica", replicas=1)
        lost = cluster.nodes[0]
        its_own = _held(cluster, lost)
        site.taken_in_the_end(*(site.batch_for({partition}) for partition in range(PARTITIONS)))
        assert site.failing() == []
        lost.kill()
        waiting = site.batch_for(its_own)
        assert site.post(waiting)[0] == 503
        deadline = time.monotonic() + _HANG_LIMIT_S
        while site.post(waiting)[1].get("detail") != "the store is unavailable (replicas)":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert site.failing() == ["replicas"]
        lost.start()  # as a replica of its former replica
        site.taken_in_the_end(waiting)
        assert _counted(Cluster(cluster.replicas[:1] + cluster.nodes[1:])) == list(range(site.sent))
