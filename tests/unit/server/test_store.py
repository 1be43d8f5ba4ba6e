"""The store's own rules against a real Valkey: fit or refused, ready or not, back after a loss."""

import logging
import os
import signal
import socket
import time
from contextlib import contextmanager, suppress

import pytest

from dither_protocol.errors import Rejection
from dither_protocol.storage import LAYOUT, META_KEY, metric_key, versions_key
from dither_protocol.wire import Envelope, parse_envelope
from dither_server import store as store_module
from dither_server.admission import admit
from dither_server.admit_call import Outcome
from dither_server.app import create_app
from dither_server.store import Store
from dither_server.store_rules import StoreRefused, StoreUnavailable
from support.server import NOW, REGISTRY, TODAY, batch, registry, report, settings
from support.store import running_store


def _store(folder, url, **changes):
    found = settings(folder, url, **changes)
    return create_app(found).extensions["dither"].store


def _send(store, document=None):
    return store.admit(admit(store.catalogue(), parse_envelope(document or batch()), NOW))


def test_the_first_server_writes_what_the_store_is_for(store, tmp_path):
    """Number of partitions, layout and every metric's definition are written at the first start."""
    _store(tmp_path, store.url)
    with store.client(decode=True) as client:
        assert client.hgetall(META_KEY) == {"partitions": "8", "layout": str(LAYOUT)}
        assert client.smembers(versions_key("browser")) == {"2"}
        assert registry().metrics["browser"].params_hash in client.get(metric_key("browser", 2))
    before = store.dump()
    _store(tmp_path, store.url)
    assert store.dump() == before


def test_another_number_of_partitions_is_refused(store, tmp_path):
    """Batches would be looked for in the wrong partition: such a server does not start, and changes nothing."""
    _store(tmp_path, store.url)
    before = store.dump()
    with pytest.raises(StoreRefused, match="partitions 8, this server wants 4"):
        _store(tmp_path, store.url, partitions=4)
    assert store.dump() == before


def test_a_changed_meaning_without_a_new_version_is_refused(store, tmp_path):
    """Reports of two meanings must not be counted together."""
    _store(tmp_path, store.url)
    changed = REGISTRY.replace('"safari", "edge"', '"edge", "safari"')
    with pytest.raises(StoreRefused, match=r"'browser' version 2.*changed without a new version"):
        _store(tmp_path, store.url, registry_text=changed)


def test_a_new_description_is_taken_over(store, tmp_path):
    """Words for people may change: the announced definition follows."""
    _store(tmp_path, store.url)
    _store(tmp_path, store.url, registry_text=REGISTRY.replace("Browser that opens links", "Which browser"))
    with store.client(decode=True) as client:
        assert "Which browser" in client.get(metric_key("browser", 2))


def test_a_store_that_may_lose_batches_is_refused(tmp_path):
    """Fsync every second is not what a 202 promises; with DITHER_ACK=memory it is enough."""
    with running_store(appendfsync="everysec") as loose:
        with pytest.raises(StoreRefused, match="appendfsync everysec"):
            _store(tmp_path, loose.url)
        assert loose.dump() == {}
        assert _send(_store(tmp_path, loose.url, ack="memory")) is Outcome.NEW


@pytest.mark.parametrize(("option", "value"), [("maxmemory", "0"), ("maxmemory-policy", "allkeys-lru")])
def test_a_store_that_may_evict_is_refused(tmp_path, option, value):
    """A store that drops keys when it is full, or has no limit, is refused."""
    with (
        running_store(**{option.replace("-", "_"): value}) as loose,
        pytest.raises(StoreRefused, match=option),
    ):
        _store(tmp_path, loose.url)


@pytest.mark.parametrize("how", ["renamed", "forbidden"])
def test_a_hidden_configuration_needs_the_operators_word(tmp_path, how):
    """Where CONFIG is renamed away or forbidden, DITHER_STORE_DURABLE=1 decides."""
    options = {"renamed": {"rename_command": "CONFIG HIDDEN"}, "forbidden": {}}[how]
    with running_store(**options) as hidden:
        url = hidden.url
        if how == "forbidden":
            with hidden.client() as client:
                client.acl_setuser(
                    "app", enabled=True, passwords=["+pw"], keys="*", commands=["+@all", "-config"]
                )
            url = f"{hidden.url}?username=app&password=pw"
        with pytest.raises(StoreRefused, match="DITHER_STORE_DURABLE=1"):
            _store(tmp_path, url)
        assert _store(tmp_path, url, store_durable=True).failing_checks() == []


def test_a_wrong_password_is_refused_and_not_retried_forever(tmp_path):
    """A password that the store does not take is a configuration error that does not show it."""
    with running_store() as closed:
        with closed.client() as client:
            client.config_set("requirepass", "right")
        with pytest.raises(StoreRefused, match="does not accept the password") as caught:
            _store(tmp_path, f"{closed.url}?password=wrong")
    assert "wrong" not in str(caught.value)


def test_an_older_version_in_the_store_is_accepted(store, tmp_path, caplog):
    """After a new version is deployed, devices with the old registry are still heard; damage is logged."""
    _store(tmp_path, store.url)
    newer = REGISTRY.replace("[metrics.dark_mode]\nversion = 1", "[metrics.dark_mode]\nversion = 2")
    admission = admit(
        _store(tmp_path, store.url, registry_text=newer).catalogue(),
        Envelope(bytes(16), TODAY, [report()]),
        NOW,
    )
    assert admission.accepted == 1
    with store.client() as client:
        client.set(metric_key("dark_mode", 1), "{}")
    with caplog.at_level(logging.WARNING):
        catalogue = _store(tmp_path, store.url, registry_text=newer).catalogue()
    assert "dark_mode version 1 is not accepted any more" in caplog.text
    refused = admit(catalogue, Envelope(bytes(16), TODAY, [report()]), NOW).refusals
    assert [refusal.rejection for refusal in refused] == [Rejection.UNKNOWN_VERSION]


def test_a_server_that_was_there_first_prepares_the_store_when_it_comes(tmp_path):
    """Without a store the app starts, is not ready, and works as soon as the store does."""
    with running_store() as late:
        late.stop()
        store = _store(tmp_path, late.url)
        assert store.failing_checks() == ["store-writable"]
        with pytest.raises(StoreUnavailable, match="connection"):
            store.catalogue()
        late.start()
        assert store.failing_checks() == []
        assert _send(store) is Outcome.NEW


def test_a_store_that_came_back_as_another_one_is_checked_again(tmp_path):
    """After a lost connection the store's numbers are compared anew."""
    with running_store() as first:
        store = _store(tmp_path, first.url)
        document = batch()
        assert _send(store, document) is Outcome.NEW
        admission = admit(store.catalogue(), parse_envelope(document), NOW)
        first.kill()
        with pytest.raises(StoreUnavailable, match="connection"):
            store.admit(admission)
        first.start()
        with first.client() as client:
            client.hset(META_KEY, "partitions", 3)
        with pytest.raises(StoreRefused, match="partitions 3"):
            store.catalogue()
        assert store.failing_checks() == ["store-fit"]


def _wait_until_it_answers(store):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(StoreUnavailable):
            store.catalogue()
            return


def test_a_store_in_the_place_of_a_silent_one_is_checked(tmp_path):
    """An address that led to a hung store, and now to another one, is not trusted for what the first one was."""
    address = tmp_path / "current"
    with running_store() as hung, running_store() as other:
        address.symlink_to(hung.folder / "s.sock")
        store = _store(tmp_path, f"unix://{address}")
        admission = admit(store.catalogue(), parse_envelope(batch()), NOW)
        os.kill(hung.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable, match="timeout"):
                store.admit(admission)
        finally:
            os.kill(hung.pid, signal.SIGCONT)
        with other.client() as client:
            client.hset(META_KEY, mapping={"partitions": 3, "layout": LAYOUT})
        address.unlink()
        address.symlink_to(other.folder / "s.sock")
        with pytest.raises(StoreRefused, match="partitions 3"):
            _wait_until_it_answers(store)


@contextmanager
def _silent_store(folder):
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(8)
        yield Store(settings(folder, f"unix://{path}"), registry())


def test_a_silent_store_is_given_up(tmp_path, monkeypatch):
    """A store that accepts connections and says nothing is unavailable by a time limit."""
    monkeypatch.setattr(store_module, "_READ_TIMEOUT_S", 0.05)
    with _silent_store(tmp_path) as store:
        with pytest.raises(StoreUnavailable, match="timeout"):
            store.catalogue()
        store.close()


def test_only_one_thread_prepares(tmp_path, monkeypatch):
    """While one thread waits for a dead store, the others are told at once instead of queueing behind it."""
    monkeypatch.setattr(store_module, "_PREPARE_WAIT_S", 0.01)
    store = Store(settings(tmp_path, "unix:///nowhere"), registry())
    with store._preparing, pytest.raises(StoreUnavailable, match="preparing"):
        store.catalogue()


def test_nobody_waits_for_the_one_that_finds_out(tmp_path, monkeypatch):
    """While one thread tries a store that was silent, the others are told so at once, not after the one's time."""
    monkeypatch.setattr(store_module, "_READ_TIMEOUT_S", 0.05)
    with _silent_store(tmp_path) as store:
        with pytest.raises(StoreUnavailable, match="timeout"):
            store.catalogue()
        monkeypatch.setattr(store_module, "_PREPARE_WAIT_S", 20.0)
        with store._preparing, pytest.raises(StoreUnavailable, match="timeout"):
            store.catalogue()
        store.close()


@pytest.mark.parametrize(
    ("spoil", "failing"),
    [
        (lambda client: client.config_set("maxmemory-policy", "allkeys-lru"), ["store-never-evicts"]),
        (lambda client: client.config_set("maxmemory", 1), ["store-writable"]),
        (lambda client: client.replicaof("127.0.0.1", 1), ["store-writable"]),
    ],
)
def test_readiness_names_what_fails(tmp_path, spoil, failing):
    """A store that would refuse or evict is not ready, and the check says why."""
    with running_store() as own:
        store = _store(tmp_path, own.url)
        with own.client() as client:
            spoil(client)
        assert store.failing_checks() == failing


def test_a_replica_takes_nothing(tmp_path):
    """A store that became a replica answers unavailable, and no key changes."""
    with running_store() as own:
        store = _store(tmp_path, own.url)
        before = own.dump()
        with own.client() as client:
            client.replicaof("127.0.0.1", 1)
        with pytest.raises(StoreUnavailable, match="readonly"):
            _send(store)
        assert own.dump() == before


def test_a_backlog_over_the_mark_is_not_ready(store, tmp_path):
    """A full partition shows in the readiness."""
    found = _store(tmp_path, store.url, high_water_bytes=1, partitions=1)
    assert _send(found) is Outcome.NEW
    assert found.failing_checks() == ["backlog"]
    assert _send(found) is Outcome.FULL


def test_a_fault_of_ours_is_not_taken_for_a_busy_store(store, tmp_path):
    """A key of the wrong type is an error to be seen, not to be retried for ever."""
    found = _store(tmp_path, store.url, partitions=1)
    with store.client() as client:
        client.set("dither:{" + store_module.partition_tags(1)[0] + "}:stream", "x")
    with pytest.raises(Exception, match="WRONGTYPE"):
        _send(found)
