"""The registry: bundled or fetched, cached, and the newer of two."""

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dither_client import RecordResult, RecordStatus
from dither_client.registry_source import (
    REFRESH_S,
    RETRY_S,
    RegistrySource,
    in_use,
    is_older,
    read_registry,
    remember_in_use,
)
from dither_client.state import State, read_note, write_note
from dither_client.testing import MemoryTransport
from dither_client.transport import Fetched, HttpTransport, entity_tag
from dither_protocol.errors import RegistryError, UnknownMetricError
from dither_protocol.registry import Registry, registry_from_document
from support.clients import ENDPOINT, make_client, wait_until
from support.http import Answer, scripted_server
from support.registries import small_document, small_registry

NOW = 1_000_000.0


def _version(number: int, **changes: Any) -> dict[str, Any]:
    """`small_document` with ``dark_mode`` at this version."""
    document = small_document()
    document["metrics"]["dark_mode"] |= {"version": number} | changes
    return document


def _registry(number: int) -> Registry:
    return registry_from_document(_version(number))


def _current(source: RegistrySource) -> int | None:
    return None if source.current is None else source.current.metric("dark_mode").version


class Published(MemoryTransport):
    """Answers with a document, or with nothing; remembers the entity tags that it was asked with."""

    def __init__(self, document: Any) -> None:
        super().__init__(registry=document)
        self.asked: list[str] = []

    def fetch_registry(self, etag: str) -> Fetched | None:
        """As a server with entity tags."""
        self.asked.append(etag)
        if self.registry is None:
            return None
        tag = json.dumps(self.registry)[:200]
        return Fetched(None if tag == etag else self.registry, tag)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    """A state on disk."""
    made = State(tmp_path / "state")
    yield made
    made.close()


def test_a_registry_is_read_from_every_form(tmp_path: Path) -> None:
    """Itself, its JSON form, or the path of a TOML file."""
    made = small_registry()
    assert read_registry(made) is made
    assert read_registry(small_document()).metrics == made.metrics
    text = 'schema = 1\nproject = "p"\n[metrics.m]\nversion = 1\ntype = "boolean"\ndescription = "d"\nepsilon = 1.0\n'
    (tmp_path / "registry.toml").write_text(text)
    for path in (tmp_path / "registry.toml", str(tmp_path / "registry.toml")):
        assert list(read_registry(path).metrics) == ["m"]


def test_a_registry_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """A missing file and a broken rule show when the client is made."""
    with pytest.raises(OSError, match="nowhere"):
        read_registry(tmp_path / "nowhere.toml")
    with pytest.raises(RegistryError):
        read_registry({"schema": 2})


def test_older_is_a_lower_version_of_any_metric() -> None:
    """Equal is not older; metrics of one side alone say nothing."""
    assert is_older(_registry(1), _registry(2))
    assert not is_older(_registry(2), _registry(1))
    assert not is_older(_registry(1), _registry(1))
    document = _version(1)
    del document["metrics"]["dark_mode"]
    assert not is_older(registry_from_document(document), _registry(5))


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
@pytest.mark.parametrize("bundled", [False, True])
def test_the_newer_of_two_wins_whichever_comes_first(
    state: State, order: tuple[int, int], bundled: bool
) -> None:
    """Bundled and fetched, or fetched twice."""
    first, second = order
    source = RegistrySource(_registry(first) if bundled else None, state, fetch=True)
    transport = Published(_version(first))
    source.refresh(transport, NOW)
    transport.registry = _version(second)
    source.next_fetch_at = 0.0
    source.refresh(transport, NOW)
    assert _current(source) == 2
    later = RegistrySource(None, state, fetch=True)
    assert _current(later) == 2


def test_a_fetched_registry_is_cached_and_asked_for_by_its_tag(state: State) -> None:
    """The next start has it before any answer, and asks only whether there is another."""
    transport = Published(_version(3))
    first = RegistrySource(None, state, fetch=True)
    first.refresh(transport, NOW)
    second = RegistrySource(None, state, fetch=True)
    assert _current(second) == 3
    second.next_fetch_at = 0.0
    second.refresh(transport, NOW)
    assert transport.asked[0] == ""
    assert transport.asked[1].startswith('{"schema"')
    assert _current(second) == 3
    transport.registry = None  # offline: the stale one serves
    second.next_fetch_at = 0.0
    second.refresh(transport, NOW)
    assert _current(second) == 3


def test_the_server_is_asked_at_random_times_and_sooner_after_a_failure(state: State) -> None:
    """Half to one and a half times six hours, or five minutes; between them it is not asked."""
    transport = Published(_version(1))
    for document, pause in ((transport.registry, REFRESH_S), (None, RETRY_S)):
        transport.registry = document
        times = set()
        for _ in range(50):
            source = RegistrySource(None, state, fetch=True)
            source.next_fetch_at = 0.0
            source.refresh(transport, NOW)
            assert source.next_fetch_at is not None
            assert 0.5 * pause <= source.next_fetch_at - NOW <= 1.5 * pause
            times.add(source.next_fetch_at)
            asked = len(transport.asked)
            source.refresh(transport, source.next_fetch_at - 1)
            assert len(transport.asked) == asked
        assert len(times) > 40


def test_a_restart_does_not_ask_again_before_its_time(state: State) -> None:
    """A program that runs every minute must not show that to the server; a clock set back asks at once."""
    now = time.time()
    transport = Published(_version(1))
    first = RegistrySource(None, state, fetch=True)
    assert first.next_fetch_at == 0.0
    first.refresh(transport, now)
    assert RegistrySource(None, state, fetch=True).next_fetch_at == first.next_fetch_at
    with state.transaction() as connection:
        write_note(connection, "next registry fetch", repr(now + 3 * REFRESH_S))
    assert RegistrySource(None, state, fetch=True).next_fetch_at == 0.0
    with state.transaction() as connection:
        write_note(connection, "next registry fetch", "soon")
    assert RegistrySource(None, state, fetch=True).next_fetch_at == 0.0


def test_a_broken_registry_is_refused_and_said(state: State, caplog: pytest.LogCaptureFixture) -> None:
    """What was in use stays, in the cache too."""
    source = RegistrySource(_registry(2), state, fetch=True)
    for broken in ({"schema": 1}, [], "x", 7, _version(9, epsilon=-1.0), _version(9, unknown=1)):
        source.next_fetch_at = 0.0
        with caplog.at_level(logging.WARNING):
            source.refresh(Published(broken), NOW)
        assert _current(source) == 2
    assert len(caplog.records) == 6
    with state.transaction() as connection:
        assert read_note(connection, "registry") is None


@pytest.mark.parametrize("note", ["{", "[]", "{}", '{"document":{},"etag":"x"}', "7", "null"])
def test_a_broken_cache_is_as_good_as_none(state: State, note: str) -> None:
    """Written by nobody we know: ignored, and replaced by the next fetch."""
    with state.transaction() as connection:
        write_note(connection, "registry", note)
    source = RegistrySource(None, state, fetch=True)
    assert source.current is None
    source.refresh(Published(_version(1)), NOW)
    assert _current(RegistrySource(None, state, fetch=True)) == 1


def test_a_newer_cache_of_another_process_is_not_overwritten(state: State) -> None:
    """Two processes fetch an old and a new registry; the cache keeps the new one."""
    slow = RegistrySource(None, state, fetch=True)
    fast = RegistrySource(None, state, fetch=True)
    fast.refresh(Published(_version(5)), NOW)
    slow.refresh(Published(_version(4)), NOW)
    assert _current(RegistrySource(None, state, fetch=True)) == 5


def test_a_bundled_registry_alone_asks_nobody(state: State) -> None:
    """No fetch, no cache."""
    transport = Published(_version(5))
    source = RegistrySource(_registry(1), state, fetch=False)
    source.refresh(transport, NOW)
    assert transport.asked == []
    assert _current(source) == 1


def test_a_broken_state_leaves_the_bundled_registry(tmp_path: Path) -> None:
    """The client says what is wrong with the state; the registry is there all the same."""
    (tmp_path / "file").write_text("")
    assert _current(RegistrySource(_registry(1), State(tmp_path / "file"), fetch=True)) == 1


def test_what_is_in_use_is_noted_for_the_person(state: State) -> None:
    """The one of the app, else a fetched one, else none; a note that this version cannot read is none."""
    with state.transaction() as connection:
        assert in_use(connection) is None
        write_note(connection, "registry", json.dumps({"etag": "", "document": _version(4)}))
        assert in_use(connection) == _registry(4)
        remember_in_use(connection, _registry(6))
        remember_in_use(connection, _registry(6))
        assert in_use(connection) == _registry(6)
        for broken in ("{", "[]", '{"schema":99}'):
            write_note(connection, "registry in use", broken)
            assert in_use(connection) is None


# Through a client and real HTTP


def test_a_client_without_a_registry_fetches_one_and_uses_it_offline_later(tmp_path: Path) -> None:
    """First no_registry, then queued; a second run without a server answers from the cache."""
    body = json.dumps(_version(7)).encode()
    with scripted_server() as server:
        server.registry = [Answer(200, body, {"ETag": '"v7"'})]
        client = make_client(endpoint=server.url, registry=None, state_dir=tmp_path)
        with pytest.raises(UnknownMetricError, match="no registry yet"):
            _ = (
                client.explain("dark_mode")
                if client._source.current is None
                else client.explain("nothing yet")
            )
        wait_until(lambda: client.record("dark_mode", True).status is RecordStatus.QUEUED)
        assert client.flush(20).sent == 1
        client.shutdown()
    assert json.loads(server.bodies[0])["reports"][0]["version"] == 7
    assert "if-none-match" not in {name.lower() for name in server.gets[0]}
    offline = make_client(MemoryTransport(), registry=None, state_dir=tmp_path)
    assert offline.record("first_color", "red") == RecordResult(RecordStatus.QUEUED)
    offline.shutdown()


def test_a_registry_that_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    """The tag goes out, 304 comes back, and what is in use stays."""
    with scripted_server() as server:
        body = json.dumps(_version(7)).encode()
        server.registry = [
            Answer(200, body, {"ETag": entity_tag(body)}),
            Answer(304, b""),
            Answer(500, b""),
        ]
        transport = HttpTransport(server.url, "dik_x")
        source = RegistrySource(None, State(None), fetch=True)
        for _ in range(3):
            source.next_fetch_at = 0.0
            source.refresh(transport, NOW)
            assert _current(source) == 7
        transport.close()
    tags = [{name.lower(): value for name, value in got.items()}.get("if-none-match") for got in server.gets]
    assert tags == [None, entity_tag(body), entity_tag(body)]


def test_the_apps_limits_hold_for_a_fetched_registry() -> None:
    """Whatever a server publishes, max_epsilon and the app's sums are the app's (invariant P6)."""
    greedy = _version(2, epsilon=8.0)
    greedy["metrics"]["first_color"]["epsilon"] = 3.0
    greedy["metrics"]["color"] |= {"epsilon": 3.0, "dimensions": {}}
    greedy["privacy"] = {"max_epsilon_per_day": 1_000.0}
    client = make_client(
        Published(greedy), registry=None, max_epsilon=4.0, max_epsilon_per_day=5.0, delay_s=3600
    )
    wait_until(lambda: client._source.current)
    assert client.record("dark_mode", True) == RecordResult(RecordStatus.DROPPED, "epsilon_above_limit")
    assert client.record("first_color", "red").status is RecordStatus.QUEUED
    assert client.record("color", "red").status is RecordStatus.BUDGET_EXHAUSTED
    client.shutdown()


def test_a_registry_is_fetched_beside_a_bundled_one_on_request() -> None:
    """fetch_registry=True asks even where the app has its own; the default does not."""
    for fetch, version in ((True, 9), (None, 1)):
        transport = Published(_version(9))
        client = make_client(transport, registry=_version(1), fetch_registry=fetch)
        if fetch:
            wait_until(lambda asked=transport.asked: asked)
        wait_until(lambda c=client, v=version: _current(c._source) == v)
        client.shutdown()
        assert len(transport.asked) == (1 if fetch else 0)
    assert ENDPOINT
