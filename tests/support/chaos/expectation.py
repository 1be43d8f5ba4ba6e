"""What must have become of a batch, from every try of it and every answer to it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from support.chaos.network import ACCEPTED, Device, Try
from support.chaos.violations import Fault, Violation


@dataclass(frozen=True)
class Bounds:
    """How often a report may and must have been counted."""

    least: int
    most: int


COUNTED = Bounds(1, 1)
REFUSED = Bounds(0, 0)
OPEN = Bounds(0, 1)


def bounds(device: Device, clocks: Sequence[datetime]) -> list[Bounds]:
    """The bounds of each report of a device's batch.

    One answer that took the batch for the first time settles all. An answer that calls it a duplicate says that it
    was taken; what was refused is then known from the times at which it may have been. Without either, a try that
    was not answered, or with an error of the server, leaves open whether the batch was taken.
    """
    taken = [made for made in device.tries if made.status == ACCEPTED]
    fresh = next((made for made in taken if not made.duplicate), None)
    reports = device.batch.reports
    if fresh is not None:
        return [REFUSED if place in fresh.rejected else COUNTED for place in range(len(reports))]
    doubtful = [made for made in device.tries if made.status is None or made.status >= 500]
    times = [now for made in taken + doubtful for now in _times(made, clocks) if device.batch.taken_at(now)]
    found = []
    for report in reports:
        votes = {report.accepted_at(now) for now in times}
        found.append(Bounds(int(bool(taken) and votes == {True}), int(True in votes)))
    return found


def together(device: Device, clocks: Sequence[datetime]) -> list[int]:
    """Places of reports of which all or none must be counted: those that every possible time accepts."""
    times = [now for made in device.tries for now in _times(made, clocks) if device.batch.taken_at(now)]
    return [n for n, report in enumerate(device.batch.reports) if all(map(report.accepted_at, times))]


def wrong_answers(device: Device, clocks: Sequence[datetime]) -> Iterator[Violation]:
    """Answers that contradict each other or the rules of admission."""
    name = device.batch.batch_id.hex()
    fresh = [made for made in device.tries if made.status == ACCEPTED and not made.duplicate]
    if len(fresh) > 1:
        yield Violation(Fault.TAKEN_TWICE, f"batch {name}: {len(fresh)} answers say that it was new")
    for made in device.tries:
        if not _right(made, device, clocks):
            yield Violation(Fault.WRONG_ANSWER, f"batch {name}: {made}, rejected {sorted(made.rejected)}")


def _right(made: Try, device: Device, clocks: Sequence[datetime]) -> bool:
    if made.status is None or made.status == 503:
        return True
    for now in _times(made, clocks):
        taken = device.batch.taken_at(now)
        if made.status == 422 and not taken:
            return True
        if made.status == ACCEPTED and taken and made.rejected == _rejected_at(device, now):
            return True
    return False


def _rejected_at(device: Device, now: datetime) -> frozenset[int]:
    return frozenset(n for n, report in enumerate(device.batch.reports) if not report.accepted_at(now))


def _times(made: Try, clocks: Sequence[datetime]) -> Sequence[datetime]:
    """The times that the server's clock may have shown when it judged this try."""
    return (
        clocks[made.first_clock :]
        if made.last_clock is None
        else clocks[made.first_clock : made.last_clock + 1]
    )
