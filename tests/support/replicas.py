"""A store with a replica, and a proxy between them that can part the two."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from support.store import Store, running_store
from support.store_proxy import StoreProxy, store_proxy

_HANG_LIMIT_S = 30


@dataclass(frozen=True)
class Pair:
    """Two stores.

    Attributes:
        primary: takes the writes.
        replica: follows it.
        network: between the two.
    """

    primary: Store
    replica: Store
    network: StoreProxy

    def wait(self) -> None:
        """Return when the replica has all that was written so far."""
        with self.primary.client() as client:
            client.hset("dither:meta", "asked", 1)  # WAIT is about the writes of its own connection
            if client.execute_command("WAIT", 1, 1_000 * _HANG_LIMIT_S) != 1:
                raise RuntimeError("the replica did not catch up")

    def promote(self) -> Store:
        """Let the replica be a primary with what it has; the primary ought to be gone."""
        with self.replica.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
        return self.replica


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_pair() -> Iterator[Pair]:
    """A fresh store and its replica, which has caught up when the body begins."""
    port = _free_port()
    with (
        running_store(port=str(port), bind="127.0.0.1", repl_diskless_sync_delay="0") as primary,
        store_proxy(port) as network,
        running_store(replicaof="{} {}".format(*network.address)) as replica,
    ):
        pair = Pair(primary, replica, network)
        pair.wait()
        yield pair
