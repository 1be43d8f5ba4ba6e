"""`dither serve --archive` as a person runs it: every counted report ends in a folder that `dither estimate` reads."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dither_cli.exit_codes import ExitCode
from support.serve_process import REGISTRY, running_serve, wait_until


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, since the store's socket lies below it."""
    with tempfile.TemporaryDirectory(prefix="d-") as short:
        yield Path(short)


def dither(*arguments: str) -> str:
    """Output of a command that must succeed."""
    code = "from dither_cli.entry import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == ExitCode.OK, done.stderr
    return done.stdout


def archived(folder: Path) -> int:
    """Reports in the archive, by `dither estimate`."""
    registry = folder / "registry.toml"
    registry.write_text(REGISTRY)
    lines = dither("estimate", str(folder / "archive"), "--registry", str(registry), "--json").splitlines()
    return sum(json.loads(line)["n"] for line in lines)


def test_what_was_counted_is_in_the_archive(folder: Path) -> None:
    """Also after a kill of the estimator, over a restart, and while it is off: then the archive simply has a gap."""
    with running_serve(folder / "state", "--archive", str(folder / "archive")) as serve:
        serve.post(reports=5)
        serve.kill_child("estimator")
        serve.post(reports=2)
        serve.wait_counted(7)
        state = str(folder / "state")
        stats = json.loads(dither("store", "stats", "--state-dir", state, "--json"))
        assert (
            sum(each["entries"] for each in stats["partitions"]) == 2
        )  # counted, and waiting for the archive
        assert all(each["archived"] for each in stats["partitions"])
    assert archived(folder) == 7
    with running_serve(folder / "state", "--archive", str(folder / "archive")) as serve:
        serve.post(reports=3)
        serve.wait_counted(10)
    assert archived(folder) == 10
    with running_serve(folder / "state") as serve:
        serve.post(reports=4)
        serve.wait_counted(14)
        wait_until(lambda: _empty(state), "the streams")
    assert archived(folder) == 10


def _empty(state: str) -> bool:
    stats = json.loads(dither("store", "stats", "--state-dir", state, "--json"))
    return not any(
        each["entries"] or each["backlog_bytes"] or each["archived"] for each in stats["partitions"]
    )
