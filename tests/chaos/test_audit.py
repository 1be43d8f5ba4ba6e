"""What the harness believes and what it sees: each kind of damage, done by hand to a real store, is named."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from dither_protocol.storage import ENTRY_FIELD, decode_cell, encode_cell
from support.chaos.audit import KEYS, Expected, audit, audit_all, balance_now
from support.chaos.expectation import COUNTED, OPEN, REFUSED, bounds, together, wrong_answers
from support.chaos.history import PlannedBatch, PlannedReport, Spoil
from support.chaos.network import Device, Try
from support.chaos.questions import base_time, metric
from support.chaos.sealing import NOWHERE, seal
from support.chaos.violations import Fault
from support.store import running_store

NOW = base_time(0)
LATER = NOW + timedelta(hours=7)  # the hour's window is closed, the day's is not
CLOCKS = [NOW, LATER]
REPORTS = (
    PlannedReport("hourly", 0, (), 5),
    PlannedReport("wide", 0, (), 7),
    PlannedReport("wide", 0, (), 9, Spoil.PARAMS),
)


def _device(*tries: Try) -> Device:
    device = Device(0, seal(PlannedBatch(0.0, 0, False, 1, REPORTS), 0, "batch"), lambda: 0)
    device.tries.extend(tries)
    return device


@pytest.mark.parametrize(
    ("tries", "expected"),
    [
        ([Try(0, 0, 202, rejected=frozenset({2}))], [COUNTED, COUNTED, REFUSED]),
        ([Try(0), Try(1, 1, 202, rejected=frozenset({0, 2}))], [REFUSED, COUNTED, REFUSED]),
        ([Try(0), Try(1, 1, 202, True, frozenset({0, 2}))], [OPEN, COUNTED, REFUSED]),
        ([Try(0, 0, 503), Try(0, 0, 422)], [OPEN, OPEN, REFUSED]),
        ([Try(1)], [REFUSED, OPEN, REFUSED]),
        ([Try(0, 0, 422)], [REFUSED, REFUSED, REFUSED]),
    ],
    ids=["taken", "taken late", "taken some time", "perhaps", "perhaps, late", "never"],
)
def test_what_must_have_become_of_a_batch(tries: list[Try], expected: list[object]) -> None:
    """An answer settles it; without one everything stays open that may have happened, and nothing else does."""
    assert bounds(_device(*tries), CLOCKS) == expected


def test_what_every_possible_time_accepts_goes_together() -> None:
    """A batch that may have been taken at two times is whole in what both accept."""
    assert together(_device(Try(0)), CLOCKS) == [1]
    assert together(_device(Try(0, 0, 503)), CLOCKS) == [0, 1]


@pytest.mark.parametrize(
    ("tries", "fault"),
    [
        (
            [Try(0, 0, 202, rejected=frozenset({2})), Try(0, 0, 202, True, frozenset({2})), Try(0, 0, 503)],
            None,
        ),
        (
            [Try(0, 0, 202, rejected=frozenset({2})), Try(0, 0, 202, rejected=frozenset({2}))],
            Fault.TAKEN_TWICE,
        ),
        ([Try(0, 0, 202)], Fault.WRONG_ANSWER),
        ([Try(0, 0, 202, rejected=frozenset({0, 2}))], Fault.WRONG_ANSWER),
        ([Try(0, 1, 202, rejected=frozenset({0, 2}))], None),
        ([Try(0, 0, 422)], Fault.WRONG_ANSWER),
        ([Try(0, 0, 500)], Fault.WRONG_ANSWER),
    ],
)
def test_answers_are_held_against_the_rules(tries: list[Try], fault: Fault | None) -> None:
    """An answer that no possible time of the server explains is wrong, as are two that call one batch new."""
    assert [found.fault for found in wrong_answers(_device(*tries), CLOCKS)] == ([fault] if fault else [])


class Counted:
    """A store as it must look when one batch was counted; a test changes one thing in it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.expected = Expected()
        device = _device(Try(0, 0, 202, rejected=frozenset({2})))
        self.expected.add(device, [NOW])
        self.reports = device.batch.reports
        for report in self.reports[:2]:
            counters = [int(n == report.bucket) for n in range(metric(report.outcome[0]).mechanism.d)]
            client.set(KEYS[1].cell(report.cell), encode_cell(1, counters))
        accounts = {"received": 1, "accepted": 1, "counted": 1}
        client.hset(KEYS[1].outcome(*self.reports[0].outcome), mapping=accounts)
        accounts |= {"received": 2, "rejected:params-mismatch": 1}
        client.hset(KEYS[1].outcome(*self.reports[1].outcome), mapping=accounts)

    def change(self, place: int, n: int, bucket: int, count: int) -> None:
        """Other numbers in one of the two cells."""
        key = KEYS[1].cell(self.reports[place].cell)
        counters = list(decode_cell(self.client.get(key))[1])
        counters[bucket] = count
        self.client.set(key, encode_cell(n, counters))

    def faults(self) -> set[Fault]:
        """What an audit of everything finds."""
        return {violation.fault for violation in audit_all(self.client, self.expected)}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A store of the module's own."""
    with running_store() as store:
        yield store.client()


@pytest.fixture
def counted(client: Any) -> Counted:
    """A sound store."""
    client.flushall()
    return Counted(client)


def test_a_sound_store_passes(counted: Counted) -> None:
    """The other tests change one thing each in this store."""
    assert counted.faults() == set()
    assert audit(counted.client, counted.expected, [NOWHERE]) == []


def test_every_damage_to_a_cell_is_named(counted: Counted) -> None:
    """Counted twice, lost, damaged, torn: each is told from the others."""
    counted.change(0, 2, 5, 2)
    assert counted.faults() == {Fault.DOUBLED, Fault.UNBALANCED}
    counted.change(0, 1, 5, 1)
    counted.change(1, 2, 9, 1)  # the report that was refused
    assert counted.faults() == {Fault.CORRUPT, Fault.UNBALANCED}
    counted.change(1, 1, 9, 0)
    counted.change(1, 0, 7, 0)
    assert counted.faults() == {Fault.LOST, Fault.TORN, Fault.UNBALANCED}
    counted.change(1, 1, 7, 1)
    counted.change(0, 2, 5, 1)
    assert Fault.WRONG_SUM in counted.faults()


def test_a_cell_that_nobody_named_is_damage(counted: Counted) -> None:
    """Whatever it holds."""
    counted.client.set(KEYS[2].cell(counted.reports[0].cell), encode_cell(0, [0] * 48))
    assert counted.faults() == {Fault.CORRUPT}


def test_accounts_streams_and_dead_entries_are_looked_at(counted: Counted) -> None:
    """The accounts must add up and cover all answers, the backlog must be the stream's, and nothing be dead."""
    counted.expected.acknowledged += 1
    assert counted.faults() == {Fault.UNBALANCED}
    counted.expected.acknowledged -= 1
    counted.client.hincrby(KEYS[1].outcome(*NOWHERE), "received", 1)
    assert counted.faults() == {Fault.UNBALANCED}
    assert [found.fault for found in balance_now(counted.client, [NOWHERE])[0]] == [Fault.UNBALANCED]
    counted.client.delete(KEYS[1].outcome(*NOWHERE))
    counted.client.set(KEYS[3].backlog, 12)
    counted.client.xadd(KEYS[0].dead, {"id": "1-1", "reason": "damaged", ENTRY_FIELD: b""})
    assert counted.faults() == {Fault.BACKLOG, Fault.DEAD}


def test_a_time_is_needed_for_every_try() -> None:
    """The clocks of the tests above are the ones that they are meant to be."""
    hour, day, _ = _device().batch.reports
    assert [hour.accepted_at(now) for now in CLOCKS] == [True, False]
    assert [day.accepted_at(now) for now in CLOCKS] == [True, True]
    assert isinstance(hour.opens, datetime)
