"""The outbox: sealing respects the limits of the wire, nothing is lost on the way, and a full queue tells nothing."""

import json
from collections.abc import Iterator
from datetime import date

import pytest

from dither_client import outbox
from dither_client.balance import QUEUED_BYTES, QUEUED_REPORTS, read_total
from dither_client.state import State
from dither_protocol.wire import MAX_BODY_BYTES, MAX_REPORTS, decode_json, parse_envelope
from support.bookings import queued

TODAY = date(2026, 11, 29)
NOW = 1_000_000.0
ME, OTHER = "me", "other"


@pytest.fixture
def state() -> Iterator[State]:
    """A state in memory."""
    made = State(None)
    yield made
    made.close()


def _report(
    body: str = '{"data":1}',
    period: str = "day",
    last_date: date | None = date(2026, 12, 2),
    due_at: float = NOW,
    owner: str = ME,
) -> outbox.OpenReport:
    return outbox.OpenReport(owner, due_at, period, last_date and last_date.isoformat(), body)


def _add(state: State, *reports: outbox.OpenReport) -> None:
    with state.transaction() as connection:
        for report in reports:
            assert queued(connection, report)


def _seal(state: State, *, everything: bool = False, alone: bool = False, owner: str = ME) -> None:
    with state.transaction(durable=True) as connection:
        outbox.seal(connection, owner, TODAY, NOW, everything=everything, alone=alone)


def _next(state: State, owner: str = ME) -> outbox.Batch | None:
    with state.transaction(durable=True) as connection:
        return outbox.next_batch(connection, owner)


def _taken(state: State, owner: str = ME) -> list[outbox.Batch]:
    """All sealed batches, taken out one by one."""
    batches = []
    while batch := _next(state, owner):
        batches.append(batch)
        with state.transaction() as connection:
            outbox.remove(connection, batch)
    return batches


def _totals(state: State) -> tuple[int, int]:
    with state.transaction() as connection:
        return read_total(connection, QUEUED_REPORTS), read_total(connection, QUEUED_BYTES)


def _sealed(state: State, *reports: outbox.OpenReport) -> list[outbox.Batch]:
    _add(state, *reports)
    _seal(state)
    batches = _taken(state)
    with state.transaction() as connection:
        assert outbox.pending_reports(connection, ME) == 0
    assert _totals(state) == (0, 0)
    return batches


def test_different_periods_never_share_a_batch(state: State) -> None:
    """A batch of daily reports and one of weekly ones, each with its own id and date."""
    batches = _sealed(state, _report(), _report(period="week", last_date=date(2026, 12, 9)))
    assert {(b.until, b.reports) for b in batches} == {(date(2026, 12, 2), 1), (date(2026, 12, 9), 1)}
    assert len({b.batch_id for b in batches}) == 2


def test_until_is_the_latest_date_of_the_reports_within_forty_days(state: State) -> None:
    """Forty days is the most a server has to remember an id; `once` has thirty."""
    (batch,) = _sealed(state, _report(last_date=date(2026, 12, 1)), _report(last_date=date(2026, 12, 5)))
    assert batch.until == date(2026, 12, 5)
    (batch,) = _sealed(state, _report(period="month", last_date=date(2027, 3, 1)))
    assert batch.until == date(2027, 1, 8)
    (batch,) = _sealed(state, _report(period="once", last_date=None))
    assert batch.until == date(2026, 12, 29)


def test_a_batch_holds_at_most_a_thousand_reports(state: State) -> None:
    """2,500 reports make batches of 1,000, 1,000 and 500."""
    batches = _sealed(state, *(_report(f'{{"data":{i}}}') for i in range(2_500)))
    assert sorted(b.reports for b in batches) == [500, MAX_REPORTS, MAX_REPORTS]
    numbers = [report["data"] for b in batches for report in json.loads(b.body)["reports"]]
    assert sorted(numbers) == list(range(2_500))


def test_a_batch_stays_below_the_body_limit(state: State) -> None:
    """Large reports are spread over batches that each fit into one request."""
    large = json.dumps({"data": "x" * 300_000}, separators=(",", ":"))
    batches = _sealed(state, *[_report(large)] * 7)
    assert sum(b.reports for b in batches) == 7
    assert all(len(b.body) <= MAX_BODY_BYTES for b in batches)
    assert len(batches) == 3


def test_a_sealed_batch_is_what_the_wire_says(state: State) -> None:
    """The body parses back to the same id, date and reports."""
    (batch,) = _sealed(state, _report())
    envelope = parse_envelope(decode_json(batch.body))
    assert (envelope.batch_id, envelope.until, envelope.reports) == (
        batch.batch_id,
        batch.until,
        [{"data": 1}],
    )


def test_only_what_is_due_is_sealed(state: State) -> None:
    """Reports whose time has not come stay open; a flush takes them too."""
    _add(state, _report('{"data":1}', due_at=NOW - 1), _report('{"data":2}', due_at=NOW + 1))
    _seal(state)
    assert [b.reports for b in _taken(state)] == [1]
    _seal(state, everything=True)
    assert [json.loads(b.body)["reports"] for b in _taken(state)] == [[{"data": 2}]]


def test_a_time_that_only_a_clock_set_back_explains_counts_as_come(state: State) -> None:
    """No delay of ours is two hours long."""
    _add(state, _report(due_at=NOW + outbox.FAR_AHEAD_S + 1))
    with state.transaction() as connection:
        assert outbox.next_due(connection, ME, NOW) == NOW
    _seal(state)
    assert len(_taken(state)) == 1


def test_the_next_due_time_is_the_earliest(state: State) -> None:
    """Nothing queued: none; open reports: the first of their times; a sealed batch: now."""
    with state.transaction() as connection:
        assert outbox.next_due(connection, ME, NOW) is None
    _add(state, _report(due_at=NOW + 7), _report(due_at=NOW + 5), _report(due_at=NOW, owner=OTHER))
    with state.transaction() as connection:
        assert outbox.next_due(connection, ME, NOW) == NOW + 5
    _seal(state, everything=True)
    with state.transaction() as connection:
        assert outbox.next_due(connection, ME, NOW) == NOW


def test_alone_every_report_has_a_batch_of_its_own(state: State) -> None:
    """Twenty reports, twenty batches with twenty ids."""
    _add(state, *(_report(f'{{"data":{i}}}') for i in range(20)))
    _seal(state, alone=True)
    batches = _taken(state)
    assert [b.reports for b in batches] == [1] * 20
    assert len({b.batch_id for b in batches}) == 20


def test_an_owner_sees_only_its_own(state: State) -> None:
    """Neither sealing nor taking touches what another process has queued."""
    _add(state, _report(), _report(owner=OTHER))
    _seal(state)
    assert [b.reports for b in _taken(state)] == [1]
    with state.transaction() as connection:
        assert outbox.pending_reports(connection, OTHER) == 1
    assert _next(state, OTHER) is None


def test_a_batch_in_hand_is_in_doubt_until_an_answer_comes(state: State) -> None:
    """The mark is set as the batch is taken; an answer takes it back, unless there was doubt before."""
    _add(state, _report())
    _seal(state)
    for answered, doubt in ((True, False), (False, True), (True, True)):
        batch = _next(state)
        assert batch is not None
        with state.transaction() as connection:
            assert connection.execute("SELECT in_doubt FROM batches").fetchone() == (1,)
            outbox.postpone(connection, batch, NOW, answered=answered)
        again = _next(state)
        assert again is not None
        assert again.in_doubt is doubt
        with state.transaction() as connection:
            outbox.postpone(connection, again, NOW, answered=True)


def test_a_batch_that_fails_goes_behind_the_others(state: State) -> None:
    """One that always fails holds up no other."""
    _add(state, *(_report(f'{{"data":{i}}}') for i in range(3)))
    _seal(state, alone=True)
    seen = []
    for step in range(6):
        batch = _next(state)
        assert batch is not None
        seen.append(batch.batch_id)
        with state.transaction() as connection:
            outbox.postpone(connection, batch, NOW + step, answered=True)
    assert len(set(seen[:3])) == 3
    assert seen[:3] == seen[3:]


@pytest.mark.parametrize("count", [2, 3, 1_000])
def test_a_split_keeps_every_report_and_the_date(state: State, count: int) -> None:
    """Two halves with new ids, the same `until`, and the same report texts in their order."""
    _add(state, *(_report(f'{{"data":{i}}}') for i in range(count)))
    _seal(state)
    batch = _next(state)
    assert batch is not None
    before = _totals(state)
    with state.transaction(durable=True) as connection:
        assert outbox.split(connection, ME, batch) is True
    assert _totals(state) == before
    halves = sorted(_taken(state), key=lambda b: json.loads(b.body)["reports"][0]["data"])
    assert [b.reports for b in halves] == [count // 2, count - count // 2]
    assert {b.until for b in halves} == {batch.until}
    assert len({batch.batch_id} | {b.batch_id for b in halves}) == 3
    assert [b.in_doubt for b in halves] == [False, False]
    reports = [report for b in halves for report in json.loads(b.body)["reports"]]
    assert reports == json.loads(batch.body)["reports"]
    assert _totals(state) == (0, 0)


def test_a_single_report_cannot_be_split(state: State) -> None:
    """It stays as it is, and the caller is told."""
    _add(state, _report())
    _seal(state)
    batch = _next(state)
    assert batch is not None
    with state.transaction(durable=True) as connection:
        assert outbox.split(connection, ME, batch) is False
    assert [b.body for b in _taken(state)] == [batch.body]


def test_what_was_erased_during_a_try_never_comes_back(state: State) -> None:
    """After an erasure neither a split nor a receipt of the batch in hand changes anything (invariant P8)."""
    _add(state, _report(), _report())
    _seal(state)
    batch = _next(state)
    assert batch is not None
    with state.transaction(durable=True) as connection:
        assert outbox.erase(connection) == 2
        assert outbox.split(connection, ME, batch) is True
        outbox.postpone(connection, batch, NOW, answered=True)
        outbox.remove(connection, batch)
        assert outbox.contents(connection) == ([], [])
    assert _totals(state) == (0, 0)


def test_erasing_takes_open_and_sealed_of_all_owners(state: State) -> None:
    """The whole queue goes, and is counted."""
    _add(state, _report(), _report(owner=OTHER))
    _seal(state)
    _add(state, _report())
    with state.transaction() as connection:
        assert outbox.erase(connection) == 3
        assert outbox.contents(connection) == ([], [])
        assert outbox.erase(connection) == 0


def test_a_removed_batch_is_removed_once(state: State) -> None:
    """Booking the same receipt twice does not make the queue look emptier than it is."""
    _add(state, _report(), _report(period="week"))
    _seal(state)
    batch = _next(state)
    assert batch is not None
    with state.transaction() as connection:
        outbox.remove(connection, batch)
        outbox.remove(connection, batch)
    assert _totals(state)[0] == 1


@pytest.mark.parametrize(("reports", "size"), [(3, 1 << 20), (100, 3 * 40)])
def test_the_queue_is_full_at_its_limit_and_not_before(reports: int, size: int) -> None:
    """Three reports fit, the fourth does not, by number or by bytes."""
    for count, fits in ((3, True), (4, False)):
        state = State(None)
        with state.transaction() as connection:
            taken = [queued(connection, _report(), reports, size) for _ in range(count)]
        assert taken[:3] == [True] * 3
        assert all(taken) is fits
        state.close()


@pytest.mark.parametrize(
    "data", ["0", "7", "1048575", "[0,0]", "[4294967295,1048575]", "[4294967295,0]"], ids=str
)
def test_the_bytes_of_a_report_count_alike_whatever_its_datum(state: State, data: str) -> None:
    """A nearly full queue must not take a short datum and refuse a long one (invariant P9)."""
    _add(state, _report('{"metric":"m","data":0}'))
    one = _totals(state)[1]
    _add(state, _report(f'{{"metric":"m","data":{data}}}'))
    assert _totals(state)[1] == 2 * one


def test_the_contents_are_what_will_leave(state: State) -> None:
    """Sealed bodies as bytes, open reports as the text that will stand in a batch."""
    _add(state, _report('{"data":1}', due_at=NOW - 1), _report('{"data":2}', due_at=NOW + 9))
    _seal(state)
    with state.transaction() as connection:
        bodies, reports = outbox.contents(connection)
    assert reports == ['{"data":2}']
    assert list(bodies) == [b.body for b in _taken(state)]
