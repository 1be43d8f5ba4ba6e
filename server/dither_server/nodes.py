"""Where the keys of the store live: on one server, or on the masters of a cluster.

The clients are redis-py's, opened by `dither_server.store`: that module alone may import its package.
"""

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, Protocol

from dither_protocol.spreading import Ask, Command, Faults, look_again, spread

ALONE: Final = "store"
"""The name of the only master where there is no cluster."""

_CONNECT_WAIT_S: Final = 1.0


class Nodes(Protocol):
    """The masters that hold the store's keys."""

    clustered: bool

    @property
    def client(self) -> Any:
        """A client for commands on keys, wherever they live. Of a cluster it connects, and raises what that does."""

    def master_of(self, key: str) -> str:
        """The name of the master that holds a key."""

    def masters(self) -> Mapping[str, Any]:
        """A client of each master, by its name."""

    def spread(self, commands: Sequence[Command], ask: Ask) -> Sequence[Any]:
        """Run commands, each on the master that holds its first key; for each its result or its exception.

        Raises:
            Exception: a fault of the client, where nothing else came of any command.
        """

    def look_again(self, master: str) -> None:
        """A master does not answer: another one may have taken its place."""

    def start_over(self) -> None:
        """What is known leads nowhere any more: the next use begins at the URL."""

    def close(self) -> None:
        """Close the idle connections."""


class OneServer:
    """A server that holds every key."""

    clustered = False

    def __init__(self, client: Any) -> None:
        self.client = client

    def master_of(self, key: str) -> str:
        """The name of the master that holds a key."""
        return ALONE

    def masters(self) -> Mapping[str, Any]:
        """A client of each master, by its name."""
        return {ALONE: self.client}

    def spread(self, commands: Sequence[Command], ask: Ask) -> Sequence[Any]:
        """Run commands in one round trip; its faults are raised."""
        return ask(self.client, commands)

    def look_again(self, master: str) -> None:
        """There is no other."""

    def start_over(self) -> None:
        """The next connections begin at the URL."""
        self.client.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        """Close the idle connections."""
        self.client.close()


class ClusterNodes:
    """The masters of a cluster.

    Args:
        connect: opens the client of the cluster; it finds the nodes, so it raises where none answers.
        faults: of that client.
    """

    clustered = True

    def __init__(self, connect: Callable[[], Any], faults: Faults) -> None:
        self._connect = connect
        self._faults = faults
        self._opening = Lock()
        self._client: Any = None

    @property
    def client(self) -> Any:
        """The client of the cluster, connected."""
        found = self._client  # read once: another thread may start over
        if found is not None:
            return found
        if not self._opening.acquire(timeout=_CONNECT_WAIT_S):
            raise self._faults.silent("another thread is still looking for the nodes")
        try:
            found = self._client = self._client or self._connect()
            return found
        finally:
            self._opening.release()

    def master_of(self, key: str) -> str:
        """The name of the master that holds a key, ``host:port``, as far as is known."""
        return str(self.client.get_node_from_key(key).name)

    def masters(self) -> Mapping[str, Any]:
        """A client of each master, by its name."""
        client = self.client
        return {node.name: client.get_redis_connection(node) for node in client.get_primaries()}

    def spread(self, commands: Sequence[Command], ask: Ask) -> Sequence[Any]:
        """Run commands, one round trip to each master. A master that is away fails its own commands only."""
        return spread(self.client, self._faults, commands, ask)

    def look_again(self, master: str) -> None:
        """Ask the others who holds what."""
        client = self.client
        silent = [node for node in client.get_primaries() if node.name == master]
        look_again(client, self._faults, silent)

    def start_over(self) -> None:
        """The next use connects again, beginning at the URL."""
        self._client = None

    def close(self) -> None:
        """Close the idle connections."""
        if self._client is not None:
            self._client.close()
