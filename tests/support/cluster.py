"""A real cluster of the test's own: servers on loopback ports that were free, in one private folder.

::

    with running_cluster() as cluster:
        cluster.node_of("a").client().set("a", 1)
        cluster.nodes[0].kill()      # as a crash would
        cluster.nodes[0].start()     # the same data, the same address
        cluster.wait_until_whole()
"""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis

from dither_protocol.storage import CLUSTER_SLOTS
from support.store import Engine, engine_binary
from support.tls import Certificates

_HANG_LIMIT_S = 30
_BUS = 10_000
_NODE_TIMEOUT_MS = 2_000
"""After so long without a sign of life the others call a master failed."""


def free_ports(count: int, *, each_with: int = 0) -> list[int]:
    """Loopback ports that nobody listens on now; with ``each_with``, the one so far above each is free as well."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = _hold_port(held, 0)
            if not each_with:
                found.append(port)
            elif port + each_with < 65_536:
                with suppress(OSError):
                    _hold_port(held, port + each_with)
                    found.append(port)
    return found


def _hold_port(held: ExitStack, port: int) -> int:
    probe = held.enter_context(socket.socket())
    probe.bind(("127.0.0.1", port))
    return int(probe.getsockname()[1])


@dataclass
class Node:
    """One server.

    Attributes:
        folder: of its data.
        port: for clients, on 127.0.0.1. For the other nodes it is the usual one, `_BUS` above.
        slots: first and last slot that it holds, or whose replica it is.
        settings: options of the server beside the usual ones.
        certificates: where it speaks TLS, to clients and to the other nodes.
    """

    folder: Path
    port: int
    slots: tuple[int, int]
    settings: dict[str, str] = field(default_factory=dict)
    certificates: Certificates | None = None
    _process: subprocess.Popen[bytes] | None = None

    def client(self) -> redis.Redis:
        """A client of this node alone: keys of others are answered with MOVED."""
        authority = self.certificates and str(self.certificates.authority)
        return redis.Redis(
            "127.0.0.1",
            self.port,
            socket_timeout=_HANG_LIMIT_S,
            ssl=self.certificates is not None,
            ssl_ca_certs=authority,
        )

    def start(self) -> None:
        """Start it on the folder's data, and return when it answers. It may not take writes yet."""
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": str(_NODE_TIMEOUT_MS),
            "cluster-require-full-coverage": "no",
            "repl-diskless-sync-delay": "0",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory": "256mb",
            "maxmemory-policy": "noeviction",
        } | self.settings
        if self.certificates is not None:
            options |= self.certificates.server_options()
            options |= {
                "port": "0",
                "tls-port": str(self.port),
                "tls-cluster": "yes",
                "tls-replication": "yes",
            }
        command = [str(engine_binary(Engine.name))]
        for name, value in options.items():
            command += [f"--{name}", value]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _HANG_LIMIT_S
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            with suppress(redis.ConnectionError), self.client() as client:
                client.ping()
                return
            time.sleep(0.01)
        log = (self.folder / "log").read_text(errors="replace")
        self.kill()
        raise RuntimeError(f"the node did not start:\n{log}")

    def kill(self) -> None:
        """End it as a crash would (SIGKILL). The data of acknowledged commands stays."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(_HANG_LIMIT_S)

    def hang(self) -> None:
        """Stop its threads (SIGSTOP): its port takes connections, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """The end of `hang`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("the node is not running")
        self._process.send_signal(number)


@dataclass
class Cluster:
    """Masters that share the slots in even, adjoining ranges.

    Attributes:
        nodes: the masters by rising slots.
        replicas: one of each master, or none at all.
    """

    nodes: list[Node] = field(default_factory=list)
    replicas: list[Node] = field(default_factory=list)

    @property
    def url(self) -> str:
        """What ``DITHER_STORE_URL`` takes: every node is a start node."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        certificates = self.nodes[0].certificates
        return f"clusters://{hosts}?{certificates.url_options}" if certificates else f"cluster://{hosts}"

    def empty(self) -> None:
        """Delete every key, and forget the scripts."""
        for node in self.nodes:
            with node.client() as client:
                client.flushall()
                client.script_flush()

    def values(self, pattern: str) -> dict[str, bytes]:
        """Every string whose key fits a pattern, over all nodes."""
        found: dict[str, bytes] = {}
        for node in self.nodes:
            with node.client() as client:
                found |= {key.decode(): client.get(key) for key in client.keys(pattern)}
        return found

    def node_of(self, key: str) -> Node:
        """The node that holds the slot of a key, by its own calculation."""
        with self.nodes[0].client() as client:
            slot = int(client.execute_command("CLUSTER KEYSLOT", key))
        return next(node for node in self.nodes if node.slots[0] <= slot <= node.slots[1])

    def form(self) -> None:
        """Give each node its slots, and make them know each other."""
        for number, node in enumerate(self.nodes):
            with node.client() as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", *node.slots)
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        with self.nodes[0].client() as first:
            for other in self.nodes[1:] + self.replicas:
                first.execute_command("CLUSTER MEET", "127.0.0.1", other.port)
        self.wait_until_whole()
        for master, replica in zip(self.nodes, self.replicas, strict=bool(self.replicas)):
            self._replicate(master, replica)

    def _replicate(self, master: Node, replica: Node) -> None:
        with master.client() as client:
            name = client.execute_command("CLUSTER MYID")
        with replica.client() as client:
            client.execute_command("CLUSTER REPLICATE", name)
            self._until(lambda: client.info("replication")["master_link_status"] == "up", "a replica in step")

    def wait_until_whole(self) -> None:
        """Return when every master finds all others well and takes writes."""
        self._until(lambda: all(self._is_whole(node) for node in self.nodes), "a whole cluster")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _HANG_LIMIT_S
        while not condition():
            if time.monotonic() > deadline:
                logs = [
                    (node.folder / "log").read_text(errors="replace") for node in self.nodes + self.replicas
                ]
                raise RuntimeError("\n".join([f"never came about: {what}", *logs]))
            time.sleep(0.02)

    def _is_whole(self, node: Node) -> bool:
        with node.client() as client:
            found = client.execute_command("CLUSTER INFO")
        wanted = {
            "cluster_state": "ok",
            "cluster_slots_ok": str(CLUSTER_SLOTS),
            "cluster_known_nodes": str(len(self.nodes + self.replicas)),
            "cluster_size": str(len(self.nodes)),
        }
        return wanted.items() <= found.items()


@contextmanager
def running_cluster(
    nodes: int = 3,
    *,
    replicated: bool = False,
    formed: bool = True,
    certificates: Certificates | None = None,
    **settings: str,
) -> Iterator[Cluster]:
    """A fresh, empty cluster with the durability settings of design section 8, whole when the body begins.

    A master that is away leaves the slots of the others served (``cluster-require-full-coverage no``).

    Args:
        nodes: number of masters.
        replicated: each has a replica, which takes its place when it is gone for long.
        formed: else the nodes know nothing of each other yet.
        certificates: for a cluster that speaks TLS alone.
        settings: options of every server to change, with ``_`` for ``-``: ``appendfsync="everysec"``.
    """
    root = Path(tempfile.mkdtemp(prefix="dc-", dir="/tmp"))
    options = {name.replace("_", "-"): value for name, value in settings.items()}
    ports = free_ports(2 * nodes, each_with=_BUS)
    cluster = Cluster()
    try:
        for number in range(2 * nodes if replicated else nodes):
            folder = root / str(number)
            folder.mkdir()
            place = number % nodes
            slots = (place * CLUSTER_SLOTS // nodes, (place + 1) * CLUSTER_SLOTS // nodes - 1)
            node = Node(folder, ports[number], slots, dict(options), certificates)
            (cluster.nodes if number < nodes else cluster.replicas).append(node)
            node.start()
        if formed:
            cluster.form()
        yield cluster
    finally:
        for node in cluster.nodes + cluster.replicas:
            node.kill()
        shutil.rmtree(root, ignore_errors=True)
