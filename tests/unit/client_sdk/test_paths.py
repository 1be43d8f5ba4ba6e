"""The default state directory of each platform."""

import sys
from pathlib import Path

import pytest

from dither_client import default_state_dir

HOME = Path("/home/me")


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, HOME / ".local/state/dither/app"),
        ("linux", {"XDG_STATE_HOME": "/x"}, Path("/x/dither/app")),
        ("linux", {"XDG_STATE_HOME": ""}, HOME / ".local/state/dither/app"),
        ("darwin", {"XDG_STATE_HOME": "/x"}, HOME / "Library/Application Support/dither/app"),
        ("win32", {}, HOME / "AppData/Local/dither/app"),
        ("win32", {"LOCALAPPDATA": "/local"}, Path("/local/dither/app")),
        ("linux", {"DITHER_STATE_DIR": "/d", "XDG_STATE_HOME": "/x"}, Path("/d/app")),
        ("darwin", {"DITHER_STATE_DIR": "/d"}, Path("/d/app")),
        ("win32", {"DITHER_STATE_DIR": "/d"}, Path("/d/app")),
    ],
)
def test_each_platform_has_its_place(
    monkeypatch: pytest.MonkeyPatch, platform: str, environ: dict[str, str], expected: Path
) -> None:
    """And DITHER_STATE_DIR names another, with a folder per project."""
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: HOME)
    assert default_state_dir("app", environ) == expected


def test_the_environment_of_the_process_is_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without an argument the process's own variables count, and nothing is created."""
    monkeypatch.setenv("DITHER_STATE_DIR", str(tmp_path / "d"))
    assert default_state_dir("app") == tmp_path / "d" / "app"
    assert list(tmp_path.iterdir()) == []
