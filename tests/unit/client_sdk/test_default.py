"""The program's one client: nothing before init(), the same client everywhere afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import dither_client
from dither_client import RecordResult, RecordStatus, default
from dither_client.testing import MemoryTransport
from dither_protocol.errors import RegistryError
from support.clients import ENDPOINT, NOON
from support.registries import small_document


@pytest.fixture(autouse=True)
def _nothing_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("DITHER_STATE_DIR", str(tmp_path))
    yield
    dither_client.shutdown(0)


def _init(transport: MemoryTransport, **settings: object) -> dither_client.Client:
    return dither_client.init(
        ENDPOINT, small_document(), ingest_key="dik_x", transport=transport, clock=lambda: NOON, **settings
    )


def test_before_init_everything_is_a_harmless_answer() -> None:
    """A library may call record() whether its app has decided or not."""
    assert dither_client.record("dark_mode", True) == RecordResult(RecordStatus.DISABLED, "not_initialised")
    assert dither_client.flush() == (0, 0, 0, 0, 0, False)
    assert dither_client.shutdown() is True


def test_after_init_the_functions_are_those_of_the_client(tmp_path: Path) -> None:
    """record, flush and shutdown of one client, whose state lies in the platform's place for the project."""
    transport = MemoryTransport()
    client = _init(transport)
    assert dither_client.record("dark_mode", True).status is RecordStatus.QUEUED
    assert dither_client.record("color", "red", {"os": "linux"}).status is RecordStatus.QUEUED
    assert client.stats() == {"queued": 2}
    assert (tmp_path / "test-app" / "dither.sqlite3").is_file()
    assert dither_client.flush(20).sent == 2
    assert dither_client.shutdown() is True
    assert dither_client.record("dark_mode", True).reason == "not_initialised"
    assert client.record("dark_mode", True).reason == "shut_down"
    assert len(transport.reports) == 2


def test_a_second_init_shuts_the_first_client_down() -> None:
    """There is one at a time; the ledger of the project goes on."""
    first = _init(MemoryTransport())
    first.record("dark_mode", True)
    second = _init(MemoryTransport())
    assert first.record("first_color", "red").reason == "shut_down"
    assert dither_client.record("dark_mode", True).status is RecordStatus.ALREADY_REPORTED
    assert default._client is second


def test_state_dir_may_be_given_and_may_be_memory(tmp_path: Path) -> None:
    """An explicit argument goes before the environment, None included."""
    _init(MemoryTransport(), state_dir=tmp_path / "mine").record("dark_mode", True)
    assert (tmp_path / "mine" / "dither.sqlite3").is_file()
    assert repr(_init(MemoryTransport(), state_dir=None)) == "<Client project='test-app' state=memory>"
    assert not (tmp_path / "test-app").exists()


def test_a_bad_registry_raises_and_leaves_the_first_client() -> None:
    """A mistake shows at the start."""
    first = _init(MemoryTransport())
    with pytest.raises(RegistryError):
        dither_client.init(ENDPOINT, {"schema": 1}, ingest_key="dik_x")
    assert default._client is first
