"""The floor of free disk, on real file systems."""

import os

import pytest

from dither_server import disk_floor
from dither_server.disk_floor import DiskFloor


def _free_bytes(folder):
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def test_a_remote_disk_is_not_looked_at():
    """Without a folder there is always room."""
    assert DiskFloor(None, 2**60).has_room()


@pytest.mark.parametrize(("share", "room"), [(0.5, True), (2.0, False)])
def test_the_floor_decides(tmp_path, share, room):
    """Half of what is free is there, twice of it is not."""
    assert DiskFloor(tmp_path, int(_free_bytes(tmp_path) * share)).has_room() is room


def test_a_folder_that_is_gone_has_no_room(tmp_path):
    """What cannot be looked at is not trusted, whatever the floor."""
    assert not DiskFloor(tmp_path / "gone", 0).has_room()


def test_it_is_looked_at_once_a_second(tmp_path, monkeypatch):
    """Requests in between are told what was found last."""
    times = iter([100.0, 100.9, 101.0])
    monkeypatch.setattr(disk_floor.time, "monotonic", lambda: next(times))
    folder = tmp_path / "disk"
    folder.mkdir()
    floor = DiskFloor(folder, 1)
    assert floor.has_room()
    folder.rmdir()
    assert floor.has_room()
    assert not floor.has_room()
