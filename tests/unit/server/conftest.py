"""One Valkey for the unit tests of this room; each test begins with it empty."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from dither_server.app import create_app
from support.server import Clock, settings
from support.store import Store, running_store


@pytest.fixture(scope="session")
def shared_store() -> Iterator[Store]:
    """A store of this session's own."""
    with running_store() as store:
        yield store


@pytest.fixture
def store(shared_store: Store) -> Store:
    """The session's store, emptied: it is ours alone, on a socket that nobody else knows."""
    with shared_store.client() as client:
        client.flushall()
    return shared_store


@pytest.fixture
def clock() -> Clock:
    """A clock that stands at `NOW` until a test moves it."""
    return Clock()


@pytest.fixture
def client(store: Store, tmp_path: Path, clock: Clock) -> FlaskClient:
    """The app over the store, at the clock's time."""
    return create_app(settings(tmp_path, store.url), clock=clock).test_client()
