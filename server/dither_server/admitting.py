"""Runs the admit script, for the calls of many threads in few round trips. Through the store's clients.

Each master has a `GroupCommit` of its own, so batches for those that live never wait for one that does not.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib.resources import files
from typing import Any, Final

from dither_protocol.spreading import Command
from dither_server.group_commit import GroupCommit
from dither_server.lines import Lines
from dither_server.nodes import Nodes
from dither_server.store_rules import StoreUnavailable

ScriptCall = tuple[bytes | int | str, ...]
"""Number of keys, keys and arguments of one run of the admit script."""

SCRIPT: Final = files("dither_server").joinpath("scripts/admit.lua").read_bytes()
_SHA: Final = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest()  # EVALSHA names a script so
_BACKLOG: Final = 2
"""Place of the partition's backlog among the script's keys."""
_REPLICAS_WAIT_MS: Final = 500
"""Less than the read timeout: an answer says how many replicas there are, a timeout does not."""


class Admitting:
    """The queues before the round trips of admission, one for each master.

    Args:
        rounds: the round trips.
    """

    def __init__(self, rounds: "Rounds") -> None:
        self._rounds = rounds
        self._groups: dict[str, GroupCommit[ScriptCall, Any]] = {}

    def run(self, master: str, call: ScriptCall) -> Any:
        """The script's answer to a call whose keys a master holds.

        Raises:
            Exception: what the trial raises, or the library's own.
        """
        group = self._groups.get(master)
        if group is None:
            group = self._groups.setdefault(master, GroupCommit(partial(self._rounds.run_all, master)))
        return group.submit(call)


class Rounds:
    """The round trips of admission. They know of no queue, so that no circle of references keeps connections open.

    Args:
        nodes: the masters.
        lines: the connections to them.
        replicas: how many other stores must have a batch as well; 0 for none.
        trial: stands around each round trip to the master that it names.
        forgotten: the class of exception by which the library says that a master does not have a script.
    """

    def __init__(
        self,
        nodes: Nodes,
        lines: Lines,
        replicas: int,
        trial: Callable[[str], AbstractContextManager[None]],
        forgotten: type[Exception],
    ) -> None:
        self._nodes = nodes
        self._lines = lines
        self._replicas = replicas
        self._trial = trial
        self._forgotten = forgotten

    def run_all(self, master: str, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run the script for each call, in one round trip; exceptions stand in the place of their results."""
        with self._trial(master):
            results = self._spread("EVALSHA", _SHA, calls)
            forgotten = [place for place, result in enumerate(results) if isinstance(result, self._forgotten)]
            if forgotten:  # those that ran are not run again: each would find itself a duplicate
                for place in forgotten:
                    results[place].with_traceback(None)  # that refers to this very list, in a circle
                again = self._spread("EVAL", SCRIPT, [calls[place] for place in forgotten])
                for place, result in zip(forgotten, again, strict=True):
                    results[place] = result
            return results

    def _spread(self, word: str, script: bytes | str, calls: Sequence[ScriptCall]) -> list[Any]:
        commands: list[Command] = [((word, script, *call), {}) for call in calls]
        return list(self._nodes.spread(commands, self._ask))

    def _ask(self, client: Any, commands: Sequence[Command]) -> list[Any]:
        """One round trip to one master, on one connection."""
        words = [arguments for arguments, _ in commands]
        _, _, _, *names = words[0]
        return self._heard_replicas(self._lines.ask(client, words + self._ask_replicas(names[_BACKLOG])))

    def check_replicas(self, client: Any, backlog: str) -> None:
        """Ask one master for its replicas, by the key of a backlog that it holds.

        Raises:
            StoreUnavailable: there are too few.
        """
        if self._replicas:
            self._heard_replicas(self._lines.ask(client, self._ask_replicas(backlog)))

    def _ask_replicas(self, backlog: str) -> list[tuple[Any, ...]]:
        """Commands that ask how many replicas have what was written before, by this connection or others.

        WAIT is about the writes of its own connection, and a script may find nothing to write: so one is added, to the
        backlog of a partition that the master holds.
        """
        if not self._replicas:
            return []
        return [("INCRBY", backlog, 0), ("WAIT", self._replicas, _REPLICAS_WAIT_MS)]

    def _heard_replicas(self, results: list[Any]) -> list[Any]:
        """The results without the answers to `_ask_replicas`.

        Raises:
            StoreUnavailable: too few replicas have it. The store itself has, and a retry is a duplicate.
        """
        if not self._replicas:
            return results
        *results, written, replicas = results
        for answer in (written, replicas):
            if isinstance(answer, Exception):
                raise answer
        if replicas < self._replicas:
            raise StoreUnavailable("replicas")
        return results
