"""What a machine may lack: tests of it skip there, unless ``DITHER_REQUIRE`` (names with commas) asks for it."""

import os
from typing import NoReturn

import pytest


def need(name: str, reason: str) -> NoReturn:
    """Skip for a reason; fail for it where ``DITHER_REQUIRE`` names what is missing."""
    if name in os.environ.get("DITHER_REQUIRE", "").split(","):
        pytest.fail(reason)
    pytest.skip(reason)
