"""Calls of several threads in one round trip. Pure: what a round trip is, is given.

While one call is under way the next ones gather, and go together as soon as it is back; a lone call goes at once.
So nothing waits for company, and a store that syncs its disk for each round trip is asked less often the more
threads ask.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Generic, TypeVar, cast

Call = TypeVar("Call")
Result = TypeVar("Result")


class _Ticket(Generic[Call, Result]):
    """One call of one thread. Its ``turn`` is released when it has a result, or has to lead."""

    __slots__ = ("call", "result", "settled", "turn")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.turn = Lock()
        self.turn.acquire()
        self.settled = False
        self.result: Result | BaseException | None = None


class GroupCommit(Generic[Call, Result]):
    """Gathers calls.

    Args:
        run: takes up to ``most`` calls at once and gives a result or an exception for each, in their order; what it
            raises itself is raised by every one of them.
        most: largest number of calls of one round trip.
    """

    def __init__(self, run: Callable[[Sequence[Call]], Sequence[Result | Exception]], most: int = 64) -> None:
        self._run = run
        self._most = most
        self._lock = Lock()
        self._waiting: list[_Ticket[Call, Result]] = []
        self._led = False

    def submit(self, call: Call) -> Result:
        """The result of ``call``, once its round trip is over.

        Raises:
            Exception: whatever ``run`` gave for this call, or raised.
        """
        ticket: _Ticket[Call, Result] = _Ticket(call)
        with self._lock:
            self._waiting.append(ticket)
            lead, self._led = not self._led, True
        if not lead:
            ticket.turn.acquire()
        if not ticket.settled:
            self._lead()
        if isinstance(ticket.result, BaseException):
            raise ticket.result
        return cast(Result, ticket.result)

    def _lead(self) -> None:
        """Run what has gathered (the leader's own call is first), then hand over to the first that came since."""
        with self._lock:
            group, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        try:
            results: Sequence[Result | BaseException] = self._run([ticket.call for ticket in group])
        except BaseException as error:  # SystemExit too: nobody may be left waiting
            results = [error] * len(group)
        for ticket, result in zip(group, results, strict=True):
            ticket.result, ticket.settled = result, True
        with self._lock:
            successor = self._waiting[0] if self._waiting else None
            self._led = successor is not None
        if successor is not None:
            successor.turn.release()
        for ticket in group[1:]:
            ticket.turn.release()
