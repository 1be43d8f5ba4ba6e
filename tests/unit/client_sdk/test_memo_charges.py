"""What memoised answers cost: charged in advance, capped, and the same work for every value."""

import os
import threading
import time
from pathlib import Path

import pytest

from dither_client import RecordResult, RecordStatus, memo
from dither_client.state import State, read_note
from dither_client.testing import FakeClock, MemoryTransport
from dither_protocol.registry import registry_from_document
from support.clients import make_client
from support.memo import memo_document
from support.memo_device import (
    ALREADY,
    BOTH,
    EXHAUSTED,
    QUEUED,
    answer_of,
    days,
    memo_client,
    mood_of,
)
from support.registries import COLORS

# Charges


def test_the_first_report_is_charged_in_full_and_the_later_ones_are_free(tmp_path: Path) -> None:
    """3 values at epsilon 2: 6 for the day and for life; still one report per window, over restarts as well."""
    client, clock = memo_client(tmp_path)
    assert client.record("mood", "red") == QUEUED
    spent = client.privacy_ledger()
    assert (spent.spent_today, spent.spent_lifetime) == (6.0, 6.0)
    assert client.record("mood", "blue") == ALREADY
    clock.advance(days=1)
    client.shutdown()
    client = make_client(MemoryTransport(), state_dir=tmp_path, registry=memo_document(), clock=clock)
    assert days(client, clock, "blue", "green") == [QUEUED, QUEUED]
    spent = client.privacy_ledger()
    assert (spent.spent_today, spent.spent_lifetime) == (0.0, 6.0)
    mood = spent.metrics["mood"]
    assert list(mood.windows.values()) == [6.0, 0.0, 0.0]
    assert (mood.reports, mood.distinct_values) == (3, 3)
    assert [each.about for each in mood.guarantees] == ["report", "life", "reports"]
    client.shutdown()


@pytest.mark.parametrize("limit", ["max_epsilon_per_day", "max_epsilon_lifetime"])
def test_the_whole_charge_must_fit_into_the_limits(limit: str) -> None:
    """Of a day and of life; what does not fit leaves neither charge nor tag nor secret."""
    client, _ = memo_client(**{limit: 5.999})
    assert client.record("mood", "red") == EXHAUSTED
    with client._state.transaction() as connection:
        assert connection.execute("SELECT count(*) FROM memo_values").fetchone() == (0,)
        assert read_note(connection, "memo secret") is None
    assert client.privacy_ledger().spent_lifetime == 0
    client.shutdown()
    client, _ = memo_client(**{limit: 6.0})
    assert client.record("mood", "red") == QUEUED
    client.shutdown()


def test_the_apps_limit_on_epsilon_holds_for_the_permanent_answer() -> None:
    """That is what many reports of one value come to tell (invariant P6)."""
    for limit, expected in ((1.99, RecordResult(RecordStatus.DROPPED, "epsilon_above_limit")), (2.0, QUEUED)):
        client, _ = memo_client(max_epsilon=limit)
        assert client.record("mood", "red") == expected
        client.shutdown()


def test_a_new_version_starts_anew_and_is_charged_anew(tmp_path: Path) -> None:
    """Its permanent answers are new ones."""
    client, clock = memo_client(tmp_path)
    days(client, clock, "red")
    client.shutdown()
    client = make_client(
        MemoryTransport(), state_dir=tmp_path, registry=memo_document(version=2), clock=clock
    )
    assert days(client, clock, "red", "red") == [QUEUED, QUEUED]
    assert client.privacy_ledger().spent_lifetime == 12.0
    client.shutdown()


def test_a_question_that_shares_the_short_hash_of_another_is_charged_anew(tmp_path: Path) -> None:
    """Found by trying labels: 1 value at epsilon 1.5, and 2 at 4 under the same 8 digits (invariant P6)."""
    small = memo_document(epsilon_permanent=1.5, max_distinct_values=1, categories=["red", "a79408"])
    large = memo_document(epsilon_permanent=4.0, max_distinct_values=2, categories=["red", "b28187"])
    assert mood_of(small).params_hash == mood_of(large).params_hash
    client, clock = memo_client(tmp_path, registry=small)
    assert days(client, clock, "red") == [QUEUED]
    client.shutdown()
    client = make_client(
        MemoryTransport(), state_dir=tmp_path, registry=large, clock=clock, max_epsilon_lifetime=9.4
    )
    assert client.record("mood", "red") == EXHAUSTED
    assert client.privacy_ledger().spent_lifetime == 1.5
    client.shutdown()


def test_processes_and_threads_that_begin_at_once_are_charged_once(tmp_path: Path) -> None:
    """Four forked children, two threads each, all with other values: one charge in advance, one set of tags."""
    registry = registry_from_document(memo_document())
    State(tmp_path).close()

    def hammer(first: int) -> None:
        for number in range(first, first + 10):
            clock = FakeClock()
            clock.advance(days=number)
            client = make_client(MemoryTransport(), state_dir=tmp_path, registry=registry, clock=clock)
            while client.record("mood", COLORS[number % 5]).reason == "busy":
                time.sleep(0.001)
            client.shutdown()

    def child(first: int) -> None:
        threads = [threading.Thread(target=hammer, args=(first + 10 * index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    pids = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                child(20 * number)
                os._exit(0)
            finally:
                os._exit(1)
        pids.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * 4
    client = make_client(MemoryTransport(), state_dir=tmp_path, registry=registry)
    mood = client.privacy_ledger().metrics["mood"]
    assert (mood.epsilon, mood.reports, mood.distinct_values) == (6.0, 80, 3)
    client.shutdown()


# The cap


@BOTH
def test_a_device_past_its_cap_keeps_reporting_its_last_answer(tmp_path: Path, mechanism: str) -> None:
    """A fourth value repeats the last permanent answer; a known value has its own again; no new tag is kept."""
    client, clock = memo_client(tmp_path, mechanism=mechanism)
    own = {value: answer_of(client, clock, value) for value in ("red", "green", "blue")}
    assert answer_of(client, clock, "violet") == own["blue"]
    assert answer_of(client, clock, "red") == own["red"]
    assert answer_of(client, clock, "orange") == own["red"]
    assert answer_of(client, clock, "violet") == own["red"]
    spent = client.privacy_ledger()
    assert (spent.metrics["mood"].distinct_values, spent.metrics["mood"].reports) == (3, 7)
    assert spent.spent_lifetime == 6.0
    client.shutdown()


@BOTH
def test_the_same_work_is_done_past_the_cap(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same statements and the same number of keyed hashes, for a known, a new and a capped value (P9)."""
    client, clock = memo_client(mechanism=mechanism)
    days(client, clock, "red")
    hashes: list[int] = []
    really = memo.hmac.digest
    monkeypatch.setattr(
        memo.hmac, "digest", lambda key, name, *rest: hashes.append(len(name)) or really(key, name, *rest)
    )
    seen = []
    for value in ("red", "green", "blue", "violet", "red"):
        statements: list[str] = []
        hashes.clear()
        metric = client._source.current.metric("mood")  # type: ignore[union-attr]
        with client._state.transaction() as connection:
            connection.set_trace_callback(statements.append)
            memo.report(connection, metric, COLORS.index(value))
            connection.set_trace_callback(None)
        seen.append(([each.split("'")[0][:30] for each in statements], list(hashes)))
    assert all(each == seen[0] for each in seen)
    client.shutdown()
