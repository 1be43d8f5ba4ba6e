"""A load run: several processes of devices, and their numbers in one place.

::

    with LoadRun(orders) as run:
        while run.poll(0.2):
            show(run.tally)
"""

import multiprocessing
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Final, Self

from dither_fleet.device_process import Order, main
from dither_fleet.making import Fleetwide
from dither_fleet.profiles import Schedule
from dither_fleet.tally import Tally
from dither_protocol.errors import DitherError

START_S: Final = 3.0
"""Processes have so long to start before the first device comes, seconds."""

_END_LIMIT_S: Final = 5.0


class LoadError(DitherError):
    """A process of the load run ended by itself."""


def orders(
    fleet: Fleetwide,
    schedule: Schedule,
    *,
    endpoint: str | None,
    ingest_key: str = "",
    processes: int,
    connections: int,
    ends_after_s: float,
    patience_s: float,
) -> list[Order]:
    """The orders of all processes; they share the connections, each having at least one. See `Order`."""
    begins = time.monotonic() + START_S
    return [
        Order(
            endpoint=endpoint,
            ingest_key=ingest_key,
            fleet=fleet,
            schedule=schedule,
            process=number,
            processes=processes,
            connections=max(1, connections // processes),
            begins=begins,
            ends_after_s=ends_after_s,
            patience_s=patience_s,
        )
        for number in range(processes)
    ]


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """What is started meanwhile ignores SIGINT from its first instant: a terminal sends it to the children, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class LoadRun:
    """The processes of a run. Leaving the context ends them.

    Args:
        given: an order for each process.

    Attributes:
        tally: the numbers of all processes so far.
    """

    def __init__(self, given: Sequence[Order]) -> None:
        self.tally = Tally()
        self.begins = given[0].begins
        context = multiprocessing.get_context("spawn")  # safe beside threads, and the same everywhere
        self._pipes: list[Connection] = []
        self._processes = []
        for order in given:
            listening, telling = context.Pipe(duplex=False)
            process = context.Process(target=main, args=(order, telling), daemon=True)
            with _deaf_to_ctrl_c():
                process.start()
            telling.close()
            self._pipes.append(listening)
            self._processes.append(process)

    @property
    def seconds(self) -> float:
        """Of the run so far; negative while processes start."""
        return time.monotonic() - self.begins

    def poll(self, limit_s: float) -> bool:
        """Take in what processes tell, for at most so long; whether any of them still runs.

        Raises:
            LoadError: one of them ended without having told its last numbers.
        """
        deadline = time.monotonic() + limit_s
        while self._pipes and (left_s := deadline - time.monotonic()) > 0:
            for pipe in wait(self._pipes, left_s):
                self._take(pipe)  # type: ignore[arg-type]  # only pipes were given
        return bool(self._pipes)

    def _take(self, pipe: Connection) -> None:
        try:
            told = pipe.recv()
        except EOFError:
            raise LoadError("a process of simulated devices ended by itself") from None
        if told is None:
            self._pipes.remove(pipe)
            pipe.close()
        else:
            self.tally.merge(told)

    def close(self) -> None:
        """End all processes: they notice that nobody listens, and are ended where they do not."""
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()
        for process in self._processes:
            process.join(_END_LIMIT_S)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
