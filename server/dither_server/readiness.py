"""Whether a batch that came now would be taken: what is asked of the store. Through the store's clients."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dither_protocol.storage import PartitionKeys
from dither_server.admitting import SCRIPT, Rounds
from dither_server.nodes import Nodes
from dither_server.store_rules import Config, eviction_problem


class Readiness:
    """The checks of a store that was found fit when it was prepared.

    Args:
        nodes: the masters.
        keys: of the partitions.
        rounds: which ask for replicas as for a batch.
        config: reads the options of a master; None where it hides them.
    """

    def __init__(
        self,
        nodes: Nodes,
        keys: Sequence[PartitionKeys],
        rounds: Rounds,
        config: Callable[[Any], Config | None],
    ) -> None:
        self._nodes = nodes
        self._keys = keys
        self._rounds = rounds
        self._config = config

    def checks(self, high_water_bytes: int) -> Mapping[str, Callable[[], bool]]:
        """Each check by its name; what the store answers instead of a result is raised.

        Args:
            high_water_bytes: backlog from which a partition takes no more.
        """
        return {
            "store-writable": self._writable,
            "store-never-evicts": self._never_evicts,
            "admit-script": self._script_loads,
            "backlog": lambda: self._largest_backlog() < high_water_bytes,
            "replicas": self._replicated,
        }

    def _writable(self) -> bool:
        # Writes that change nothing; a replica, a full store and one with a failing disk refuse them all the same.
        with self._nodes.client.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.setrange(keys.backlog, 0, b"")
            pipe.execute()
        return True

    def _replicated(self) -> bool:
        masters = self._nodes.masters()
        for master, keys in {self._nodes.master_of(keys.backlog): keys for keys in self._keys}.items():
            self._rounds.check_replicas(masters[master], keys.backlog)
        return True

    def _never_evicts(self) -> bool:
        configs = map(self._config, self._nodes.masters().values())
        return all(config is None or not eviction_problem(config) for config in configs)

    def _script_loads(self) -> bool:
        return all(client.script_load(SCRIPT) for client in self._nodes.masters().values())

    def _largest_backlog(self) -> int:
        with self._nodes.client.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.get(keys.backlog)
            return max(int(found or 0) for found in pipe.execute())
