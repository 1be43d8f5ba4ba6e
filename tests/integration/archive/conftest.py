"""What the tests of the archive begin with: a store with a metric of each shape, and a folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dither_protocol.registry import Registry
from support.archive import announce_shapes, shapes
from support.store import Store as Valkey
from support.store import running_store


@pytest.fixture(scope="module")
def server(engine: str) -> Iterator[Valkey]:
    """One server for the module."""
    with running_store() as store:
        yield store


@pytest.fixture
def valkey(server: Valkey) -> Valkey:
    """Emptied, with a metric of each shape announced."""
    announce_shapes(server.client())
    return server


@pytest.fixture
def registry() -> Registry:
    """The metrics of `valkey`."""
    return shapes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the archive goes; not there yet."""
    return tmp_path / "archive"
