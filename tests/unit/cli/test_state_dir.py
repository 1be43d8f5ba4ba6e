import os
import subprocess
import sys
from pathlib import Path

import pytest

from dither_cli.errors import StateDirError
from dither_cli.exit_codes import ExitCode
from dither_cli.state_dir import StateDir, default_state_dir

HOME = Path("/home/somebody")


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", HOME / ".local/state/dither-serve"),
        ({"XDG_STATE_HOME": "/var/state"}, "linux", Path("/var/state/dither-serve")),
        ({"XDG_STATE_HOME": "not/absolute"}, "linux", HOME / ".local/state/dither-serve"),
        ({}, "darwin", HOME / "Library/Application Support/dither-serve"),
        ({"DITHER_HOME": "/srv/dither", "XDG_STATE_HOME": "/var/state"}, "linux", Path("/srv/dither")),
        ({"DITHER_HOME": ""}, "linux", HOME / ".local/state/dither-serve"),
    ],
)
def test_the_default_directory(environ: dict[str, str], platform: str, expected: Path) -> None:
    """DITHER_HOME first, then the platform's own place for state."""
    assert default_state_dir(environ, HOME, platform) == expected


def test_opening_creates_private_folders(tmp_path: Path) -> None:
    """Nobody else may read keys, logs or reports."""
    with StateDir(tmp_path / "deep" / "state").open() as state:
        for folder in (state.path, state.logs, state.store):
            assert folder.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_is_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    """An empty directory that was made beforehand is made private."""
    tmp_path.chmod(0o755)
    with StateDir(tmp_path).open():
        assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_second_user_of_the_directory_is_refused_by_the_pid_of_the_first(tmp_path: Path) -> None:
    """Two stores on one data directory would destroy it."""
    with (
        StateDir(tmp_path).open(),
        pytest.raises(StateDirError, match=rf"another dither serve \(pid {os.getpid()}\) uses") as caught,
    ):
        StateDir(tmp_path).open()
    assert caught.value.exit_code == ExitCode.STATE_DIR
    StateDir(tmp_path).open().close()


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    """A serve that was killed does not lock anybody out, although its lock file stays."""
    opens = f"StateDir(pathlib.Path({str(tmp_path)!r})).open()"
    code = f"import os, pathlib; from dither_cli.state_dir import StateDir; {opens}; os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 9
    assert (tmp_path / "lock").exists()
    StateDir(tmp_path).open().close()


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    """A slip such as `--state-dir ~` must not change the modes of a home directory."""
    (tmp_path / "thesis.txt").write_text("years of work")
    before = tmp_path.stat().st_mode
    with pytest.raises(StateDirError, match="is not empty and is not a state directory"):
        StateDir(tmp_path).open()
    assert tmp_path.stat().st_mode == before


def test_a_path_that_cannot_be_a_directory_is_refused_by_name(tmp_path: Path) -> None:
    """The message says which path, and what the system said."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StateDirError, match=r"cannot use the state directory .*/file/state: Not a directory"):
        StateDir(tmp_path / "file" / "state").open()
