"""Memoised answers on the device: kept over restarts and processes, charged in advance, capped, and erased."""

import os
import sqlite3
import threading
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dither_client import Client, RecordResult, RecordStatus, memo, sampling
from dither_client.__main__ import main
from dither_client.state import State, read_note
from dither_client.testing import FakeClock, IdentityClient, MemoryTransport
from dither_protocol.mechanisms import Memoized, MemoizedResponse, memoized
from dither_protocol.mechanisms.chains import PERMANENT_TOTAL
from dither_protocol.registry import Metric, Registry, registry_from_document
from support.clients import make_client, state_bytes
from support.memo import memo_document, permanent_by_digits
from support.registries import COLORS

QUEUED = RecordResult(RecordStatus.QUEUED)
EXHAUSTED = RecordResult(RecordStatus.BUDGET_EXHAUSTED)
ALREADY = RecordResult(RecordStatus.ALREADY_REPORTED)
BOTH = pytest.mark.parametrize("mechanism", ["grr", "oue", "sue"])


def _client(folder: Path | None = None, **options: Any) -> tuple[Client, FakeClock]:
    clock = FakeClock()
    document = options.pop("registry", None) or memo_document(options.pop("mechanism", "grr"))
    return make_client(MemoryTransport(), state_dir=folder, registry=document, clock=clock, **options), clock


def _days(client: Client, clock: FakeClock, *values: str) -> list[RecordResult]:
    """One answer a day."""
    results = []
    for value in values:
        results.append(client.record("mood", value))
        clock.advance(days=1)
    return results


def _last(state: State) -> bytes:
    with state.transaction() as connection:
        return bytes(connection.execute("SELECT answer FROM memos").fetchone()[0])


def _answer_of(client: Client, clock: FakeClock, value: str) -> bytes:
    """The permanent answer that the device uses for a value."""
    assert _days(client, clock, value) == [QUEUED]
    return _last(client._state)


def _metric(document: dict[str, Any]) -> Metric:
    return registry_from_document(document).metric("mood")


def _permanent(state: State, metric: Metric, index: int) -> int:
    with state.transaction() as connection:
        memo.report(connection, metric, index)
        row = connection.execute("SELECT answer FROM memos").fetchone()
    return int.from_bytes(row[0], "little")


# Permanent answers


@BOTH
def test_the_permanent_answer_stays_over_restarts_and_states_differ(tmp_path: Path, mechanism: str) -> None:
    """A function of the secret and the value; another device has other ones, and a new consent another secret."""
    document = memo_document(mechanism, categories=[f"c{i}" for i in range(64)], max_distinct_values=64)
    metric = _metric(document)
    first, again, other = State(tmp_path / "a"), State(tmp_path / "a"), State(tmp_path / "b")
    answers = [_permanent(first, metric, index) for index in range(64)]
    assert [_permanent(again, metric, index) for index in range(64)] == answers
    elsewhere = [_permanent(other, metric, index) for index in range(64)]
    assert elsewhere != answers
    with first.transaction() as connection:
        memo.erase(connection)
    assert [_permanent(first, metric, index) for index in range(64)] not in (answers, elsewhere)
    for each in (first, again, other):
        each.close()


@BOTH
def test_versions_and_meanings_have_answers_of_their_own(tmp_path: Path, mechanism: str) -> None:
    """Another version, or another meaning under the same one, is another question."""
    labels = [f"c{i}" for i in range(64)]
    keys: list[dict[str, Any]] = [{}, {"version": 2}, {"epsilon": 0.5}]
    metrics = [
        _metric(memo_document(mechanism, categories=labels, max_distinct_values=64, **each)) for each in keys
    ]
    state = State(tmp_path)
    answers = []
    for metric in metrics:
        answers.append([])
        for index in range(64):
            with state.transaction() as connection:
                memo.report(connection, metric, index)
                row = connection.execute(
                    "SELECT answer FROM memos WHERE version = ? AND params = ?",
                    (metric.version, metric.meaning_hash),
                ).fetchone()
            answers[-1].append(row[0])
    assert answers[0] != answers[1] != answers[2] != answers[0]
    state.close()


def test_a_forked_child_has_the_same_permanent_answers(tmp_path: Path) -> None:
    """It shares the state, hence the secret; its reports are its own."""
    client, clock = _client(tmp_path, mechanism="oue")
    before = _answer_of(client, clock, "red")
    _days(client, clock, "blue")
    pid = os.fork()
    if pid == 0:
        try:
            same = client.record("mood", "red") == QUEUED and _last(client._state) == before
            os._exit(0 if same else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert _last(client._state) == before
    assert client.record("mood", "red") == ALREADY
    client.shutdown()


@BOTH
def test_each_report_has_a_round_of_its_own(mechanism: str) -> None:
    """The same value for 60 days gives reports that differ, over one permanent answer."""
    client, clock = _client(mechanism=mechanism)
    transport = client._sender._transport
    answers = {_answer_of(client, clock, "red") for _ in range(60)}
    client.flush(20)
    assert isinstance(transport, MemoryTransport)
    assert len(answers) == 1
    assert len({report["data"] for report in transport.reports}) > 1
    client.shutdown()


@pytest.mark.parametrize("held", [0, 3, 4])
def test_the_weights_of_the_permanent_index_are_laid_out_exactly(held: int) -> None:
    """At each border between two answers: the digits before it, and those at it."""
    chain = memoized("grr", 1.0, 5, 2.0)
    assert isinstance(chain, MemoizedResponse)
    truth, lie = chain.permanent_truth_weight, chain.permanent_lie_weight
    borders = [0, truth] + [truth + lie * step for step in range(1, 5)]
    assert borders[-1] == PERMANENT_TOTAL
    for step, (low, high) in enumerate(pairwise(borders)):
        for number in (low, high - 1):
            assert permanent_by_digits(chain, held, number) == (held + step) % 5


@BOTH
def test_the_digits_asked_for_do_not_depend_on_the_value(mechanism: str) -> None:
    """The same numbers of bytes in the same order, for every value and whatever they are (invariant P4)."""
    chain = memoized(mechanism, 1.0, 12, 2.0)
    asked = set()
    for index in range(12):
        for fill in (b"\0", b"\xff", b"\x55"):
            sizes: list[int] = []

            def digits(count: int, sizes: list[int] = sizes, fill: bytes = fill) -> bytes:
                sizes.append(count)
                return fill * count

            sampling.memoized.permanent_answer(chain, index, digits)
            asked.add(tuple(sizes))
    assert len(asked) == 1


# Charges


def test_the_first_report_is_charged_in_full_and_the_later_ones_are_free(tmp_path: Path) -> None:
    """3 values at epsilon 2: 6 for the day and for life; still one report per window, over restarts as well."""
    client, clock = _client(tmp_path)
    assert client.record("mood", "red") == QUEUED
    spent = client.privacy_ledger()
    assert (spent.spent_today, spent.spent_lifetime) == (6.0, 6.0)
    assert client.record("mood", "blue") == ALREADY
    clock.advance(days=1)
    client.shutdown()
    client = make_client(MemoryTransport(), state_dir=tmp_path, registry=memo_document(), clock=clock)
    assert _days(client, clock, "blue", "green") == [QUEUED, QUEUED]
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
    client, _ = _client(**{limit: 5.999})
    assert client.record("mood", "red") == EXHAUSTED
    with client._state.transaction() as connection:
        assert connection.execute("SELECT count(*) FROM memo_values").fetchone() == (0,)
        assert read_note(connection, "memo secret") is None
    assert client.privacy_ledger().spent_lifetime == 0
    client.shutdown()
    client, _ = _client(**{limit: 6.0})
    assert client.record("mood", "red") == QUEUED
    client.shutdown()


def test_the_apps_limit_on_epsilon_holds_for_the_permanent_answer() -> None:
    """That is what many reports of one value come to tell (invariant P6)."""
    for limit, expected in ((1.99, RecordResult(RecordStatus.DROPPED, "epsilon_above_limit")), (2.0, QUEUED)):
        client, _ = _client(max_epsilon=limit)
        assert client.record("mood", "red") == expected
        client.shutdown()


def test_a_new_version_starts_anew_and_is_charged_anew(tmp_path: Path) -> None:
    """Its permanent answers are new ones."""
    client, clock = _client(tmp_path)
    _days(client, clock, "red")
    client.shutdown()
    client = make_client(
        MemoryTransport(), state_dir=tmp_path, registry=memo_document(version=2), clock=clock
    )
    assert _days(client, clock, "red", "red") == [QUEUED, QUEUED]
    assert client.privacy_ledger().spent_lifetime == 12.0
    client.shutdown()


def test_a_question_that_shares_the_short_hash_of_another_is_charged_anew(tmp_path: Path) -> None:
    """Found by trying labels: 1 value at epsilon 1.5, and 2 at 4 under the same 8 digits (invariant P6)."""
    small = memo_document(epsilon_permanent=1.5, max_distinct_values=1, categories=["red", "a79408"])
    large = memo_document(epsilon_permanent=4.0, max_distinct_values=2, categories=["red", "b28187"])
    assert _metric(small).params_hash == _metric(large).params_hash
    client, clock = _client(tmp_path, registry=small)
    assert _days(client, clock, "red") == [QUEUED]
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
    client, clock = _client(tmp_path, mechanism=mechanism)
    own = {value: _answer_of(client, clock, value) for value in ("red", "green", "blue")}
    assert _answer_of(client, clock, "violet") == own["blue"]
    assert _answer_of(client, clock, "red") == own["red"]
    assert _answer_of(client, clock, "orange") == own["red"]
    assert _answer_of(client, clock, "violet") == own["red"]
    spent = client.privacy_ledger()
    assert (spent.metrics["mood"].distinct_values, spent.metrics["mood"].reports) == (3, 7)
    assert spent.spent_lifetime == 6.0
    client.shutdown()


@BOTH
def test_the_same_work_is_done_past_the_cap(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same statements and the same number of keyed hashes, for a known, a new and a capped value (P9)."""
    client, clock = _client(mechanism=mechanism)
    _days(client, clock, "red")
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


# Consent


def test_a_no_erases_secret_tags_and_answers_and_keeps_the_ledger(tmp_path: Path) -> None:
    """Not a byte of them is left on disk; a new yes draws a new secret and is charged anew (invariant P8)."""
    document = memo_document("oue", categories=[f"c{i}" for i in range(256)])
    client, clock = _client(tmp_path, registry=document)
    before = _answer_of(client, clock, "c7")
    with client._state.transaction() as connection:
        secret = read_note(connection, "memo secret")
        (tag,) = connection.execute("SELECT tag FROM memo_values").fetchone()
    assert secret
    assert all(each in state_bytes(tmp_path) for each in (secret.encode(), tag, before))
    client.set_consent(False)
    assert not any(each in state_bytes(tmp_path) for each in (secret.encode(), tag, before))
    assert client.privacy_ledger().spent_lifetime == 6.0
    client.set_consent(True)
    assert _answer_of(client, clock, "c7") != before
    assert client.privacy_ledger().spent_lifetime == 12.0
    with client._state.transaction() as connection:
        assert read_note(connection, "memo secret") != secret
    client.shutdown()


# Beside it


def test_no_value_is_kept_in_the_state(tmp_path: Path) -> None:
    """Neither as it is nor by its place in the domain: tags of 16 bytes, and the permanent answer (P1)."""
    document = memo_document(categories=["MARKED-one", "MARKED-two", "three"], period="week")
    client, clock = _client(tmp_path, registry=document, fetch_registry=False)
    _days(client, clock, "MARKED-one")
    with client._state.transaction() as connection:
        kept = "".join(
            str(row)
            for table in ("charges", "totals", "open_reports", "memos", "memo_values")
            for row in connection.execute(f"SELECT * FROM {table}")  # noqa: S608  names from the line above
        )
        (tag,) = connection.execute("SELECT tag FROM memo_values").fetchone()
    assert "MARKED" not in kept
    assert len(tag) == 16
    client.shutdown()


def test_explain_says_both_guarantees_and_what_is_kept() -> None:
    """With their assumptions, and that the device keeps marks against which guesses could be tested."""
    client, _ = _client()
    words = client.explain("mood")
    for part in (
        "change at the same times",
        "Without that assumption",
        "secret",
        "test guesses",
        "epsilon 6",
    ):
        assert part in words
    client.shutdown()
    bits, _ = _client(mechanism="oue")
    assert "nothing useful" in bits.explain("mood")
    bits.shutdown()


def test_the_command_shows_the_guarantees_beside_the_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the charge in advance, for the person at the device."""
    client, clock = _client(tmp_path)
    _days(client, clock, "red", "red")
    client.shutdown()
    assert main(["--state-dir", str(tmp_path), "ledger"]) == 0
    said = capsys.readouterr().out
    assert "mood: epsilon 6 in 2 reports" in said
    assert (
        "epsilon 6: All reports for life, between histories of answers that change at the same times" in said
    )


def test_the_identity_client_remembers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers are the labels, also of a memoised metric."""
    monkeypatch.setenv("DITHER_TESTING", "1")
    transport = MemoryTransport()
    clock = FakeClock()
    with IdentityClient(
        "http://localhost", memo_document(), ingest_key="x", transport=transport, clock=clock
    ) as client:
        client.record("mood", "red")
        clock.now += timedelta(days=1)
        client.record("mood", "blue")
    assert [report["data"] for report in transport.reports] == ["red", "blue"]


@BOTH
def test_every_report_is_one_that_the_server_takes(mechanism: str) -> None:
    """`randomize` of the chain, and the device's own reports, have the wire form of the base oracle."""
    document = memo_document(mechanism)
    client, clock = _client(registry=document)
    registry: Registry = registry_from_document(document)
    chain = registry.metric("mood").mechanism
    assert isinstance(chain, Memoized)
    _days(client, clock, *COLORS * 4)
    transport = client._sender._transport
    client.flush(20)
    assert isinstance(transport, MemoryTransport)
    data = [report["data"] for report in transport.reports]
    data += [sampling.randomize(chain, index) for index in range(5)]
    assert len(data) == 25
    assert [chain.unpack(chain.pack(each)) for each in data] == data
    client.shutdown()


def test_a_state_of_the_schema_before_goes_on_working(tmp_path: Path) -> None:
    """Its ledger, queue and notes stay; memoised metrics find their tables."""
    connection = sqlite3.connect(tmp_path / "dither.sqlite3")
    connection.executescript(
        (Path(__file__).parents[2] / "support/data/state_schema_1.sql").read_text("utf-8")
    )
    connection.close()
    client, clock = _client(tmp_path)
    assert client.privacy_ledger().spent_lifetime == 1.5
    assert client.pending().reports == ['{"data":1}']
    assert _days(client, clock, "red", "blue") == [QUEUED, QUEUED]
    assert client.privacy_ledger().spent_lifetime == 7.5
    with client._state.transaction() as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert read_note(connection, "consent") == "yes"
    client.shutdown()
