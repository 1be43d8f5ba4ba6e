"""Pinned keys: what is asked of a device is what the holder of a key has signed, whatever a server sends."""

import json
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dither_client import RecordStatus, registry_source, transport
from dither_client.errors import StateBusyError
from dither_client.registry_source import RETRY_S, RegistrySource, in_use, read_registry
from dither_client.registry_trust import Refusal, read_keys
from dither_client.state import State, read_note, write_note
from dither_client.testing import MemoryTransport
from dither_client.transport import Fetched, HttpTransport, entity_tag
from dither_protocol.registry import Registry, registry_from_document
from support.clients import make_client, wait_until
from support.http import Answer, scripted_server
from support.registries import small_document
from support.signing import SigningKey, signed

NOW = 1_000_000.0
KEY, OTHER = SigningKey(), SigningKey()


def _document(version: int = 1, project: str | None = None, **changes: Any) -> dict[str, Any]:
    """`small_document` with ``dark_mode`` at this version."""
    document = small_document()
    document["project"] = project or document["project"]
    document["metrics"]["dark_mode"] |= {"version": version} | changes
    return document


def _envelope(revision: int, *keys: SigningKey, **changes: Any) -> str:
    return signed(_document(**changes), revision, *(keys or (KEY,))).decode()


def _source(state: State, bundled: Registry | None = None, *keys: SigningKey) -> RegistrySource:
    return RegistrySource(bundled, state, fetch=True, keys=read_keys(key.text for key in keys or (KEY,)))


def _offer(source: RegistrySource, document: Any) -> None:
    """The server answers with this."""
    source.next_fetch_at = 0.0
    source.refresh(MemoryTransport(registry=document), NOW)


def _version(source: RegistrySource) -> int | None:
    return None if source.current is None else source.current.metric("dark_mode").version


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    """A state on disk."""
    made = State(tmp_path / "state")
    yield made
    made.close()


def test_a_signed_registry_is_used_and_cached_as_it_was_signed(state: State) -> None:
    """The next start has it before any answer, and checks the signature again."""
    source = _source(state)
    _offer(source, _envelope(4, version=3))
    assert _version(source) == 3
    assert not source.refused
    assert _version(_source(state)) == 3
    with state.transaction() as connection:
        cached = json.loads(read_note(connection, "registry") or "")
        assert cached["envelope"] == _envelope(4, version=3)
        assert in_use(connection) == registry_from_document(_document(3))


def _spoiled(**changes: Any) -> str:
    return json.dumps(json.loads(_envelope(5, version=2)) | changes)


_SIGNATURE = json.loads(_envelope(5, version=2))["signatures"][0]
REFUSED: dict[str, tuple[Any, Refusal]] = {
    "the plain form": (_document(2), Refusal.UNSIGNED),
    "nothing signed": ("", Refusal.UNSIGNED),
    "no envelope": ("<html>", Refusal.BROKEN),
    "the plain form as text": (json.dumps(_document(2)), Refusal.BROKEN),
    "deep": ("[" * 100_000, Refusal.BROKEN),
    "another key": (_envelope(5, OTHER, version=2), Refusal.UNTRUSTED),
    "another revision": (_spoiled(revision=6), Refusal.UNTRUSTED),
    "another document": (_spoiled(document=json.loads(_envelope(5, version=3))["document"]), Refusal.UNTRUSTED),
    "another key's name": (_spoiled(signatures=[_SIGNATURE | {"key": OTHER.id}]), Refusal.UNTRUSTED),
    "another signature": (
        _spoiled(signatures=[json.loads(_envelope(6, version=2))["signatures"][0]]), Refusal.UNTRUSTED
    ),
    "another form": (_spoiled(dither_registry=2), Refusal.BROKEN),
    "no signature": (_spoiled(signatures=[]), Refusal.BROKEN),
    "something more": (_spoiled(extra=1), Refusal.BROKEN),
    "another project": (_envelope(5, version=2, project="other"), Refusal.OTHER_PROJECT),
    "an older revision": (_envelope(3, version=2), Refusal.ROLLED_BACK),
    "the same revision again": (_envelope(4, version=2), Refusal.REVISION_REUSED),
}  # fmt: skip


@pytest.mark.parametrize(("document", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_signed_so_is_refused(
    state: State, document: Any, reason: Refusal, caplog: pytest.LogCaptureFixture
) -> None:
    """What is in use stays, now and after a restart; it is counted each time, and said."""
    source = _source(state)
    _offer(source, _envelope(4, version=1))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            _offer(source, document)
    assert _version(source) == 1
    assert source.refused == {reason: 3}
    assert len(caplog.records) == (3 if reason is Refusal.BROKEN else 1)
    assert f"({reason})" in caplog.text
    assert _version(_source(state)) == 1


def test_a_rollback_is_refused_over_restarts_and_between_processes(state: State) -> None:
    """The highest revision is kept beside the ledger, also where another registry could not be cached since."""
    slow, fast = _source(state), _source(state)
    _offer(fast, _envelope(9, version=2))
    _offer(slow, _envelope(8, version=1))
    assert (_version(slow), slow.refused) == (None, {Refusal.ROLLED_BACK: 1})
    with state.transaction() as connection:
        write_note(connection, "registry", None)
    later = _source(state)
    assert _version(later) is None
    _offer(later, _envelope(8, version=1))
    assert (_version(later), later.refused) == (None, {Refusal.ROLLED_BACK: 1})
    _offer(later, _envelope(9, version=2))
    assert _version(later) == 2
    _offer(later, _envelope(10, version=3))
    assert (_version(later), _version(_source(state))) == (3, 3)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace('revision\\": 4', 'revision\\": 5'),
        lambda text: text.replace('epsilon\\\\\\":1.0', 'epsilon\\\\\\":7.0'),
        lambda text: json.dumps(json.loads(text) | {"envelope": _envelope(4, OTHER, version=9)}),
        lambda text: json.dumps(json.loads(text) | {"envelope": _envelope(3, version=9)}),
        lambda text: json.dumps(json.loads(text) | {"envelope": _envelope(4, version=9)}),
        lambda text: json.dumps({"etag": "", "document": _document(9)}),
        lambda text: json.dumps({"etag": "", "envelope": _document(9)}),
    ],
)
def test_a_cache_that_was_tampered_with_is_refused(state: State, spoil: Any) -> None:
    """It is as good as none: the bundled registry serves, and the next fetch replaces it."""
    _offer(_source(state), _envelope(4, version=2))
    with state.transaction() as connection:
        good = read_note(connection, "registry") or ""
        bad = spoil(good)
        assert bad != good
        write_note(connection, "registry", bad)
    source = _source(state, registry_from_document(_document(1)))
    assert _version(source) == 1
    _offer(source, _envelope(4, version=2))
    assert _version(source) == 2
    assert _version(_source(state)) == 2


def test_keys_are_rotated_with_two_that_are_valid(state: State) -> None:
    """Old apps know the old key, new ones both; the registry is signed by both, then by the new one alone."""
    old_app, new_app = _source(state), _source(state, None, KEY, OTHER)
    for revision, keys, in_old, in_new in ((1, (KEY,), 1, 1), (2, (KEY, OTHER), 2, 2), (3, (OTHER,), 2, 3)):
        for source, expected in ((old_app, in_old), (new_app, in_new)):
            _offer(source, _envelope(revision, *keys, version=revision))
            assert _version(source) == expected
    assert old_app.refused == {Refusal.UNTRUSTED: 1}
    only_new = _source(state, None, OTHER)
    assert _version(only_new) == 3


def test_an_update_of_the_app_with_another_key_goes_on(state: State) -> None:
    """The way out after a lost key: the old cache is not trusted by the new key, and the revision still counts."""
    _offer(_source(state), _envelope(7, version=2))
    bundled = registry_from_document(_document(2))
    updated = _source(state, bundled, OTHER)
    assert (updated.current, updated.refused) == (bundled, {Refusal.UNTRUSTED: 1})
    _offer(updated, _envelope(6, OTHER, version=3))
    assert _version(updated) == 2
    _offer(updated, _envelope(8, OTHER, version=3))
    assert _version(updated) == 3


def test_a_bundled_registry_is_not_replaced_by_an_older_one(state: State) -> None:
    """However well it is signed; that is no refusal to speak of, and its revision is not taken for seen."""
    source = _source(state, registry_from_document(_document(5)))
    _offer(source, _envelope(4, version=3))
    assert (_version(source), source.refused) == (5, {})
    _offer(source, _envelope(3, version=6))
    assert _version(source) == 6


@pytest.mark.parametrize("pinned", [False, True])
def test_another_projects_registry_is_refused_in_any_case(
    state: State, pinned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With keys or without: an app asks the questions of its own project."""
    bundled = registry_from_document(_document(1))
    source = _source(state, bundled) if pinned else RegistrySource(bundled, state, fetch=True)
    foreign = _envelope(2, version=2, project="other") if pinned else _document(2, "other")
    for _ in range(2):
        _offer(source, foreign)
    assert source.current is bundled
    assert source.refused == {Refusal.OTHER_PROJECT: 2}
    assert caplog.text.count("another project's") == 1


def test_a_change_to_pinned_keys_and_back_fetches_anew(state: State) -> None:
    """What was cached without a signature is not trusted later, and an envelope is no document."""
    plain = RegistrySource(None, state, fetch=True)
    _offer(plain, _document(2))
    pinned = _source(state)
    assert (_version(pinned), pinned.refused) == (None, {})
    _offer(pinned, _envelope(1, version=3))
    assert _version(RegistrySource(None, state, fetch=True)) is None


def test_strange_words_do_not_reach_the_log(state: State, caplog: pytest.LogCaptureFixture) -> None:
    """A stranger's document may have keys of any length, with any control characters."""
    source = _source(state)
    _offer(source, json.dumps({"\x1b[31m\nfake line" + "x" * 100_000: 1}))
    (record,) = caplog.records
    assert len(record.getMessage()) < 500
    assert record.getMessage().isprintable()


def test_what_could_not_be_booked_is_not_used_and_asked_for_again_soon(state: State, tmp_path: Path) -> None:
    """The revision must be on disk before the registry counts: else a restart would take an older one."""
    source, other = _source(state), State(tmp_path / "state")

    class Busy(MemoryTransport):
        def fetch_registry(self, etag: str, *, signed: bool = False) -> Fetched:
            """Another process takes the state while the answer is on its way."""
            held.enter_context(other.transaction())
            return Fetched(_envelope(4, version=2), "")

    with ExitStack() as held, pytest.raises(StateBusyError):
        source.refresh(Busy(), NOW)
    assert _version(source) is None
    assert source.next_fetch_at == NOW + RETRY_S
    _offer(source, _envelope(4, version=2))
    assert _version(source) == 2
    other.close()


@pytest.mark.parametrize("pinned", [False, True])
def test_no_fork_comes_between_while_a_registry_is_read(
    state: State, monkeypatch: pytest.MonkeyPatch, pinned: bool
) -> None:
    """Reading loads modules late and checks signatures: a child that is forked meanwhile could hang in either."""
    free: list[bool] = []

    def fork_hook() -> None:
        free.append(transport._import_lock.acquire(blocking=False))
        if free[-1]:
            transport._import_lock.release()

    name = "open_signed" if pinned else "registry_from_document"
    really = getattr(registry_source, name)

    def watched(*arguments: Any) -> Any:
        thread = threading.Thread(target=fork_hook)
        thread.start()
        thread.join()
        return really(*arguments)

    monkeypatch.setattr(registry_source, name, watched)
    source = _source(state) if pinned else RegistrySource(None, state, fetch=True)
    _offer(source, _envelope(1, version=2) if pinned else _document(2))
    assert _version(source) == 2
    assert free[0] is False


def test_keys_are_read_when_the_client_is_made() -> None:
    """A mistyped one is a mistake of the app, and shows at once; so does a text in place of a list."""
    for wrong in ([KEY.text[:-1]], [KEY.text, "x"], KEY.text, [7]):
        with pytest.raises(ValueError, match="key"):
            make_client(MemoryTransport(), registry_keys=wrong)
    assert read_keys([KEY.text, OTHER.text]) == {KEY.id: KEY.public, OTHER.id: OTHER.public}
    assert read_keys(()) == {}


@pytest.mark.parametrize(("fetch", "expected"), [(None, 3), (True, 3), (False, 1)])
def test_pinned_keys_mean_that_the_server_is_asked(fetch: bool | None, expected: int) -> None:
    """Beside a registry of the app as well: nobody pins a key for nothing. An explicit no goes before it."""
    client = make_client(
        MemoryTransport(registry=_envelope(1, version=3)),
        registry=_document(1),
        registry_keys=[KEY.text],
        fetch_registry=fetch,
    )
    wait_until(lambda: _version(client._source) == expected)
    assert (client._source.next_fetch_at is None) == (fetch is False)
    client.shutdown()


def test_a_signed_file_may_be_bundled(tmp_path: Path) -> None:
    """The file of the server is good for the app as well; what an app ships is trusted without a key."""
    path = tmp_path / "registry.signed.json"
    path.write_text(_envelope(3, version=4))
    assert read_registry(path) == registry_from_document(_document(4))


def test_the_signed_form_is_asked_for_and_used_offline_later(tmp_path: Path) -> None:
    """Over HTTP: a wrong one, a good one, and no other since; a client without a server has it from the cache."""
    state, good = State(tmp_path), _envelope(2, version=7).encode()
    with scripted_server() as server:
        server.registry = [
            Answer(200, _envelope(2, OTHER, version=9).encode(), {"ETag": '"a"'}),
            Answer(200, good, {"ETag": entity_tag(good)}),
            Answer(304, b""),
        ]
        transport, source = HttpTransport(server.url, "dik_x"), _source(state)
        for expected in (None, 7, 7):
            source.next_fetch_at = 0.0
            source.refresh(transport, NOW)
            assert _version(source) == expected
        transport.close()
    state.close()
    assert server.paths == ["/v1/registry/signed"] * 3
    tags = [{name.lower(): value for name, value in got.items()}.get("if-none-match") for got in server.gets]
    assert tags == [None, None, entity_tag(good)]
    offline = make_client(MemoryTransport(), registry=None, state_dir=tmp_path, registry_keys=[KEY.text])
    assert offline.record("first_color", "red").status is RecordStatus.QUEUED
    assert _version(offline._source) == 7
    offline.shutdown()


def test_a_client_says_in_its_counts_what_it_refused() -> None:
    """By reason, beside what became of answers and reports; what it asks is what it had."""
    client = make_client(
        MemoryTransport(registry=_envelope(2, OTHER, version=9)),
        registry=_document(1),
        registry_keys=[KEY.text],
    )
    wait_until(lambda: client.stats().get("registry_refused:untrusted") == 1)
    assert client.record("dark_mode", True).status is RecordStatus.QUEUED
    assert _version(client._source) == 1
    client.shutdown()


def test_counts_are_read_while_the_sender_counts_something_new() -> None:
    """A dict must not grow under whoever goes through it, step by step."""

    class Growing(Counter[Any]):
        def items(self) -> Any:
            """The sender's thread comes between."""
            for number, key in enumerate(self):
                yield key, self[key]
                self[f"more {number}"] = 1

    client = make_client(MemoryTransport())
    client.record("dark_mode", True)
    client._source.refused = Growing({Refusal.BROKEN: 1, Refusal.UNSIGNED: 2})
    client._sender.totals = Growing({"sent": 3, "duplicate": 4})
    assert client.stats() == {
        "queued": 1,
        "registry_refused:broken": 1,
        "registry_refused:unsigned": 2,
        "sent": 3,
        "duplicate": 4,
    }
    client.shutdown()


def test_a_server_without_a_signed_form_is_counted_and_one_that_fails_is_not() -> None:
    """404 says that there is none; a 503 says nothing, and neither does silence."""
    with scripted_server() as server:
        server.registry = [Answer(404, b"{}"), Answer(503, b""), Answer(200, b"")]
        transport = HttpTransport(server.url, "dik_x")
        assert transport.fetch_registry("", signed=True) == Fetched("", "")
        assert transport.fetch_registry("", signed=True) is None
        assert transport.fetch_registry("", signed=True) == Fetched("", "")
        transport.close()
