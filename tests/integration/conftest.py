import os
from collections.abc import Iterator

import pytest

from support.store import ENGINES, Engine, engine_binary


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every engine in turn. A missing one skips, unless ``DITHER_REQUIRE`` names it."""
    name: str = request.param
    if engine_binary(name) is None:
        reason = f"no server of engine {name} on this machine"
        if name in os.environ.get("DITHER_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    before, Engine.name = Engine.name, name
    yield name
    Engine.name = before
