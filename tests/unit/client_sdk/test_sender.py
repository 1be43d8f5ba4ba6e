"""The sender: the documented outcome of every answer and failure, and when things leave."""

import json
import logging
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dither_client import Client, backoff, transport
from dither_client.errors import StateBusyError
from dither_client.sender import Sender
from dither_client.state import State
from dither_client.testing import MemoryTransport
from dither_client.transport import Delivered, Outcome, Refused, Retry, TooLarge
from support.clients import LINUX, NOON, GateTransport, make_client, wait_until
from support.http import Answer, scripted_server

LONG = {"Retry-After": "3000"}
HTML = b"<html>Welcome to the hotel</html>"


def _tried(client: Client) -> dict[str, int]:
    """What the first try came to, in the client's own counts."""
    wait_until(lambda: len(client.stats()) > 1)
    return {name: count for name, count in client.stats().items() if name != "queued"}


def _in_doubt(folder: Path) -> list[int]:
    connection = sqlite3.connect(folder / "dither.sqlite3")
    found = [row[0] for row in connection.execute("SELECT in_doubt FROM batches")]
    connection.close()
    return found


# Outcomes over real HTTP: what is counted, how many reports stay, and whether the batch is in doubt afterwards.

KEPT = [
    (Answer(503, b"", LONG), "http:503", 1),
    (Answer(429, b"", LONG), "http:429", 0),
    (Answer(500, b"", LONG), "http:500", 1),
    (Answer(408, b"", LONG), "http:408", 1),
    (Answer(409, b"", LONG), "http:409", 1),
    (Answer(302, b"", {"Location": "http://127.0.0.1:9/"} | LONG), "http:302", 1),
    (Answer(200, b"", LONG), "http:200", 1),
    (Answer(200, HTML, LONG), "http:200", 1),
    (Answer(202, b""), "answer:not-a-receipt", 1),
    (Answer(202, HTML), "answer:not-a-receipt", 1),
    (Answer(status=0), "network:ConnectionError", 1),
    (Answer(reset=True), "network:ConnectionError", 1),
    (Answer(silent=True), "network:ReadTimeout", 1),
    (Answer(drip_s=0.05), "network:OSError", 1),
    (Answer(202, b'{"accepted":1,', {"Content-Length": "500"}), "network:ProtocolError", 1),
]


@pytest.mark.parametrize(("answer", "reason", "in_doubt"), KEPT, ids=lambda value: str(value)[:50])
def test_what_is_no_receipt_keeps_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, reason: str, in_doubt: int
) -> None:
    """The report stays, the try is counted by reason; only an answer that decides nothing takes the doubt back."""
    if answer.silent or answer.drip_s:  # short patience where it is what is tested
        monkeypatch.setattr(transport, "READ_TIMEOUT_S" if answer.silent else "ANSWER_LIMIT_S", 0.3)
    with scripted_server(answer) as server:
        client = make_client(endpoint=server.url, state_dir=tmp_path, delay_s=0)
        client.record("dark_mode", True)
        assert set(_tried(client)) == {f"retry:{reason}"}
        wait_until(lambda: _in_doubt(tmp_path) == [in_doubt])
        assert client.pending_reports() == 1
        client.shutdown(0.1)
    assert len(set(server.bodies)) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 415, 422])
def test_a_final_status_drops_the_batch(status: int) -> None:
    """The same bytes would fail again: gone, and counted by reason."""
    with scripted_server(Answer(status)) as server:
        client = make_client(endpoint=server.url, delay_s=0)
        client.record("dark_mode", True)
        assert _tried(client) == {f"dropped:http:{status}": 1}
        wait_until(lambda: client.pending_reports() == 0)
        client.shutdown()
    assert len(server.bodies) == 1


def _tls(port: int) -> str:
    return f"https://127.0.0.1:{port}"


@pytest.mark.parametrize("trouble", ["dns", "tls", "refused"])
def test_trouble_before_the_first_byte_keeps_the_batch(trouble: str) -> None:
    """A name that does not resolve, a server that speaks no TLS, nobody listening: counted, kept, not raised."""
    with scripted_server() as server:
        port = int(server.url.rsplit(":", 1)[1])
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            closed = probe.getsockname()[1]
        endpoint = {
            "dns": "https://dither.invalid",
            "tls": _tls(port),
            "refused": f"http://127.0.0.1:{closed}",
        }
        client = make_client(endpoint=endpoint[trouble], delay_s=0)
        client.record("dark_mode", True)
        (name,) = _tried(client)
        assert name == {"tls": "retry:network:SSLError"}.get(trouble, "retry:network:ConnectionError")
        assert client.pending_reports() == 1
        client.shutdown(0.1)
    assert server.bodies == []


@pytest.mark.parametrize(
    ("header", "at_least", "at_most"),
    [
        ("5", 4, 5),
        ("999999999999999999", 3590, 3600),
        ("Mon, 30 Nov 2099 12:00:00 GMT", 3590, 3600),
        ("Mon, 30 Nov 2009 12:00:00 GMT", -10, 0),
        ("-5", -10, 1),
        ("NaN", -10, 1),
        ("inf", -10, 1),
        ("1e9", -10, 1),
        ("soon", -10, 1),
    ],
)
def test_retry_after_in_every_form(tmp_path: Path, header: str, at_least: float, at_most: float) -> None:
    """Seconds and dates are followed up to an hour; what says nothing leaves the first random wait, below 1 s."""
    with scripted_server(Answer(503, b"", {"Retry-After": header}), Answer(503, b"", LONG)) as server:
        client = make_client(endpoint=server.url, state_dir=tmp_path, delay_s=0)
        kept: list[float] = []
        really = Sender._postpone

        def postpone(self: Sender, batch: Any, outcome: Retry) -> None:
            really(self, batch, outcome)
            kept.append(self._retry_at() - time.time())

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Sender, "_postpone", postpone)
            client.record("dark_mode", True)
            wait_until(lambda: kept)
            client.shutdown(0)
    assert at_least <= kept[0] <= at_most


# Too large


def _two_colors(client: Client) -> None:
    for os in ("linux", "macos"):
        client.record("color", "red", {"os": os})


def test_a_batch_too_large_is_split(tmp_path: Path) -> None:
    """413 first, then receipts: two batches with new ids, the same `until` and reports, nothing lost."""
    with scripted_server(Answer(413, b""), Answer()) as server:
        client = make_client(endpoint=server.url, state_dir=tmp_path)
        _two_colors(client)
        result = client.flush(20)
        client.shutdown()
    assert (result.sent, result.pending, result.dropped) == (2, 0, 0)
    whole, *halves = (json.loads(body) for body in server.bodies)
    assert [len(half["reports"]) for half in halves] == [1, 1]
    assert {half["until"] for half in halves} == {whole["until"]}
    assert len({whole["batch"]} | {half["batch"] for half in halves}) == 3
    reports = [report for half in halves for report in half["reports"]]
    assert sorted(reports, key=str) == sorted(whole["reports"], key=str)


@pytest.mark.parametrize("first", [Answer(status=0), Answer(reset=True)], ids=["closed", "reset"])
def test_a_batch_in_doubt_is_never_split(
    tmp_path: Path, first: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """413 after a try without an answer: the server may have the batch, so its very bytes are tried again."""
    monkeypatch.setattr(backoff, "BACKOFF_BASE_S", 0.01)
    answers = (first, Answer(413, b""), Answer(413, b""), Answer(503, b"", {"Retry-After": "0"}), Answer())
    with scripted_server(*answers) as server:
        client = make_client(endpoint=server.url, state_dir=tmp_path)
        _two_colors(client)
        wait_until(lambda: client.flush(20).pending == 0)
        client.shutdown()
    assert len(server.bodies) == 5
    assert len(set(server.bodies)) == 1
    assert client.stats()["retry:http:413"] == 2


def test_doubt_outlives_a_restart(tmp_path: Path) -> None:
    """A process that dies between a try and its answer leaves the mark; the next one does not split either."""
    gate = GateTransport(Retry("http:503", 0.0))
    first = make_client(gate, state_dir=tmp_path, delay_s=0)
    _two_colors(first)
    assert gate.entered.wait(30)
    assert _in_doubt(tmp_path) == [1]
    body = first.pending().batches[0]
    first._state._connection = None  # as dead: it books nothing any more
    first._state = first._sender._state = State(tmp_path / "elsewhere")
    first._owner.release()
    gate.gate.set()
    second_transport = MemoryTransport(TooLarge(), Delivered(2, duplicate=False, rejected=0))
    second = make_client(second_transport, state_dir=tmp_path)
    wait_until(lambda: second.flush(20).pending == 0)
    second.shutdown()
    first._sender._stopping = True
    assert second_transport.bodies == [body, body]


def test_a_single_report_too_large_is_dropped_and_counted() -> None:
    """There is nothing to split; the next batch goes on."""
    transport = MemoryTransport(TooLarge(), Delivered(1, duplicate=False, rejected=0))
    with make_client(transport, unlinkable=True) as client:
        client.record("dark_mode", True)
        client.record("first_color", "red")
        result = client.flush(20)
        assert (result.dropped, result.sent, result.pending) == (1, 1, 0)
        assert client.stats()["dropped:http:413"] == 1


def test_a_batch_that_always_fails_holds_up_no_other() -> None:
    """One batch that the server never takes: the others get through all the same."""

    class Picky(MemoryTransport):
        def send(self, body: bytes) -> Outcome:
            self.bodies.append(body)
            if b"dark_mode" in body:
                return Retry("http:500", 0.0)
            return Delivered(1, duplicate=False, rejected=0)

    client = make_client(Picky(), unlinkable=True)
    client.record("dark_mode", True)
    for os in ("linux", "macos"):
        client.record("color", "red", {"os": os})
    client.record("first_color", "red")
    wait_until(lambda: client.flush(0.2).pending == 1 and client.stats().get("sent") == 3)
    client.shutdown(0.1)


# Before and during a try


def test_the_doubt_is_on_disk_before_the_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a try runs another connection sees the mark, and the commit that set it waited for the disk."""
    durable: list[bool] = []
    really = State.transaction

    def noted(self: State, *, durable: bool = False) -> Any:
        log.append(durable)
        return really(self, durable=durable)

    log = durable

    class Looking(MemoryTransport):
        seen: list[Any] = []  # noqa: RUF012  one instance

        def send(self, body: bytes) -> Outcome:
            self.seen.append((_in_doubt(tmp_path), durable[-1]))
            return super().send(body)

    monkeypatch.setattr(State, "transaction", noted)
    looking = Looking()
    client = make_client(looking, state_dir=tmp_path, delay_s=0)
    client.record("dark_mode", True)
    wait_until(lambda: looking.bodies)
    client.shutdown()
    assert looking.seen == [([1], True)]


def test_nothing_leaves_after_until() -> None:
    """A batch that nobody would accept any more is dropped unsent, and counted."""
    now = [NOON]
    transport = MemoryTransport(Retry("http:503", 0.0))
    client = make_client(transport, clock=lambda: now[0])
    client.record("dark_mode", True)
    client.flush(0.2)
    now[0] += timedelta(days=10)
    tried = len(transport.bodies)
    wait_until(lambda: client.flush(5).pending == 0)
    assert client.stats()["dropped:expired"] == 1
    assert len(transport.bodies) <= tried + 1
    client.shutdown()


# When


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
            _two_colors(client)
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
            _two_colors(client)
            client.record("dark_mode", True)
            result = client.flush(20)
        assert result.dropped + result.rejected == 3
        assert len(caplog.records) == 1


def test_what_is_pending_is_what_leaves() -> None:
    """The bytes shown are the bytes sent, and an open report stands in its batch as it was shown."""
    gate = GateTransport()
    client = make_client(gate, delay_s=3600)
    _two_colors(client)
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
