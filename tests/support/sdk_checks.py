"""What the tests of forks and of re-entry share."""

from pathlib import Path

import pytest

from support.sdk_server import CountingServer

ON_DISK = pytest.mark.parametrize("on_disk", [True, False], ids=["disk", "memory"])


def state_folder(tmp_path: Path, on_disk: bool = True) -> Path | None:
    """The state directory of a test, or None for a state in memory."""
    return tmp_path / "state" if on_disk else None


def all_once(server: CountingServer, numbers: set[int]) -> None:
    """Exactly these questions were counted, each once, and no two reports are the same noise."""
    counted = server.snapshot()
    assert {number: times for number, times in counted.items() if times != 1} == {}
    assert set(counted) == numbers
    assert len(set(server.data)) == len(server.data)
    assert not server.changed
