"""The browser of the tests that need one."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from support.browser import running_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of a file; each test opens windows of its own."""
    with running_chromium() as found:
        yield found
