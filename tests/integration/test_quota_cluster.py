"""Quotas on a cluster: each lives on one master, wherever the batches go."""

from pathlib import Path

import pytest

from dither_protocol.storage import quota_key
from dither_server.quota import Quota, QuotaExceeded, Quotas
from dither_server.store import Store
from dither_server.store_rules import StoreUnavailable
from support.cluster import running_cluster
from support.server import registry, settings

QUOTA = Quota(2_000, "day")


@pytest.mark.usefixtures("engine")
def test_a_quota_holds_on_a_cluster_and_pauses_with_its_master(tmp_path: Path) -> None:
    """Keys lie on several masters; while one is away its keys' quotas give nothing, the others go on, none is lost."""
    with running_cluster() as cluster:
        store = Store(settings(tmp_path, cluster.url, partitions=48), registry())
        quotas = Quotas(store.take_quota)
        ids = [f"{number:012x}" for number in range(12)]
        where = {key_id: cluster.node_of(quota_key(key_id, QUOTA.period)) for key_id in ids}
        assert len({node.port for node in where.values()}) == 3
        for key_id in ids:
            quotas.charge(key_id, QUOTA, 1_000)
        away = where[ids[0]]
        away.kill()
        for key_id in ids:
            if where[key_id] is away:
                with pytest.raises(StoreUnavailable):
                    quotas.charge(key_id, QUOTA, 500)
            else:
                quotas.charge(key_id, QUOTA, 500)
        away.start()
        cluster.wait_until_whole()
        other = Quotas(store.take_quota)
        for key_id in ids:
            left = 1_000 if where[key_id] is away else 500
            with pytest.raises(QuotaExceeded):
                other.charge(key_id, QUOTA, left + 1)
            other.charge(key_id, QUOTA, left)
        store.close()
