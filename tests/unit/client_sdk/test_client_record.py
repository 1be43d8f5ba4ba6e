"""record(): every status, what a full queue does, coming back into it, and a state that cannot be used."""

import logging
import random
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dither_client import BudgetExhaustedError, RecordResult, RecordStatus, recording, warner
from dither_client.testing import MemoryTransport
from dither_client.transport import Retry
from dither_protocol.registry import registry_from_document
from support.clients import LINUX, make_client
from support.registries import COLORS, small_document, small_registry

QUEUED = RecordResult(RecordStatus.QUEUED)
BUSY = RecordResult(RecordStatus.DROPPED, "busy")
REENTRANT = RecordResult(RecordStatus.DROPPED, "reentrant")
FULL = RecordResult(RecordStatus.DROPPED, "queue_full")
NO_STATE = RecordResult(RecordStatus.DISABLED, "state")


def _many_days(count: int) -> dict[str, Any]:
    """A registry of ``count`` metrics alike, by grr over twelve categories, so that data have one or two digits."""
    document = small_document()
    metric = document["metrics"]["first_color"] | {
        "period": "day",
        "categories": [f"c{i:02d}" for i in range(12)],
    }
    return document | {"metrics": {f"metric_{i:03d}": dict(metric) for i in range(count)}}


# Statuses


def test_an_exhausted_budget_is_said_and_raised_where_strict() -> None:
    """Both ways it is counted, and the refused answer is not charged."""
    for strict in (False, True):
        with make_client(MemoryTransport(), max_epsilon_per_day=0.5, strict=strict) as client:
            assert client.record("first_color", "red") == QUEUED
            if strict:
                with pytest.raises(BudgetExhaustedError, match="limits on epsilon"):
                    client.record("dark_mode", True)
            else:
                assert client.record("dark_mode", True).status is RecordStatus.BUDGET_EXHAUSTED
            assert client.stats()["budget_exhausted"] == 1
            assert client.privacy_ledger().spent_today == 0.5


def test_without_a_registry_answers_are_dropped() -> None:
    """Nothing can be checked or randomised before the server's registry has come."""
    with make_client(MemoryTransport(), registry=None) as client:
        assert client.record("dark_mode", True) == RecordResult(RecordStatus.DROPPED, "no_registry")
        assert client.stats()["dropped:no_registry"] == 1


def test_the_result_is_counted_under_its_name() -> None:
    """stats() has every status, with the reason where there is one."""
    with make_client(MemoryTransport(), delay_s=3600, max_epsilon=1.0) as client:
        for _ in range(3):
            client.record("dark_mode", True)
        client.record("color", "red", LINUX)
        assert client.stats() == {
            "queued": 1,
            "already_reported_this_window": 2,
            "dropped:epsilon_above_limit": 1,
        }


# Overflow


@pytest.mark.parametrize("limit", ["reports", "bytes"])
def test_what_a_full_queue_drops_does_not_depend_on_the_values(limit: str) -> None:
    """The same calls with every value of the domain, and random ones, have the same results (invariant P9)."""
    document = _many_days(12)
    labels = document["metrics"]["metric_000"]["categories"]
    options: dict[str, Any] = {"max_queue_reports": 6} if limit == "reports" else {"max_queue_bytes": 900}
    outcomes = set()
    choices: list[Callable[[], str]] = [lambda label=label: label for label in labels]
    for choose in [*choices, *[lambda: random.choice(labels)] * 12]:  # noqa: S311  no privacy noise
        with make_client(MemoryTransport(), registry=document, delay_s=3600, **options) as client:
            outcomes.add(tuple(client.record(name, choose()) for name in document["metrics"]))
    (outcome,) = outcomes
    kept = outcome.index(FULL)
    assert 3 <= kept <= 8
    assert outcome == (QUEUED,) * kept + (FULL,) * (12 - kept)


@pytest.mark.parametrize("data", [0, 11])
def test_the_room_in_bytes_does_not_depend_on_the_randomised_datum(
    monkeypatch: pytest.MonkeyPatch, data: int
) -> None:
    """A datum of two digits finds room exactly where one of one digit does, else its absence would tell."""
    monkeypatch.setattr(recording, "randomize", lambda *_: data)
    outcomes = []
    for size in range(100, 300):
        document = _many_days(1)
        with make_client(MemoryTransport(), registry=document, max_queue_bytes=size) as client:
            outcomes.append(client.record("metric_000", "c00"))
    kept = outcomes.index(QUEUED)
    assert outcomes == [FULL] * kept + [QUEUED] * (200 - kept)
    assert (
        kept + 100
        == len('{"metric":"metric_000","version":1,"params":"12345678","window":"2026-11-29",')
        + len('"dimensions":{},"data"')
        + 32
    )


def test_a_dropped_answer_is_counted_and_not_charged() -> None:
    """It costs nothing, and may be given later in its window when there is room again."""
    transport = MemoryTransport()
    with make_client(transport, max_queue_reports=1, delay_s=3600) as client:
        assert client.record("dark_mode", True) == QUEUED
        assert client.record("first_color", "red") == FULL
        assert client.privacy_ledger().spent_lifetime == 1.0
        assert client.stats()["dropped:queue_full"] == 1
        assert client.flush(20).sent == 1
        assert client.record("first_color", "red") == QUEUED
    assert len(transport.reports) == 2


def test_drops_are_said_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A thousand drops are one warning, and the next one comes after a minute."""
    now = [1_000.0]
    monkeypatch.setattr(warner.time, "monotonic", lambda: now[0])
    client = make_client(MemoryTransport(), registry=None, consent=False)
    with caplog.at_level(logging.WARNING):
        for _ in range(1_000):
            client.record("dark_mode", True)
        assert [record.getMessage() for record in caplog.records] == ["answers are dropped (no_registry)"]
        now[0] += 59.9
        client.record("dark_mode", True)
        assert len(caplog.records) == 1
        now[0] += 0.2
        client.record("dark_mode", True)
        assert len(caplog.records) == 2
    assert client.stats() == {"dropped:no_registry": 1_002}
    monkeypatch.undo()
    client.shutdown()


# Coming back into record()


@pytest.mark.parametrize("way", ["call", "signal", "sqlite"])
def test_whoever_comes_back_during_a_record_is_refused_and_the_outer_call_is_fine(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the middle of the call, from a signal handler there, or from a callback of SQLite."""
    transport = MemoryTransport()
    client = make_client(transport, delay_s=3600)
    inner: list[RecordResult] = []
    really = recording.randomize

    def come_back(*_: object) -> None:
        if not inner:
            inner.append(client.record("first_color", "red"))

    def interrupted(*arguments: Any) -> Any:
        if way == "call":
            come_back()
        elif way == "signal" and not inner:
            signal.raise_signal(signal.SIGUSR1)
        return really(*arguments)

    before = signal.signal(signal.SIGUSR1, come_back)
    monkeypatch.setattr(recording, "randomize", interrupted)
    try:
        with client._state.transaction() as connection:
            pass
        if way == "sqlite":
            connection.set_trace_callback(come_back)
        assert client.record("dark_mode", True) == QUEUED
        with (
            client._state.transaction() as connection
        ):  # with no other thread inside SQLite: it would be a deadlock
            connection.set_trace_callback(None)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert inner == [REENTRANT]
    assert client.record("first_color", "red") == QUEUED
    client.flush(20)
    client.shutdown()
    assert sorted(report["metric"] for report in transport.reports) == ["dark_mode", "first_color"]


def test_a_log_handler_that_records_does_not_run_in_circles() -> None:
    """An app that counts its own warnings with the SDK gets an answer, and no endless loop."""
    client = make_client(MemoryTransport(), max_queue_reports=1, delay_s=3600)
    results: list[RecordResult] = []

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            results.append(client.record("first_color", "red"))

    handler = Counting()
    logger = logging.getLogger("dither_client")
    logger.addHandler(handler)
    try:
        assert client.record("dark_mode", True) == QUEUED
        assert client.record("color", "red", LINUX) == FULL
    finally:
        logger.removeHandler(handler)
    assert results == [FULL]
    client.shutdown(0.1)


def test_an_error_while_randomising_leaves_neither_charge_nor_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction is rolled back, whatever went wrong inside it."""
    client = make_client(MemoryTransport(), delay_s=3600)
    with monkeypatch.context() as patch:
        patch.setattr(recording, "randomize", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            client.record("dark_mode", True)
    assert client.privacy_ledger().spent_lifetime == 0
    assert client.record("dark_mode", True) == QUEUED
    client.shutdown()


# A state that cannot be used


def test_a_busy_state_drops_and_recovers(tmp_path: Path) -> None:
    """Another process that writes for longer than the timeout costs this answer, no exception and no charge."""
    transport = MemoryTransport()
    client = make_client(transport, state_dir=tmp_path)
    other = sqlite3.connect(tmp_path / "dither.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert client.record("dark_mode", True) == BUSY
    assert client.pending_reports() == 0
    assert client.flush(0.1).sent == 0
    other.execute("ROLLBACK")
    assert client.record("dark_mode", True) == QUEUED
    other.execute("BEGIN IMMEDIATE")
    client.shutdown(0.2)  # does not raise either
    other.execute("ROLLBACK")
    other.close()
    assert client.stats()["dropped:busy"] == 1


def test_a_state_that_is_busy_at_the_start_does_not_disable(tmp_path: Path) -> None:
    """The client is made all the same, and works as soon as the other process lets go."""
    make_client(MemoryTransport(), state_dir=tmp_path).shutdown()
    other = sqlite3.connect(tmp_path / "dither.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    client = make_client(MemoryTransport(), state_dir=tmp_path)
    other.execute("ROLLBACK")
    other.close()
    with client:
        assert client.record("dark_mode", True) == QUEUED


def test_a_full_disk_drops_and_recovers(tmp_path: Path) -> None:
    """Nothing is charged for what could not be written; with room again answers are taken."""
    document = _many_days(300)
    client = make_client(MemoryTransport(), state_dir=tmp_path, registry=document, delay_s=3600)
    connection = client._state._connected()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    results = [client.record(name, "c00") for name in document["metrics"]]
    full = RecordResult(RecordStatus.DROPPED, "disk_full")
    assert set(results) == {QUEUED, full}
    kept = results.count(QUEUED)
    assert client.privacy_ledger().spent_lifetime == kept * 0.5
    assert len(client.pending().reports) == kept
    connection.execute("PRAGMA max_page_count = 1000000")
    refused = [name for name, result in zip(document["metrics"], results, strict=True) if result == full]
    assert [client.record(name, "c00") for name in refused] == [QUEUED] * len(refused)
    assert client.stats()["dropped:disk_full"] == len(refused)
    client.shutdown()


def _garbage(folder: Path) -> Path:
    (folder / "dither.sqlite3").write_bytes(b"no database at all" * 500)
    return folder


def _file_in_place(folder: Path) -> Path:
    (folder / "state").write_text("")
    return folder / "state"


def _later_schema(folder: Path) -> Path:
    connection = sqlite3.connect(folder / "dither.sqlite3")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    return folder


def _owners_file(folder: Path) -> Path:
    (folder / "owners").write_text("")
    return folder


@pytest.mark.parametrize("spoil", [_garbage, _file_in_place, _later_schema, _owners_file])
def test_a_state_that_cannot_be_used_switches_the_sdk_off_and_says_so_once(
    tmp_path: Path, spoil: Callable[[Path], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """The app goes on: no exception, one warning, every answer counted as disabled."""
    folder = spoil(tmp_path)
    with caplog.at_level(logging.WARNING):
        client = make_client(MemoryTransport(), state_dir=folder)
        assert [client.record("dark_mode", True) for _ in range(5)] == [NO_STATE] * 5
        assert client.flush() == (0, 0, 0, 0, 0, False)
        assert client.pending_reports() == 0
        assert client.shutdown() is True
    assert [record.getMessage()[:26] for record in caplog.records] == ["the SDK switches itself of"]
    assert client.stats() == {"disabled:state": 5}


def test_a_state_that_breaks_while_the_app_runs_switches_the_sdk_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody overwrites the database: the same, at the next answer."""
    client = make_client(MemoryTransport(), state_dir=tmp_path)
    client._state.close()
    _garbage(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert [client.record("dark_mode", True) for _ in range(3)] == [NO_STATE] * 3
    assert len(caplog.records) == 1
    client.shutdown()


def test_nothing_of_a_broken_state_reaches_back_to_the_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is logged is text: an exception as argument would lead a log handler to the frame with the value."""
    client = make_client(MemoryTransport(), state_dir=tmp_path)
    client._state.close()
    _garbage(tmp_path)
    with caplog.at_level(logging.DEBUG):
        client.record("dark_mode", True)
    assert caplog.records
    for record in caplog.records:
        assert record.exc_info is None
        assert all(isinstance(argument, str | int) for argument in record.args or ())


# Spellings


def test_two_spellings_of_one_category_are_one() -> None:
    """NFD and NFC of the same text are the same answer, in either direction, as values and as dimensions."""
    document = small_document()
    nfc, nfd = "caf\u00e9", "cafe\u0301"
    for listed, given in ((nfc, nfd), (nfd, nfc), (nfc, nfc), (nfd, nfd)):
        metric = document["metrics"]["color"] | {
            "categories": ["tea", listed, "water"],
            "dimensions": {"os": [listed]},
        }
        registry = registry_from_document(document | {"metrics": {"color": metric}})
        definition = registry.metric("color")
        assert definition.index_of(given) == 1
        with make_client(MemoryTransport(Retry("x", 600.0)), registry=registry) as client:
            assert client.record("color", given, {"os": given}) == QUEUED
            assert nfc in client.pending().reports[0].encode().decode("unicode_escape")


def test_an_app_limit_holds_for_each_metric_of_a_registry() -> None:
    """max_epsilon just below a metric's epsilon refuses it, equal to it does not (invariant P6)."""
    for limit, expected in ((0.99, "epsilon_above_limit"), (1.0, "")):
        with make_client(MemoryTransport(), max_epsilon=limit) as client:
            assert client.record("dark_mode", True).reason == expected


def test_labels_are_those_of_the_registry() -> None:
    """Every category of the domain is taken as it stands there."""
    registry = small_registry()
    assert [registry.metric("color").index_of(label) for label in COLORS] == list(range(5))
