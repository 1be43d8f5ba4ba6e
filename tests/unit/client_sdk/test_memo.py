"""Memoised answers on the device: kept over restarts and processes, and erased."""

import os
import sqlite3
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dither_client import memo, sampling
from dither_client.__main__ import main
from dither_client.state import State, read_note
from dither_client.testing import FakeClock, IdentityClient, MemoryTransport
from dither_protocol.mechanisms import Memoized, MemoizedResponse, memoized
from dither_protocol.mechanisms.chains import PERMANENT_TOTAL
from dither_protocol.registry import Registry, registry_from_document
from support.clients import state_bytes, wait_until
from support.memo import memo_document, permanent_by_digits
from support.memo_device import (
    ALREADY,
    BOTH,
    QUEUED,
    answer_of,
    days,
    last_answer,
    memo_client,
    mood_of,
    permanent_of,
)
from support.registries import COLORS

# Permanent answers


@pytest.mark.parametrize(
    ("mechanism", "first", "last"),
    [("grr", 0x1D, 0x19), ("sue", 0x21_8022_B08C, 0xA2_260C_CC48), ("oue", 0x1001, 0x82_1102_0040)],
)
def test_a_permanent_answer_is_the_same_in_every_version_of_the_sdk(
    mechanism: str, first: int, last: int
) -> None:
    """An update that reads the same digits in another order would give every device a second permanent answer."""
    metric = mood_of(memo_document(mechanism, categories=[f"c{i}" for i in range(40)]))
    chain = metric.mechanism
    assert isinstance(chain, Memoized)
    secret = bytes(range(32))
    for index, expected in ((0, first), (39, last)):
        digits = memo.permanent_digits(secret, metric, index)
        assert sampling.memoized.permanent_answer(chain, index, digits) == expected


@BOTH
def test_the_permanent_answer_stays_over_restarts_and_states_differ(tmp_path: Path, mechanism: str) -> None:
    """A function of the secret and the value; another device has other ones, and a new consent another secret."""
    document = memo_document(mechanism, categories=[f"c{i}" for i in range(64)], max_distinct_values=64)
    metric = mood_of(document)
    first, again, other = State(tmp_path / "a"), State(tmp_path / "a"), State(tmp_path / "b")
    answers = [permanent_of(first, metric, index) for index in range(64)]
    assert [permanent_of(again, metric, index) for index in range(64)] == answers
    elsewhere = [permanent_of(other, metric, index) for index in range(64)]
    assert elsewhere != answers
    with first.transaction() as connection:
        memo.erase(connection)
    assert [permanent_of(first, metric, index) for index in range(64)] not in (answers, elsewhere)
    for each in (first, again, other):
        each.close()


@BOTH
def test_versions_and_meanings_have_answers_of_their_own(tmp_path: Path, mechanism: str) -> None:
    """Another version, or another meaning under the same one, is another question."""
    labels = [f"c{i}" for i in range(64)]
    keys: list[dict[str, Any]] = [{}, {"version": 2}, {"epsilon": 0.5}]
    metrics = [
        mood_of(memo_document(mechanism, categories=labels, max_distinct_values=64, **each)) for each in keys
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
    client, clock = memo_client(tmp_path, mechanism="oue")
    before = answer_of(client, clock, "red")
    days(client, clock, "blue")
    pid = os.fork()
    if pid == 0:
        try:
            same = client.record("mood", "red") == QUEUED and last_answer(client._state) == before
            os._exit(0 if same else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert last_answer(client._state) == before
    assert client.record("mood", "red") == ALREADY
    client.shutdown()


@BOTH
def test_each_report_has_a_round_of_its_own(mechanism: str) -> None:
    """The same value for 60 days gives reports that differ, over one permanent answer."""
    client, clock = memo_client(mechanism=mechanism)
    transport = client._sender._transport
    answers = {answer_of(client, clock, "red") for _ in range(60)}
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


# Consent


def test_a_no_erases_secret_tags_and_answers_and_keeps_the_ledger(tmp_path: Path) -> None:
    """Not a byte of them is left on disk; a new yes draws a new secret and is charged anew (invariant P8)."""
    document = memo_document("oue", categories=[f"c{i}" for i in range(256)])
    client, clock = memo_client(tmp_path, registry=document)
    before = answer_of(client, clock, "c7")
    with client._state.transaction() as connection:
        secret = read_note(connection, "memo secret")
        (tag,) = connection.execute("SELECT tag FROM memo_values").fetchone()
    assert secret
    assert all(each in state_bytes(tmp_path) for each in (secret.encode(), tag, before))
    client.set_consent(False)
    assert not any(each in state_bytes(tmp_path) for each in (secret.encode(), tag, before))
    assert client.privacy_ledger().spent_lifetime == 6.0
    client.set_consent(True)
    assert answer_of(client, clock, "c7") != before
    assert client.privacy_ledger().spent_lifetime == 12.0
    with client._state.transaction() as connection:
        assert read_note(connection, "memo secret") != secret
    client.shutdown()


# Beside it


def test_no_value_is_kept_in_the_state(tmp_path: Path) -> None:
    """Neither as it is nor by its place in the domain: tags of 16 bytes, and the permanent answer (P1)."""
    document = memo_document(categories=["MARKED-one", "MARKED-two", "three"], period="week")
    client, clock = memo_client(tmp_path, registry=document, fetch_registry=False)
    days(client, clock, "MARKED-one")
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
    client, _ = memo_client()
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
    bits, _ = memo_client(mechanism="oue")
    assert "nothing useful" in bits.explain("mood")
    bits.shutdown()


def test_the_command_shows_the_guarantees_beside_the_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the charge in advance, for the person at the device."""
    client, clock = memo_client(tmp_path)
    days(client, clock, "red", "red")
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
    client, clock = memo_client(registry=document)
    registry: Registry = registry_from_document(document)
    chain = registry.metric("mood").mechanism
    assert isinstance(chain, Memoized)
    days(client, clock, *COLORS * 4)
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
    client, clock = memo_client(tmp_path)
    assert client.privacy_ledger().spent_lifetime == 1.5
    assert days(client, clock, "red", "blue") == [QUEUED, QUEUED]
    assert client.privacy_ledger().spent_lifetime == 7.5
    with client._state.transaction() as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert read_note(connection, "consent") == "yes"
    transport = client._sender._transport
    assert isinstance(transport, MemoryTransport)
    wait_until(
        lambda: client.flush(20).pending == 0 and any(b'{"data":1}' in body for body in transport.bodies)
    )
    client.shutdown()
