"""The script by which containers become a cluster, run on nodes of the test's own."""

import os
import shutil
import subprocess
from pathlib import Path

from support.cluster import Cluster, running_cluster
from support.requirements import need

SCRIPT = Path(__file__).parents[2] / "deploy/join_cluster.sh"
_HANG_LIMIT_S = 60


def _client_program() -> str:
    """A client of the engine on this machine."""
    found = shutil.which("valkey-cli") or shutil.which("redis-cli")
    if found is None:
        need("redis", "neither valkey-cli nor redis-cli is on this machine")
    return found


def _join(cluster: Cluster) -> None:
    nodes = " ".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
    environ = os.environ | {"CLI": _client_program(), "NODES": nodes}
    subprocess.run(["/bin/sh", SCRIPT], env=environ, check=True, capture_output=True, timeout=_HANG_LIMIT_S)


def test_nodes_are_joined_once() -> None:
    """Three strangers become a whole cluster; the second run, one restart later, finds it and changes nothing."""
    with running_cluster(formed=False) as cluster:
        _join(cluster)
        cluster.wait_until_whole()
        node = cluster.node_of("kept")
        with node.client() as client:
            client.set("kept", 1)
        node.kill()
        node.start()
        _join(cluster)
        with node.client() as client:
            assert client.get("kept") == b"1"
        cluster.wait_until_whole()
