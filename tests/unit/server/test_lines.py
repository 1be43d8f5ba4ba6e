"""Round trips over kept connections: each command has its own reply, whatever became of the one before."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from dither_server.lines import Lines, Replies
from support.store import Store as Valkey
from support.store import running_store


@pytest.fixture
def client(store: Valkey) -> Iterator[redis.Redis]:
    """The library's client with the limits of a test."""
    retry = Retry(NoBackoff(), 1, (redis.ConnectionError,))
    with redis.Redis.from_url(store.url, socket_timeout=0.3, retry=retry) as client:
        yield client


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Closed afterwards."""
    lines = Lines(Replies(redis.ResponseError, redis.ConnectionError))
    yield lines
    lines.drop()


def _connections(store: Valkey) -> int:
    """How many were ever opened."""
    with store.client() as client:
        return int(client.info("stats")["total_connections_received"])


def test_all_round_trips_share_a_connection(store: Valkey, client: redis.Redis, lines: Lines) -> None:
    """However many there are, and however many commands each has."""
    assert lines.ask(client, [("PING",)]) == [b"PONG"]
    before = _connections(store)
    for place in range(50):
        assert lines.ask(client, [("ECHO", place), ("ECHO", f"{place} more"), ("SET", "k", bytes(5))]) == [
            b"%d" % place,
            b"%d more" % place,
            b"OK",
        ]
    assert _connections(store) == before + 1, "that of the counting alone"


def test_an_error_stands_in_its_place(client: redis.Redis, lines: Lines) -> None:
    """The others have their replies, and so has the next round trip."""
    first, error, last = lines.ask(client, [("SET", "text", "x"), ("INCR", "text"), ("GET", "text")])
    assert (first, last) == (b"OK", b"x")
    assert isinstance(error, redis.ResponseError)
    assert lines.ask(client, [("ECHO", "next")]) == [b"next"]


def test_a_connection_that_the_store_closed_is_opened_again(
    store: Valkey, client: redis.Redis, lines: Lines
) -> None:
    """As stores do with idle ones: nobody notices."""
    for place in range(3):
        assert lines.ask(client, [("ECHO", place)]) == [b"%d" % place]
        with store.client() as other:
            other.client_kill_filter(_type="normal", skipme=True)


def test_a_late_reply_is_nobody_elses(store: Valkey, client: redis.Redis, lines: Lines) -> None:
    """After silence the connection is given up: what still comes over it is not the answer to the next question."""
    assert lines.ask(client, [("ECHO", "early")]) == [b"early"]
    with store.client() as other:
        other.client_pause(600, all=True)
        with pytest.raises(redis.TimeoutError):
            lines.ask(client, [("ECHO", "late")])
        other.client_unpause()
    for _ in range(3):
        assert lines.ask(client, [("ECHO", "next")]) == [b"next"]


def test_threads_do_not_hear_each_other(client: redis.Redis, lines: Lines) -> None:
    """Who comes while the connection is in use has another one."""

    def ask(number: int) -> bool:
        return all(
            lines.ask(client, [("ECHO", number), ("ECHO", -number)]) == [b"%d" % number, b"%d" % -number]
            for _ in range(100)
        )

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(1, 9)))
    assert len(lines._kept) == 1


@contextmanager
def _slow_network(store: Path, address: Path, bytes_per_s: float) -> Iterator[None]:
    """Takes one connection at ``address`` on to the store; what is sent to the store goes at this pace."""

    def carry(source: socket.socket, target: socket.socket, pause_s: float) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
                time.sleep(pause_s * len(data))
            target.shutdown(socket.SHUT_WR)

    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as there:
        listening.bind(str(address))
        listening.listen()
        there.connect(str(store))

        def serve() -> None:
            here, _ = listening.accept()
            with here:
                back = threading.Thread(target=carry, args=(there, here, 0.0))
                back.start()
                carry(here, there, 1 / bytes_per_s)
                back.join()

        serving = threading.Thread(target=serve)
        serving.start()
        yield
        serving.join(60)


def test_large_commands_have_time_on_a_slow_network(store: Valkey, tmp_path: Path, lines: Lines) -> None:
    """The limit is for each part that is sent, not for all that goes together."""
    address, large = tmp_path / "slow.sock", bytes(100_000)
    with (
        _slow_network(store.folder / "s.sock", address, 4e6),
        redis.Redis(unix_socket_path=str(address), socket_timeout=1) as client,
    ):
        assert lines.ask(client, [("SET", place, large) for place in range(60)]) == [b"OK"] * 60
        lines.drop()


def test_a_store_that_is_gone_is_said_to_be(lines: Lines) -> None:
    """And one that is back is used again."""
    with running_store() as valkey, redis.Redis.from_url(valkey.url, retry=Retry(NoBackoff(), 0)) as client:
        assert lines.ask(client, [("PING",)]) == [b"PONG"]
        valkey.kill()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                lines.ask(client, [("PING",)])
        valkey.start()
        assert lines.ask(client, [("PING",)]) == [b"PONG"]


def test_what_was_dropped_is_closed(store: Valkey, client: redis.Redis, lines: Lines) -> None:
    """The next round trip opens its own."""
    (number,) = lines.ask(client, [("CLIENT", "ID")])
    lines.drop()
    with store.client() as other:
        assert number not in {int(found["id"]) for found in other.client_list()}
    (fresh,) = lines.ask(client, [("CLIENT", "ID")])
    assert fresh != number
