"""The outbox: sealing respects the limits of the wire, and separates periods."""

import json
from datetime import date

from dither_client import outbox
from dither_client.state import State
from dither_protocol.wire import MAX_BODY_BYTES, MAX_REPORTS, decode_json, parse_envelope

TODAY = date(2026, 11, 29)


def _sealed(reports: list[tuple[str, date | None, str]]) -> list[outbox.Batch]:
    state = State(None)
    batches = []
    with state.transaction(durable=True) as connection:
        for report in reports:
            outbox.add(connection, *report)
        outbox.seal(connection, TODAY)
        while batch := outbox.first_batch(connection):
            batches.append(batch)
            outbox.remove(connection, batch.batch_id)
        assert outbox.pending_reports(connection) == 0
    state.close()
    return batches


def test_different_periods_never_share_a_batch() -> None:
    """A batch of daily reports and one of weekly ones, each with its own id and date."""
    batches = _sealed([("day", date(2026, 12, 2), '{"a":1}'), ("week", date(2026, 12, 9), '{"b":2}')])
    assert {(b.until, b.reports) for b in batches} == {(date(2026, 12, 2), 1), (date(2026, 12, 9), 1)}
    assert len({b.batch_id for b in batches}) == 2


def test_until_is_the_latest_date_of_the_reports_within_forty_days() -> None:
    """Forty days is the most a server has to remember an id; `once` has thirty."""
    (batch,) = _sealed([("day", date(2026, 12, 1), "{}"), ("day", date(2026, 12, 5), "{}")])
    assert batch.until == date(2026, 12, 5)
    (batch,) = _sealed([("month", date(2027, 3, 1), "{}")])
    assert batch.until == date(2027, 1, 8)
    (batch,) = _sealed([("once", None, "{}")])
    assert batch.until == date(2026, 12, 29)


def test_a_batch_holds_at_most_a_thousand_reports() -> None:
    """2,500 reports make batches of 1,000, 1,000 and 500."""
    batches = _sealed([("day", date(2026, 12, 2), f'{{"i":{i}}}') for i in range(2_500)])
    assert sorted(b.reports for b in batches) == [500, MAX_REPORTS, MAX_REPORTS]
    numbers = [report["i"] for b in batches for report in json.loads(b.body)["reports"]]  # type: ignore[index]
    assert sorted(numbers) == list(range(2_500))


def test_a_batch_stays_below_the_body_limit() -> None:
    """Large reports are spread over batches that each fit into one request."""
    large = json.dumps({"data": "x" * 300_000})
    batches = _sealed([("day", date(2026, 12, 2), large)] * 7)
    assert sum(b.reports for b in batches) == 7
    assert all(len(b.body) <= MAX_BODY_BYTES for b in batches)


def test_a_sealed_batch_is_what_the_wire_says() -> None:
    """The body parses back to the same id, date and reports."""
    (batch,) = _sealed([("day", date(2026, 12, 2), '{"i":1}')])
    envelope = parse_envelope(decode_json(batch.body))
    assert (envelope.batch_id, envelope.until, envelope.reports) == (batch.batch_id, batch.until, [{"i": 1}])
