"""Consent: who decides, what a no erases, and that it holds."""

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dither_client import NotConsentedError, RecordResult, RecordStatus, StateError, consent
from dither_client.consent import Standing, standing
from dither_client.errors import StateBusyError
from dither_client.sender import Sender
from dither_client.state import State
from dither_client.testing import MemoryTransport
from dither_client.transport import Delivered, Retry, TooLarge
from support.clients import LINUX, GateTransport, make_client, state_bytes, wait_until

REFUSED = RecordResult(RecordStatus.NOT_CONSENTED)
QUEUED = RecordResult(RecordStatus.QUEUED)
OFF = RecordResult(RecordStatus.DISABLED, "switched_off")


@pytest.mark.parametrize(
    ("enabled", "agreed", "environ", "expected"),
    [
        (None, None, {}, (True, True)),
        (None, None, {"DO_NOT_TRACK": "1"}, (True, False)),
        (None, None, {"DO_NOT_TRACK": "true"}, (True, False)),
        (None, None, {"DO_NOT_TRACK": "0", "DITHER_DISABLED": "0"}, (True, True)),
        (None, None, {"DO_NOT_TRACK": "", "DITHER_DISABLED": ""}, (True, True)),
        (None, None, {"DITHER_DISABLED": "1"}, (False, True)),
        (None, True, {"DO_NOT_TRACK": "1"}, (True, True)),
        (None, False, {}, (True, False)),
        (True, None, {"DITHER_DISABLED": "1"}, (True, True)),
        (False, None, {}, (False, True)),
    ],
)
def test_an_argument_goes_before_the_environment_before_the_default(
    enabled: bool | None, agreed: bool | None, environ: dict[str, str], expected: tuple[bool, bool]
) -> None:
    """The default is yes; a variable that is empty or 0 says nothing."""
    assert standing(enabled, agreed, environ) == Standing(*expected)


@pytest.mark.parametrize("decision", [True, False])
@pytest.mark.parametrize("default", [True, False])
def test_a_decision_goes_before_everything(decision: bool, default: bool) -> None:
    """Where the person has decided nothing the default holds, afterwards the decision."""
    state = State(None)
    with state.transaction() as connection:
        assert consent.decided(connection) is None
        assert consent.given(connection, default) is default
        assert consent.decide(connection, decision) == 0
        assert consent.decided(connection) is decision
        assert consent.given(connection, default) is decision
    state.close()


@pytest.mark.parametrize(
    ("variable", "options", "expected"),
    [
        ("DO_NOT_TRACK", {}, REFUSED),
        ("DO_NOT_TRACK", {"consent": True}, QUEUED),
        ("DITHER_DISABLED", {}, OFF),
        ("DITHER_DISABLED", {"enabled": True}, QUEUED),
        (None, {"consent": False}, REFUSED),
        (None, {"enabled": False}, OFF),
        (None, {}, QUEUED),
    ],
)
def test_a_client_follows_environment_and_arguments(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, options: dict[str, Any], expected: RecordResult
) -> None:
    """The same order, seen from record(), and nothing leaves where the answer is no."""
    if variable:
        monkeypatch.setenv(variable, "1")
    transport = MemoryTransport()
    with make_client(transport, **options) as client:
        assert client.record("dark_mode", True) == expected
    assert len(transport.reports) == (expected == QUEUED)


def test_switched_off_nothing_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With DITHER_DISABLED=1 there is no file, no thread and no report."""
    monkeypatch.setenv("DITHER_DISABLED", "1")
    client = make_client(MemoryTransport(), registry=None, state_dir=tmp_path / "state")
    assert client.record("dark_mode", True) == OFF
    assert client.flush().pending == 0
    assert client.shutdown() is True
    assert not (tmp_path / "state").exists()
    assert client._sender._thread is None


def test_a_decision_survives_a_restart_and_goes_before_the_argument(tmp_path: Path) -> None:
    """A no of the person stands against consent=True, a later yes against consent=False."""
    client = make_client(MemoryTransport(), state_dir=tmp_path, consent=True)
    client.set_consent(False)
    client.shutdown()
    with make_client(MemoryTransport(), state_dir=tmp_path, consent=True) as client:
        assert client.record("dark_mode", True) == REFUSED
        client.set_consent(True)
    with make_client(MemoryTransport(), state_dir=tmp_path, consent=False) as client:
        assert client.record("dark_mode", True) == QUEUED


def test_a_no_of_one_process_holds_for_the_others_at_once(tmp_path: Path) -> None:
    """Two clients on one directory: what the person told one, the other obeys."""
    first = make_client(MemoryTransport(), state_dir=tmp_path, delay_s=3600)
    transport = MemoryTransport()
    second = make_client(transport, state_dir=tmp_path, delay_s=3600)
    assert second.record("dark_mode", True) == QUEUED
    first.set_consent(False)
    assert second.record("first_color", "red") == REFUSED
    assert second.flush(0.2).pending == 0
    assert transport.bodies == []
    first.shutdown()
    second.shutdown()


@pytest.mark.parametrize("way", ["writes", "reads"])
def test_a_no_waits_for_other_processes_until_no_trace_is_left(tmp_path: Path, way: str) -> None:
    """One that is inside a transaction keeps the log from being emptied; later its checkpoints would not do it."""
    client = make_client(MemoryTransport(), state_dir=tmp_path, delay_s=3600)
    client.record("dark_mode", True)
    (report,) = client.pending().reports
    other = sqlite3.connect(tmp_path / "dither.sqlite3", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE" if way == "writes" else "BEGIN")
    other.execute("SELECT count(*) FROM notes").fetchone()
    ending = threading.Timer(0.4, other.execute, ["ROLLBACK"])
    ending.start()
    client.set_consent(False)
    assert report.encode() not in state_bytes(tmp_path)
    ending.join()
    other.close()
    client.shutdown()


def test_a_no_is_kept_where_another_process_never_lets_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is erased, and the wait for the log ends."""
    monkeypatch.setattr(consent, "PATIENCE_S", 0.2)
    client = make_client(MemoryTransport(), state_dir=tmp_path, delay_s=3600)
    client.record("dark_mode", True)
    other = sqlite3.connect(tmp_path / "dither.sqlite3", isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM notes").fetchone()
    client.set_consent(False)
    assert client.pending() == ([], [])
    assert client.record("first_color", "red") == REFUSED
    other.close()
    client.shutdown()


def test_a_no_erases_every_byte_of_the_queue_and_keeps_the_ledger(tmp_path: Path) -> None:
    """No report, open or sealed, is found in any state file afterwards, the process still running (P8)."""
    client = make_client(MemoryTransport(Retry("http:503", 600.0)), state_dir=tmp_path)
    client.record("color", "red", LINUX)
    client.flush(20)
    client.record("dark_mode", True)
    batches, reports = client.pending()
    assert (len(batches), len(reports)) == (1, 1)
    traces = [reports[0].encode(), batches[0], batches[0][10:60], b'"data"', b'"params"']
    assert all(trace in state_bytes(tmp_path) for trace in traces)
    before = client.privacy_ledger()
    client.set_consent(False)
    assert [trace for trace in traces if trace in state_bytes(tmp_path)] == []
    assert client.pending() == ([], [])
    assert client.privacy_ledger() == before
    assert before.spent_lifetime == 3.0
    client.set_consent(True)
    assert client.record("dark_mode", False).status is RecordStatus.ALREADY_REPORTED
    client.shutdown()


def test_a_no_during_a_try_stops_the_sender_after_it() -> None:
    """The batch that is on its way cannot be called back; no other follows it."""
    transport = GateTransport()
    client = make_client(transport, delay_s=0, unlinkable=True)
    client.record("dark_mode", True)
    assert transport.entered.wait(30)
    client.record("first_color", "red")
    client.record("color", "red", LINUX)
    client.set_consent(False)
    transport.gate.set()
    wait_until(lambda: client.stats().get("sent") == 1)
    client.shutdown()
    assert len(transport.bodies) == 1


def test_a_no_during_a_try_is_not_undone_by_its_answer() -> None:
    """A 413 to a batch that was erased meanwhile brings back no halves, not even after a later yes."""
    transport = GateTransport(TooLarge(), Delivered(1, duplicate=False, rejected=0))
    client = make_client(transport, delay_s=3600)
    for os in ("linux", "macos"):
        client.record("color", "red", {"os": os})
    client.flush(0.1)
    assert transport.entered.wait(30)
    client.set_consent(False)
    transport.gate.set()
    wait_until(lambda: transport.bodies)
    client.set_consent(True)
    client.record("dark_mode", True)
    wait_until(lambda: client.flush(5).pending == 0)
    client.shutdown()
    assert [len(batch["reports"]) for batch in transport.batches] == [2, 1]
    assert transport.batches[1]["reports"][0]["metric"] == "dark_mode"


def test_a_queue_from_before_stays_and_waits_without_spinning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DO_NOT_TRACK is no decision: nothing is erased, nothing is sent, and nothing turns in circles meanwhile."""
    first = make_client(MemoryTransport(Retry("http:503", 0.0)), state_dir=tmp_path, delay_s=0)
    first.record("dark_mode", True)
    wait_until(lambda: first.stats().get("retry:http:503"))
    first.shutdown()
    looks = []
    really = Sender._next_action

    def counted(self: Sender, now: float) -> float | None:
        looks.append(now)
        return really(self, now)

    monkeypatch.setattr(Sender, "_next_action", counted)
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    transport = MemoryTransport(registry={})
    client = make_client(transport, state_dir=tmp_path, delay_s=0, fetch_registry=True)
    assert client.flush(20).pending == 1  # returns at once
    time.sleep(0.3)
    assert len(looks) < 20
    assert transport.bodies == []
    client.set_consent(True)
    wait_until(lambda: client.pending_reports() == 0)
    client.shutdown()
    assert len(transport.reports) == 1


def test_without_consent_the_server_is_not_even_asked_for_its_registry() -> None:
    """Asking would tell the server that there is a device; after a yes it is asked."""

    class Asked(MemoryTransport):
        asked = 0

        def fetch_registry(self, etag: str) -> None:
            self.asked += 1

    transport = Asked()
    client = make_client(transport, registry=None, consent=False)
    time.sleep(0.1)
    assert transport.asked == 0
    client.set_consent(True)
    wait_until(lambda: transport.asked)
    client.shutdown()


def test_strict_raises_where_the_person_has_not_agreed() -> None:
    """The app hears of it, without the value in the words."""
    with make_client(MemoryTransport(), consent=False, strict=True) as client:
        with pytest.raises(NotConsentedError, match="not agreed"):
            client.record("dark_mode", True)
        assert client.stats() == {"not_consented": 1}


def test_a_no_that_cannot_be_written_raises_and_still_holds_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that never lets go, or a broken file: this process sends nothing more all the same."""
    monkeypatch.setattr(consent, "PATIENCE_S", 0.1)
    client = make_client(MemoryTransport(), state_dir=tmp_path, delay_s=3600)
    client.record("dark_mode", True)
    other = State(tmp_path)
    with other.transaction(), pytest.raises(StateBusyError):
        client.set_consent(False)
    other.close()
    assert client.record("first_color", "red") == REFUSED
    assert client.flush(20).sent == 0
    client.set_consent(True)
    assert client.record("first_color", "red") == QUEUED
    client.shutdown()

    (tmp_path / "file").write_text("")
    broken = make_client(MemoryTransport(), state_dir=tmp_path / "file")
    with pytest.raises(StateError):
        broken.set_consent(False)
    broken.shutdown()


def test_a_no_waits_for_another_process_that_is_writing(tmp_path: Path) -> None:
    """A busy moment does not lose the person's decision."""
    client = make_client(MemoryTransport(), state_dir=tmp_path)
    other = State(tmp_path)
    tries = []
    with other.transaction() as connection:

        def let_go(_: float) -> None:
            tries.append(1)
            if connection.in_transaction:
                connection.execute("COMMIT")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(consent.time, "sleep", let_go)
            client.set_consent(False)
        connection.execute("BEGIN IMMEDIATE")  # what the block's end commits
    other.close()
    assert tries
    assert client.record("dark_mode", True) == REFUSED
    client.shutdown()
