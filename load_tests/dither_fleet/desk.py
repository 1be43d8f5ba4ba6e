"""Batches that wait for their time: fresh ones as devices come, and those that have to be tried again.

A device that was told to wait holds up no other, and no connection.
"""

import heapq
import threading
import time
from dataclasses import dataclass, field

from dither_fleet.sealing import Sealed


@dataclass(order=True)
class Job:
    """One batch on its way.

    Attributes:
        due: when to try, monotonic seconds.
        number: of the job, in the order of their making.
        sealed: the batch.
        tries: how often it was tried.
        accepted: whether the server has it, and it is sent once more on purpose.
    """

    due: float
    number: int
    sealed: Sealed = field(compare=False)
    tries: int = field(default=0, compare=False)
    accepted: bool = field(default=False, compare=False)


class Desk:
    """Hands out jobs when they are due.

    Args:
        ahead: how many fresh jobs may wait before their maker has to.
    """

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead
        lock = threading.Lock()
        self._work = threading.Condition(lock)
        self._room = threading.Condition(lock)
        self._jobs: list[Job] = []
        self._out = 0
        self._closed = False
        self._stopped = False

    def put(self, jobs: list[Job]) -> bool:
        """Bring fresh jobs, and wait while there are many; False where nobody wants any more."""
        with self._work:
            for job in jobs:
                heapq.heappush(self._jobs, job)
            self._work.notify(len(jobs))
            self._room.wait_for(lambda: self._stopped or len(self._jobs) < self._ahead)
            return not (self._stopped or self._closed)

    def close(self) -> None:
        """There are no more fresh jobs."""
        with self._work:
            self._closed = True
            self._work.notify_all()

    def stop(self) -> None:
        """Hand out nothing more."""
        with self._work:
            self._stopped = True
            self._work.notify_all()
            self._room.notify_all()

    def take(self) -> Job | None:
        """The next job, when it is due; None at the end. Each one is given back by `again` or `done`."""
        with self._work:
            while not self._stopped:
                wait_s = None
                if self._jobs:
                    wait_s = self._jobs[0].due - time.monotonic()
                    if wait_s <= 0:
                        return self._pop()
                elif self._closed and self._out == 0:
                    return None
                self._work.wait(wait_s)
            return None

    def _pop(self) -> Job:
        self._out += 1
        job = heapq.heappop(self._jobs)
        if len(self._jobs) < self._ahead:
            self._room.notify()
        if self._jobs:
            self._work.notify()  # one who waits may have been woken for a job that another one took
        return job

    def again(self, job: Job) -> None:
        """Give a job back that has to be tried again when it is due."""
        with self._work:
            self._out -= 1
            heapq.heappush(self._jobs, job)
            self._work.notify()

    def done(self) -> None:
        """Give a job back that is settled."""
        with self._work:
            self._out -= 1
            if not self._jobs and self._out == 0:
                self._work.notify_all()

    def left(self) -> list[Job]:
        """What still waits."""
        with self._work:
            return list(self._jobs)
