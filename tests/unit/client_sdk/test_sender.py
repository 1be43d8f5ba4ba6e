"""The sender: when things leave, alone or together, and what it lives through."""

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dither_client.errors import StateBusyError
from dither_client.sender import Sender
from dither_client.testing import MemoryTransport
from dither_client.transport import Delivered, Outcome, Refused
from support.clients import LINUX, GateTransport, make_client, record_two_colors, wait_until
from support.http import Answer, scripted_server


@pytest.fixture
def sender() -> Iterator[Sender]:
    """The sender of a client that never sends by itself."""
    client = make_client(MemoryTransport(), delay_s=100.0)
    yield client._sender
    client.shutdown(0)


def test_reports_that_wait_together_share_one_random_time(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uniform within the delay from the first one on; what comes later joins it, and after it there is a new one."""
    now = [1_000_000.0]
    monkeypatch.setattr(Sender, "_now", lambda _: now[0])
    drawn = []
    for _ in range(200):
        due = sender.due_at()
        assert now[0] <= due < now[0] + 100.0
        drawn.append(due - now[0])
        sender._next_due = due
        now[0] = due - 1e-3
        assert sender.due_at() == due
        now[0] = due
        assert sender.due_at() >= due
        now[0] += 1
        sender._next_due = None
    assert min(drawn) < 10
    assert max(drawn) > 90


def test_a_clock_set_back_does_not_keep_reports_for_longer(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared time from before is not joined where it is further away than the delay."""
    now = [1_000_000.0]
    monkeypatch.setattr(Sender, "_now", lambda _: now[0])
    sender._next_due = sender.due_at()
    now[0] -= 1_000.0
    assert now[0] <= sender.due_at() < now[0] + 100.0


def test_unlinkable_reports_have_a_time_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """None waits for another."""
    client = make_client(MemoryTransport(), delay_s=3600, unlinkable=True)
    client.record("dark_mode", True)
    client.record("first_color", "red")
    client.record("color", "red", LINUX)
    with client._state.transaction() as connection:
        dues = [row[0] for row in connection.execute("SELECT due_at FROM open_reports")]
    assert len(set(dues)) == 3
    client.shutdown()


def test_unlinkable_reports_leave_alone_and_each_on_a_connection_of_its_own() -> None:
    """Two requests of one device are linked neither by a batch nor by a connection; else one would do for all."""
    for unlinkable, connections in ((True, 4), (False, 1)):
        with scripted_server(Answer(), keep_alive=True) as server:
            client = make_client(endpoint=server.url, unlinkable=unlinkable)
            client.record("dark_mode", True)
            client.record("first_color", "red")
            record_two_colors(client)
            assert client.flush(20).pending == 0
            client.shutdown()
        sizes = [len(json.loads(body)["reports"]) for body in server.bodies]
        assert sorted(sizes) == ([1] * 4 if unlinkable else [1, 1, 2])
        assert server.connections == connections


def test_nothing_leaves_before_its_time_and_everything_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread sleeps until the random time; a clock that jumps there sets it to work."""
    transport = MemoryTransport()
    client = make_client(transport, delay_s=3600)
    client.record("dark_mode", True)
    client._sender.wake()
    time.sleep(0.1)
    assert transport.bodies == []
    monkeypatch.setattr(Sender, "_now", lambda _: time.time() + 3601)
    client._sender.wake()
    wait_until(lambda: len(transport.reports) == 1)
    client.shutdown()


def test_with_a_state_directory_shutdown_sends_only_what_is_due(tmp_path: Path) -> None:
    """What waits for its random time waits for the next run; in memory it is flushed."""
    for folder, sent in ((tmp_path, 0), (None, 1)):
        transport = MemoryTransport()
        client = make_client(transport, state_dir=folder, delay_s=3600)
        client.record("dark_mode", True)
        assert client.shutdown() is (sent == 1)
        assert len(transport.reports) == sent


def test_shutdown_waits_for_what_is_due(tmp_path: Path) -> None:
    """A batch whose time has come gets its chance within the deadline."""
    transport = MemoryTransport()
    client = make_client(transport, state_dir=tmp_path, delay_s=0, exit_timeout_s=20)
    client.record("dark_mode", True)
    assert client.shutdown() is True
    assert len(transport.reports) == 1


def test_shutdown_is_patient_with_another_process_that_is_writing(tmp_path: Path) -> None:
    """What was delivered just now is still booked, within the deadline, when the other lets go."""
    gate = GateTransport()
    client = make_client(gate, state_dir=tmp_path, delay_s=0)
    client.record("dark_mode", True)
    assert gate.entered.wait(30)
    other = sqlite3.connect(tmp_path / "dither.sqlite3", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    gate.gate.set()
    timer = threading.Timer(0.3, lambda: other.execute("ROLLBACK"))
    timer.start()
    client.shutdown(20)
    timer.join()
    assert other.execute("SELECT count(*) FROM batches").fetchone() == (0,)
    other.close()


def test_a_busy_moment_does_not_put_the_sender_to_sleep(tmp_path: Path) -> None:
    """Another process was writing just when the time came: the report leaves soon afterwards all the same."""
    transport = MemoryTransport()
    client = make_client(transport, state_dir=tmp_path, delay_s=0)
    refusals = [StateBusyError("x")] * 3
    really = Sender._next_action

    def busy(self: Sender, now: float) -> float | None:
        if refusals:
            raise refusals.pop()
        return really(self, now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sender, "_next_action", busy)
        client.record("dark_mode", True)
        wait_until(lambda: len(transport.reports) == 1)
    client.shutdown()


def test_a_broken_state_ends_the_sender_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The thread stops in order, and shutdown does not raise."""
    gate = GateTransport()
    client = make_client(gate, state_dir=tmp_path, delay_s=0)
    client.record("dark_mode", True)
    assert gate.entered.wait(30)
    client._state.close()
    (tmp_path / "dither.sqlite3-wal").unlink(missing_ok=True)
    (tmp_path / "dither.sqlite3").write_bytes(b"garbage" * 1_000)
    with caplog.at_level(logging.WARNING):
        gate.gate.set()
        thread = client._sender._thread
        assert thread is not None
        thread.join(30)
        assert not thread.is_alive()
    assert any("the sender stops" in record.getMessage() for record in caplog.records)
    client.shutdown(0.2)


def test_drops_and_rejections_are_counted_in_full_but_said_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every report alone in a batch makes no flood of warnings."""
    for outcome in (Refused("http:400"), Delivered(0, duplicate=False, rejected=1)):
        caplog.clear()
        with make_client(MemoryTransport(outcome), unlinkable=True) as client:
            record_two_colors(client)
            client.record("dark_mode", True)
            result = client.flush(20)
        assert result.dropped + result.rejected == 3
        assert len(caplog.records) == 1


def test_what_is_pending_is_what_leaves() -> None:
    """The bytes shown are the bytes sent, and an open report stands in its batch as it was shown."""
    gate = GateTransport()
    client = make_client(gate, delay_s=3600)
    record_two_colors(client)
    shown = client.pending()
    assert shown.batches == []
    client.flush(0.1)
    assert gate.entered.wait(30)
    sealed = client.pending()
    assert sealed.reports == []
    gate.gate.set()
    wait_until(lambda: client.pending_reports() == 0)
    client.shutdown()
    assert gate.bodies == sealed.batches
    assert all(report.encode() in gate.bodies[0] for report in shown.reports)
    assert len(gate.reports) == len(shown.reports) == 2


def test_a_transport_that_raises_is_one_more_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The sender outlives it, tries the same bytes again after the back-off, and does not repeat the error's text."""
    transport = MemoryTransport()
    send = transport.send
    calls: list[bytes] = []

    def failing_once(body: bytes) -> Outcome:
        calls.append(body)
        if len(calls) == 1:
            raise KeyError("SECRET-4711")
        return send(body)

    monkeypatch.setattr(transport, "send", failing_once)
    with make_client(transport, state_dir=tmp_path, delay_s=0) as client:
        client.record("dark_mode", True)
        assert client.flush(60).sent == 1
        assert client.stats()["retry:transport:KeyError"] == 1
    assert calls[0] == calls[1]
    assert "SECRET-4711" not in caplog.text
