"""What becomes of a batch: the documented outcome of every answer and failure, over real HTTP."""

import json
import socket
import sqlite3
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dither_client import Client, backoff, transport
from dither_client.sender import Sender
from dither_client.state import State
from dither_client.testing import MemoryTransport
from dither_client.transport import Delivered, Outcome, Retry, TooLarge
from support.clients import NOON, GateTransport, make_client, record_two_colors, wait_until
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


def test_a_batch_too_large_is_split(tmp_path: Path) -> None:
    """413 first, then receipts: two batches with new ids, the same `until` and reports, nothing lost."""
    with scripted_server(Answer(413, b""), Answer()) as server:
        client = make_client(endpoint=server.url, state_dir=tmp_path)
        record_two_colors(client)
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
        record_two_colors(client)
        wait_until(lambda: client.flush(20).pending == 0)
        client.shutdown()
    assert len(server.bodies) == 5
    assert len(set(server.bodies)) == 1
    assert client.stats()["retry:http:413"] == 2


def test_doubt_outlives_a_restart(tmp_path: Path) -> None:
    """A process that dies between a try and its answer leaves the mark; the next one does not split either."""
    gate = GateTransport(Retry("http:503", 0.0))
    first = make_client(gate, state_dir=tmp_path, delay_s=3600)
    record_two_colors(first)
    sending = threading.Thread(target=first.flush, args=(30,))
    sending.start()
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
    sending.join(60)
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
