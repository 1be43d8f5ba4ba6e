from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dither_protocol.registry import Registry
from support.books import service_over, stock
from support.registries import small_registry
from support.requirements import need
from support.store import ENGINES, Engine, engine_binary, running_store
from support.store import Store as Valkey
from support.worker_store import announce


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every engine in turn. A missing one skips, unless ``DITHER_REQUIRE`` names it."""
    name: str = request.param
    if engine_binary(name) is None:
        need(name, f"no server of engine {name} on this machine")
    before, Engine.name = Engine.name, name
    yield name
    Engine.name = before


@pytest.fixture(scope="module")
def valkey(engine: str) -> Iterator[Valkey]:
    """One server for the module; each test empties it, it is nobody else's."""
    with running_store() as store:
        yield store


@pytest.fixture
def registry(valkey: Valkey) -> Registry:
    """An empty store in which a server has announced the small registry."""
    registry = small_registry()
    announce(valkey, registry)
    return registry


@pytest.fixture
def client(valkey: Valkey, tmp_path: Path) -> FlaskClient:
    """The server over an empty store."""
    return service_over(valkey, tmp_path)


@pytest.fixture
def stocked(client: FlaskClient, valkey: Valkey) -> Iterator[Any]:
    """A client of the store, which has reports that are counted and reports in flight."""
    stock(client, valkey)
    with valkey.client() as redis:
        yield redis
