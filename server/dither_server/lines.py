"""Round trips over connections that are kept. Through the library's own connections, which are given.

Its pool looks at a connection each time before it lends it, and its pipelines do much that one kind of command has no
use for: together as much work as sending and hearing. Here a connection stays out of the pool from one round trip to
the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_TRIES: Final = 2
"""The first may find that the store has closed the connection meanwhile."""
_PART_BYTES: Final = 256 << 10
"""So much is sent at once: each part has the library's time limit for itself, as batches of a slow network need it."""


@dataclass(frozen=True, slots=True)
class Replies:
    """The classes of the library's exceptions that are told apart here.

    Attributes:
        error: a command's own; the next reply follows it.
        lost: the connection is gone, and another try is worth it at once.
    """

    error: type[Exception]
    lost: type[Exception]


class Lines:
    """The kept connections, one for each pool. For many threads: what one of them uses the others do not see.

    Args:
        replies: of the library.
    """

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._kept: dict[Any, Any] = {}

    def ask(self, client: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """One round trip: the reply to each command, or its exception in its place.

        The commands may run twice.

        Args:
            client: the library's client of a server.
            commands: their words.

        Raises:
            Exception: the library's, where the replies did not all come.
        """
        pool = client.connection_pool
        connection = self._kept.pop(pool, None) or pool.get_connection()
        try:
            results = self._hear(connection, commands)
        except BaseException:  # replies may still be on their way, to whoever asks next
            connection.disconnect()
            pool.release(connection)
            raise
        if self._kept.setdefault(pool, connection) is not connection:
            pool.release(connection)
        return results

    def _hear(self, connection: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
        words = memoryview(b"".join([part for each in commands for part in connection.pack_command(*each)]))
        parts = [words[at : at + _PART_BYTES] for at in range(0, len(words), _PART_BYTES)]
        for tries_left in reversed(range(_TRIES)):
            try:
                connection.send_packed_command(parts, check_health=False)
                return [self._reply(connection) for _ in commands]
            except self._replies.lost:
                connection.disconnect()
                if not tries_left:
                    raise
        raise AssertionError("there is a last try")

    def _reply(self, connection: Any) -> Any:
        try:
            return connection.read_response()
        except self._replies.error as error:
            return error

    def drop(self) -> None:
        """Close those that nobody uses now: they may lead to a server that is no master any more."""
        for pool in list(self._kept):
            connection = self._kept.pop(pool, None)
            if connection is not None:  # else another thread uses it just now
                connection.disconnect()
                pool.release(connection)
