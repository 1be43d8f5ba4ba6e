"""Back-off: random, growing, capped, as long as the server asks, and kept in the state."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dither_client import backoff
from dither_client.outbox import FAR_AHEAD_S
from dither_client.sender import Sender
from dither_client.state import State
from dither_client.testing import MemoryTransport
from dither_client.transport import Retry
from support.clients import make_client, wait_until

NOW = 1_000_000.0


@pytest.fixture
def state() -> Iterator[State]:
    """A state in memory."""
    made = State(None)
    yield made
    made.close()


def test_a_uniform_time_fills_its_range() -> None:
    """From nothing to the limit, which is never reached."""
    drawn = [backoff.uniform_s(10.0) for _ in range(2_000)]
    assert 0 <= min(drawn) < 1
    assert 9 < max(drawn) < 10
    assert backoff.uniform_s(0.0) == 0.0


@pytest.mark.parametrize(("failures", "limit"), [(1, 1.0), (2, 2.0), (5, 16.0), (10, 300.0), (10**6, 300.0)])
def test_the_backoff_doubles_and_is_capped(failures: int, limit: float) -> None:
    """Full jitter: uniform up to 2^(failures-1) seconds, never above five minutes."""
    drawn = [backoff.backoff_s(failures) for _ in range(1_000)]
    assert 0 <= min(drawn) < 0.1 * limit
    assert 0.9 * limit < max(drawn) < limit


def test_a_failure_waits_as_long_as_the_server_asked(state: State) -> None:
    """Retry-After goes before our own random time, zero included."""
    with state.transaction() as connection:
        assert backoff.retry_at(connection, NOW) == 0.0
        for after_s in (0.0, 7.5, 3600.0):
            backoff.failed(connection, NOW, after_s)
            assert backoff.retry_at(connection, NOW) == NOW + after_s


def test_failures_in_a_row_are_counted_and_a_success_ends_them(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The random time grows with each of them, and begins anew after a success."""
    monkeypatch.setattr(backoff, "uniform_s", lambda limit_s: limit_s)
    with state.transaction() as connection:
        for expected in (1.0, 2.0, 4.0, 8.0):
            backoff.failed(connection, NOW, None)
            assert backoff.retry_at(connection, NOW) == NOW + expected
        backoff.succeeded(connection)
        assert backoff.retry_at(connection, NOW) == 0.0
        backoff.failed(connection, NOW, None)
        assert backoff.retry_at(connection, NOW) == NOW + 1.0


def test_a_clock_that_was_set_back_ends_the_backoff(state: State) -> None:
    """A time further ahead than any wait of ours is none; one within reach is kept."""
    with state.transaction() as connection:
        backoff.failed(connection, NOW, 3600.0)
        assert backoff.retry_at(connection, NOW + 3600.0 - FAR_AHEAD_S) == NOW + 3600.0
        assert backoff.retry_at(connection, NOW + 3600.0 - FAR_AHEAD_S - 1) == 0.0


def test_a_second_client_honours_the_backoff_and_a_success_clears_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a first run was told holds for the next run too, until its time has come."""
    first = make_client(MemoryTransport(Retry("http:503", 600.0)), state_dir=tmp_path, delay_s=0)
    first.record("dark_mode", True)
    wait_until(lambda: first.stats().get("retry:http:503"))
    first.shutdown()
    up = MemoryTransport()
    second = make_client(up, state_dir=tmp_path, delay_s=0)
    second.record("first_color", "red")
    result = second.flush(20)  # returns at once: the wait is longer than that
    assert (result.sent, result.pending, result.timed_out) == (0, 2, True)
    assert up.bodies == []
    monkeypatch.setattr(Sender, "_now", lambda _: time.time() + 601)
    assert second.flush(20).sent == 2
    with second._state.transaction() as connection:
        assert backoff.retry_at(connection, time.time()) == 0.0
    second.shutdown()
