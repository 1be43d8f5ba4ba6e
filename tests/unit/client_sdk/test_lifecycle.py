"""The hooks of the process: weak, set once, and one deadline at exit for all clients."""

import gc
import weakref

import pytest

import dither_client.state
from dither_client import Client, lifecycle
from dither_client.lifecycle import Lively
from dither_client.testing import MemoryTransport
from support.clients import make_client
from support.forked import answer_of_child


class Stub:
    """A client that takes its whole time at exit, by a clock that the test owns."""

    def __init__(self, exit_timeout_s: float, clock: list[float], takes_s: float = 0.0) -> None:
        self.exit_timeout_s = exit_timeout_s
        self.given: list[float] = []
        self.renewed = 0
        self._clock = clock
        self._takes_s = takes_s

    def renew_in_child(self) -> None:
        """Count."""
        self.renewed += 1

    def finish_at_exit(self, timeout_s: float) -> None:
        """Use up what it may, at most what it takes."""
        self.given.append(timeout_s)
        self._clock[0] += min(timeout_s, self._takes_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The hooks see the test's clients alone, and a clock of the test's own."""
    now = [100.0]
    clients: weakref.WeakSet[Lively] = weakref.WeakSet()
    monkeypatch.setattr(lifecycle, "_clients", clients)
    monkeypatch.setattr(lifecycle.time, "monotonic", lambda: now[0])
    return now


def test_one_deadline_holds_for_all_clients_together(clock: list[float]) -> None:
    """Three clients that never finish take two seconds, not six: the later ones get what is left, at least zero."""
    stubs = [Stub(2.0, clock, takes_s=1.5) for _ in range(3)]
    for stub in stubs:
        lifecycle.watch(stub)
    lifecycle._at_exit()
    assert sorted(given for stub in stubs for given in stub.given) == [0.0, 0.5, 2.0]
    assert clock[0] == 102.0


def test_the_longest_wish_is_the_deadline(clock: list[float]) -> None:
    """And without clients there is nothing to wait for."""
    lifecycle._at_exit()
    assert clock[0] == 100.0
    stubs = [Stub(1.0, clock), Stub(3.0, clock)]
    for stub in stubs:
        lifecycle.watch(stub)
    lifecycle._at_exit()
    assert [stub.given for stub in stubs] == [[3.0], [3.0]]


def test_a_client_that_the_app_has_dropped_is_collected() -> None:
    """The hooks hold it weakly."""
    client: Client | None = make_client(MemoryTransport())
    assert client in lifecycle._clients
    gone = weakref.ref(client)
    client = None
    gc.collect()
    assert gone() is None


def test_the_hooks_are_set_once(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    """A hundred clients are one hook at exit and one at fork: hooks cannot be taken back."""
    set_: list[str] = []
    monkeypatch.setattr(lifecycle, "_registered", False)
    monkeypatch.setattr(lifecycle.atexit, "register", lambda *_: set_.append("exit"))
    monkeypatch.setattr(lifecycle.os, "register_at_fork", lambda **_: set_.append("fork"), raising=False)
    stubs = [Stub(1.0, clock) for _ in range(100)]
    for stub in stubs:
        lifecycle.watch(stub)
    assert set_ == ["exit", "fork"]


def test_at_exit_a_closed_client_does_nothing_and_an_open_one_in_memory_flushes() -> None:
    """What is only in memory would be lost; with the state on disk nothing begins that is not due."""
    transport = MemoryTransport()
    client = make_client(transport, delay_s=3600)
    client.record("dark_mode", True)
    client.finish_at_exit(20)
    assert len(transport.reports) == 1
    client.shutdown()
    client.finish_at_exit(20)
    assert len(transport.bodies) == 1


def test_a_client_renewed_in_a_child_is_a_new_device_in_memory() -> None:
    """With state_dir=None the child has an empty queue, an empty ledger and counts of its own; the parent keeps its."""
    client = make_client(MemoryTransport(), delay_s=3600)
    client.record("dark_mode", True)
    inherited = client._state._connection
    assert inherited is not None

    def child() -> list[object]:
        found = [list(client.pending()), client.stats(), client.privacy_ledger().spent_lifetime]
        # The parent's connection is kept: to close it, or to let it be collected, would be to use it.
        return [*found, client._state._connection is inherited, inherited in dither_client.state._INHERITED]

    assert answer_of_child(child) == [[[], []], {}, 0, False, True]
    assert inherited.execute("SELECT count(*) FROM open_reports").fetchone() == (1,)
    assert client.stats() == {"queued": 1}
    client.shutdown()
