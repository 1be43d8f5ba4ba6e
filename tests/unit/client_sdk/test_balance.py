"""The balance: what one answer needs to know of the state, in one read, and its sums in one write."""

import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from dither_client import RecordStatus, consent
from dither_client.balance import (
    LIFETIME,
    MAX_SET_BACK,
    QUEUED_BYTES,
    QUEUED_REPORTS,
    Balance,
    add_to_totals,
    read_balance,
    read_total,
)
from dither_client.state import State
from support.clients import make_client

TODAY = date(2026, 11, 29)


def test_a_new_state_has_an_empty_balance() -> None:
    """Nothing is decided, nothing spent, nothing queued; the day is today's."""
    state = State(None)
    with state.transaction() as connection:
        assert read_balance(connection, TODAY) == Balance(None, 0, 0, 0, "2026-11-29", 0)
    state.close()


@pytest.mark.parametrize("agrees", [True, False])
def test_the_balance_has_the_decision_and_every_sum(agrees: bool) -> None:
    """Each figure comes from the place where it is kept, and none from another's."""
    state = State(None)
    with state.transaction() as connection:
        consent.decide(connection, agrees)
        add_to_totals(connection, (LIFETIME, 5), (QUEUED_REPORTS, 6), (QUEUED_BYTES, 7), ("2026-11-29", 8))
        add_to_totals(connection, ("2026-11-28", 100), ("loss 1 0.5", 200))
        found = read_balance(connection, TODAY)
    assert found == Balance("yes" if agrees else "no", 5, 6, 7, "2026-11-29", 8)
    state.close()


@pytest.mark.parametrize(
    ("latest", "counts"),
    [
        (TODAY + timedelta(days=1), True),
        (TODAY + MAX_SET_BACK, True),
        (TODAY + MAX_SET_BACK + timedelta(days=1), False),
        (TODAY - timedelta(days=1), False),
    ],
)
def test_charges_are_booked_on_the_latest_day_within_40(latest: date, counts: bool) -> None:
    """A clock that was set back refills no day; one that was wrong for long does not silence the device."""
    state = State(None)
    with state.transaction() as connection:
        add_to_totals(connection, (latest.isoformat(), 8))
        found = read_balance(connection, TODAY)
    assert (found.day, found.spent_on_it) == ((latest.isoformat(), 8) if counts else ("2026-11-29", 0))
    state.close()


def test_the_last_day_of_the_calendar_has_a_balance() -> None:
    """A broken clock must not break the app: there is no day 40 days after the last one."""
    state = State(None)
    with state.transaction() as connection:
        assert read_balance(connection, date.max).day == "9999-12-31"
    state.close()


def test_any_number_of_sums_is_added_in_one_go() -> None:
    """Each begins at zero, and may be taken from."""
    state = State(None)
    with state.transaction() as connection:
        add_to_totals(connection, ("s", 5))
        add_to_totals(connection, ("s", -2), ("t", 1))
        add_to_totals(connection, ("s", 1), ("t", 2), ("u", 3), ("v", 4), ("w", 5))
        assert [read_total(connection, scope) for scope in "stuvwx"] == [4, 3, 3, 4, 5, 0]
    state.close()


def test_record_takes_six_statements(tmp_path: Path) -> None:
    """Begin, one read, three writes, commit: an app waits for each of them."""
    now = datetime(2026, 11, 29, 13, tzinfo=UTC)
    client = make_client(state_dir=tmp_path, clock=lambda: now)
    assert client.record("dark_mode", True).status is RecordStatus.QUEUED
    connection = client._state._connection
    assert connection is not None
    statements: list[str] = []
    me = threading.get_ident()

    def note(text: str) -> None:
        if threading.get_ident() == me:  # the sender looks into the state, too
            statements.append(text)

    now += timedelta(days=8)
    connection.set_trace_callback(note)
    assert client.record("dark_mode", True).status is RecordStatus.QUEUED
    connection.set_trace_callback(None)
    client.shutdown(0.0)
    assert [text.split()[0] for text in statements] == [
        "BEGIN", "SELECT", "INSERT", "INSERT", "INSERT", "COMMIT",
    ]  # fmt: skip
