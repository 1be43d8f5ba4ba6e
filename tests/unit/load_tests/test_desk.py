"""The desk: who is to be tried next."""

import threading
import time

from dither_fleet.desk import Desk, Job
from dither_fleet.expectation import Fate
from dither_fleet.sealing import Sealed

SEALED = Sealed(b"", Fate(()))
HANG_S = 30.0


def _job(number: int, due: float = 0.0) -> Job:
    return Job(due, number, SEALED)


def test_jobs_come_by_their_time_and_then_in_order() -> None:
    """Whatever the order in which they were brought; the end comes after the last one was given back."""
    desk = Desk(10)
    desk.put([_job(2, 1.0), _job(1, 0.5), _job(3, 0.5)])
    desk.close()
    taken = []
    while (job := desk.take()) is not None:
        taken.append(job.number)
        desk.done()
    assert taken == [1, 3, 2]


def test_a_job_is_not_given_out_before_its_time() -> None:
    """Nor lost: whoever waits gets it then."""
    desk = Desk(10)
    due = time.monotonic() + 0.2
    desk.put([_job(1, due)])
    assert desk.take() is not None
    assert time.monotonic() >= due


def test_what_has_to_be_tried_again_keeps_the_desk_open() -> None:
    """A closed desk is at its end only when nothing is out any more."""
    desk = Desk(10)
    desk.put([_job(1)])
    desk.close()
    job = desk.take()
    assert job is not None
    found: list[Job | None] = []
    waiting = threading.Thread(target=lambda: found.append(desk.take()))
    waiting.start()
    desk.again(job)
    waiting.join(HANG_S)
    assert found == [job]
    desk.done()
    assert desk.take() is None


def test_makers_wait_while_there_is_enough() -> None:
    """And go on when jobs were taken; at a stop they are told that nobody wants any more."""
    desk = Desk(2)
    went_on = threading.Event()
    answers: list[bool] = []

    def make() -> None:
        answers.append(desk.put([_job(1), _job(2), _job(3)]))
        went_on.set()

    making = threading.Thread(target=make)
    making.start()
    assert not went_on.wait(0.1)
    assert desk.take() is not None
    assert not went_on.wait(0.1)
    assert desk.take() is not None
    assert went_on.wait(HANG_S)
    desk.stop()
    assert desk.put([_job(4)]) is False
    assert answers == [True]
    assert desk.take() is None
    assert [job.number for job in desk.left()] == [3, 4]
    making.join(HANG_S)
