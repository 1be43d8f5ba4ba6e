"""Commands for a cluster, in one round trip to each master. Standard library only; the rooms' clients are given.

The pipelines that redis-py 8 has for a cluster are not used. They repeat each failed command by itself, which takes a
time limit each while a master is silent (measured: 9 s for eight commands at a limit of 1 s), and they ask some node
for the keys of every script call, which doubles the traffic and fails with that node.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

Command = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of a command, and the options of the client's ``execute_command``."""

Ask = Callable[[Any, Sequence[Command]], Sequence[Any]]
"""Runs commands on the client of one master in one round trip: for each its result, or its exception in its place."""

_SCRIPT_CALLS: Final = ("EVAL", "EVALSHA")


@dataclass(frozen=True, slots=True)
class Faults:
    """The classes of the library's exceptions that are told apart here.

    Attributes:
        lost: the master is gone, or has closed an idle connection: worth another try at once.
        silent: the master did not answer in time: another try would take as long.
        moved: the master says that another one has the key.
    """

    lost: type[Exception]
    silent: type[Exception]
    moved: type[Exception]


def ask(client: Any, commands: Sequence[Command], *, transaction: bool = False) -> list[Any]:
    """The plain `Ask`: one pipeline."""
    with client.pipeline(transaction=transaction) as pipe:
        for arguments, options in commands:
            pipe.execute_command(*arguments, **options)
        found: list[Any] = pipe.execute(raise_on_error=False)
    return found


def spread(cluster: Any, faults: Faults, commands: Sequence[Command], ask: Ask) -> list[Any]:
    """Run commands, each on the master that holds its first key.

    Where a master is lost or says that a key has moved, the cluster is asked anew for who holds what, and those
    commands are tried once more. That is safe for what runs here: a script that ran twice finds out.

    Args:
        cluster: the library's client.
        faults: of the library.
        commands: all keys of one share a slot.
        ask: one round trip to one master.

    Returns:
        For each command its result, or its exception in its place.

    Raises:
        Exception: one of ``faults``, where nothing else came of any command.
    """
    run = _Spread(cluster, faults, commands, ask, [None] * len(commands))
    again = run.round(range(len(commands)))
    if again:
        run.round(again)
    failures = (faults.lost, faults.silent)
    results = [  # moved once more: not every node knows of it yet
        faults.lost("the key has moved again") if isinstance(result, faults.moved) else result
        for result in run.results
    ]
    if results and all(isinstance(result, failures) for result in results):
        raise results[0]
    return results


def look_again(cluster: Any, faults: Faults, silent: Collection[Any]) -> None:
    """Ask the cluster who holds what, since some masters do not answer: others may have taken their place.

    Where nobody else answers either nothing is asked, for that would take a time limit for each node.

    Args:
        cluster: the library's client.
        faults: of the library.
        silent: those masters.
    """
    others = [master for master in cluster.get_primaries() if master not in silent]
    if not others:
        return
    other = others[time.monotonic_ns() % len(others)]  # not always the same one
    try:
        cluster.get_redis_connection(other).ping()
    except (faults.lost, faults.silent):
        return
    cluster.nodes_manager.initialize()


@dataclass(frozen=True, slots=True)
class _Spread:
    """One run of `spread`, with the results so far."""

    cluster: Any
    faults: Faults
    commands: Sequence[Command]
    ask: Ask
    results: list[Any]

    def round(self, places: Sequence[int]) -> list[int]:
        """One round trip to each master for the commands at ``places``; the places of those to try once more."""
        by_master: dict[Any, list[int]] = {}
        for place in places:
            master = self.cluster.get_node_from_key(_first_key(self.commands[place]))
            by_master.setdefault(master, []).append(place)
        failed = {master: self._ask_one(master, own) for master, own in by_master.items()}
        again = [
            place
            for failed_there in failed.values()
            for place in failed_there
            if not isinstance(self.results[place], self.faults.silent)
        ]
        if again:
            self.cluster.nodes_manager.initialize()
        elif any(failed.values()):
            look_again(self.cluster, self.faults, {master for master in failed if failed[master]})
        return again

    def _ask_one(self, master: Any, places: Sequence[int]) -> set[int]:
        """One round trip; the places of those commands after which the cluster is to be asked who holds what."""
        faults = (self.faults.lost, self.faults.silent, self.faults.moved)
        found: Sequence[Any]
        try:
            client = self.cluster.get_redis_connection(master)
            found = self.ask(client, [self.commands[place] for place in places])
        except faults as error:
            found = [error] * len(places)
        for place, result in zip(places, found, strict=True):
            self.results[place] = result
        return {place for place in places if isinstance(self.results[place], faults)}


def _first_key(command: Command) -> Any:
    arguments, _ = command
    return arguments[3 if arguments[0] in _SCRIPT_CALLS else 1]
