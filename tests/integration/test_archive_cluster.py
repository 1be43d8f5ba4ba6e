"""Archive, retention and statistics over a cluster: each call touches one slot, so nothing changes."""

from pathlib import Path

import redis

from dither_estimator.archive_file import describe
from dither_estimator.archive_folder import Folder
from dither_estimator.definitions import Definitions
from dither_estimator.expiry import Calendar
from dither_estimator.retention import Retention
from dither_estimator.stats import read_stats
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol import storage
from dither_protocol.registry import encode_definition
from dither_protocol.storage import Cell, PartitionKeys, partition_tags
from support.cluster import running_cluster
from support.retention import day, index_entry, retention_registry

PARTITIONS = 6
KEYS = [PartitionKeys(tag) for tag in partition_tags(PARTITIONS)]


def test_archive_retention_and_stats_over_three_masters(tmp_path: Path) -> None:
    """Everything is archived, what has expired goes from every node and from the files, and the numbers add up."""
    with running_cluster() as cluster:
        client = redis.RedisCluster.from_url(cluster.url.replace("cluster://", "redis://").split(",")[0])
        client.hset(storage.META_KEY, mapping={"partitions": PARTITIONS, "layout": storage.LAYOUT})

        def announce(**days: int) -> None:
            registry = retention_registry(**days)
            for metric in registry:
                name = metric.name
                client.set(storage.metric_key(name, metric.version), encode_definition(registry, name))
                client.sadd(storage.versions_key(name), metric.version)
                client.sadd(storage.METRICS_KEY, name)

        announce()
        for keys in KEYS:
            for days_ago in (40, 0):
                entry = index_entry(Cell("dark_mode", 1, day(days_ago), ()), 1, 0)
                client.xadd(keys.stream, {storage.ENTRY_FIELD: entry})
                client.incrby(keys.backlog, len(entry))
        store = Store(cluster.url)
        worker = Worker(store, archive=tmp_path / "archive")
        while worker.tick():
            pass
        while worker.archive(at_once=True):
            pass
        before = read_stats(store, Calendar(store, Definitions(store)))
        assert len(before.nodes) == 3
        assert [each.entries for each in before.partitions] == [0] * PARTITIONS
        dark = next(each for each in before.metrics if each.metric == "dark_mode")
        assert (dark.windows, dark.cells, dark.sampled) == (2, 2 * PARTITIONS, False)
        announce(dark_mode=30)
        client.delete(storage.PRUNED_KEY)
        again = Worker(store, archive=tmp_path / "archive")
        again.tick()
        retention = Retention(store, Definitions(store), Folder(tmp_path / "archive"))
        retention.prune(PARTITIONS, range(PARTITIONS), publishing=True, budget_s=60.0)
        after = read_stats(store, Calendar(store, Definitions(store)))
        dark = next(each for each in after.metrics if each.metric == "dark_mode")
        assert (dark.windows, dark.cells, dark.final) == (1, PARTITIONS, 0)
        found = [content for path in (tmp_path / "archive").glob("*.parquet") for content in describe(path)]
        assert {(content.window, content.rows) for content in found} == {(day(0), 2)}
        assert len(found) == PARTITIONS
        client.close()
        store.close()
