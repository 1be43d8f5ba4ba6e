"""One process of a load run: makes its devices, sends their batches, tries again, and tells what came of it."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

import numpy as np

from dither_client.backoff import backoff_s
from dither_client.transport import Delivered, Outcome, Retry
from dither_fleet.desk import Desk, Job
from dither_fleet.lean_transport import LeanTransport
from dither_fleet.making import Fleetwide, Makers
from dither_fleet.profiles import Schedule
from dither_fleet.sealing import Sealed
from dither_fleet.tally import Tally

TELL_S: Final = 0.25
"""How often a process tells its numbers, seconds."""

AHEAD: Final = 2_000
_SWITCH_S: Final = 0.001
_AGAIN_AFTER_S: Final = (0.0, 0.5)


@dataclass(frozen=True)
class Order:
    """What one process has to do. Can be pickled.

    Attributes:
        endpoint: base URL of the server; None: nothing is sent.
        ingest_key: key of the devices.
        fleet: the devices.
        schedule: when they come.
        process: number of this process.
        processes: how many there are.
        connections: how many requests of this process may be under way.
        begins: monotonic seconds at which the run begins; the clock is the machine's, so all processes share it.
        ends_after_s: no more devices come after so many seconds of the run.
        patience_s: how long after that batches are still tried.
    """

    endpoint: str | None
    ingest_key: str
    fleet: Fleetwide
    schedule: Schedule
    process: int
    processes: int
    connections: int
    begins: float
    ends_after_s: float
    patience_s: float


class Devices:
    """The devices of one process.

    Args:
        order: what to do.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._desk = Desk(AHEAD)
        self._lock = threading.Lock()
        self._tally = Tally()
        self._stopped = threading.Event()

    def take_tally(self) -> Tally:
        """The numbers since the last call."""
        with self._lock:
            taken, self._tally = self._tally, Tally()
        return taken

    def stop(self) -> None:
        """End soon; what is under way is given up without being counted as a surprise."""
        self._stopped.set()
        self._desk.stop()

    def run(self) -> None:
        """Make and send everything; returns when all is settled or the patience is over."""
        senders = [
            threading.Thread(target=self._send_all, daemon=True) for _ in range(self._order.connections)
        ]
        for sender in senders:
            sender.start()
        if self._order.endpoint is None:  # to be timed; otherwise devices are made ahead of their time
            self._stopped.wait(self._order.begins - time.monotonic())
        self._make_all()
        self._desk.close()
        deadline = self._order.begins + self._order.ends_after_s + self._order.patience_s
        for sender in senders:
            sender.join(max(0.0, deadline - time.monotonic()))
        self._desk.stop()
        for sender in senders:
            sender.join()
        if not self._stopped.is_set():
            self._give_up(self._desk.left())

    def _make_all(self) -> None:
        order, serial = self._order, 0
        last = order.begins + order.ends_after_s
        for numbers, batches in Makers(order.fleet, order.process, order.processes).groups():
            dues = (order.begins + order.schedule.arrivals(np.asarray(numbers, dtype=np.int64))).tolist()
            if self._stopped.is_set() or time.monotonic() > last:
                return
            coming = sum(due <= last for due in dues)  # those after the end do not come
            jobs = []
            for due, sealed in _each(dues[:coming], batches[:coming]):
                jobs.append(Job(due, serial, sealed))
                serial += 1
            with self._lock:
                self._tally.devices += coming
                self._tally.made.update(job.sealed.fate for job in jobs)
            if order.endpoint is not None and not self._desk.put(jobs):
                return
            if coming < len(dues):
                return

    def _send_all(self) -> None:
        if self._order.endpoint is None:
            return
        transport = LeanTransport(self._order.endpoint, self._order.ingest_key)
        while (job := self._desk.take()) is not None:
            self._try(job, transport)
        transport.close()

    def _try(self, job: Job, transport: LeanTransport) -> None:
        first = job.tries == 0
        job.tries += 1
        began = time.monotonic()
        if first and self._order.schedule.rate is not None:
            with self._lock:
                self._tally.waits.add(began - self._order.begins, began - job.due)
        if first and job.sealed.trouble in ("cut", "swallow"):
            transport.abandon(job.sealed.body, whole=job.sealed.trouble == "swallow")
            with self._lock:
                self._tally.retries[job.sealed.trouble] += 1
            self._again(job, backoff_s(1))
            return
        outcome = transport.send(job.sealed.body)
        ended = time.monotonic()
        with self._lock:
            self._tally.note(job.sealed.fate, outcome, ended - self._order.begins, ended - began)
        self._follow(job, outcome)

    def _follow(self, job: Job, outcome: Outcome) -> None:
        """What a device does after an answer."""
        if isinstance(outcome, Retry):
            self._again(job, backoff_s(job.tries) if outcome.after_s is None else outcome.after_s)
            return
        taken = isinstance(outcome, Delivered)
        if job.accepted:
            if not (isinstance(outcome, Delivered) and outcome.duplicate):
                with self._lock:
                    self._tally.surprises["a batch sent once more was not known as a duplicate"] += 1
        else:
            with self._lock:
                self._tally.settle(job.sealed.fate, outcome)
        if taken and job.sealed.trouble == "duplicate" and not job.accepted:
            job.accepted = True
            self._again(job, np.random.default_rng().uniform(*_AGAIN_AFTER_S))
            return
        self._desk.done()

    def _again(self, job: Job, after_s: float) -> None:
        job.due = time.monotonic() + after_s
        self._desk.again(job)

    def _give_up(self, jobs: list[Job]) -> None:
        """Nobody has the patience any more: what was not settled is not known to be anywhere."""
        with self._lock:
            lost = sum(not job.accepted for job in jobs)
            if lost:
                self._tally.surprises["a batch was given up: no patience"] += lost


def _each(dues: list[float], batches: list[list[Sealed]]) -> Iterator[tuple[float, Sealed]]:
    """Each batch with the time of its device."""
    for due, mine in zip(dues, batches, strict=True):
        for sealed in mine:
            yield due, sealed


def main(order: Order, told: Connection) -> None:
    """The process: tells tallies through ``told`` until the last one, then None. Its parent's end is its own."""
    # Ctrl-C goes to the whole group of a terminal; the parent decides, and closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_S)
    parent = os.getppid()
    devices = Devices(order)
    ended = threading.Event()

    def tell() -> None:
        try:
            while not ended.wait(TELL_S):
                if os.getppid() != parent:
                    raise BrokenPipeError
                told.send(devices.take_tally())
        except OSError:
            devices.stop()

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        devices.run()
    finally:
        ended.set()
        teller.join()
    try:
        told.send(devices.take_tally())
        told.send(None)
    except OSError:
        sys.exit(1)  # nobody listens any more
