"""``dither demo`` as a person runs it, small."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dither_cli.exit_codes import SIGNAL_EXIT
from support.serve_process import alive, wait_until


def test_the_demo_counts_everything_and_covers_the_truth(tmp_path: Path, folder: Path) -> None:
    """Exit 0, a line of verdict, a result file whose figures agree, and no process left."""
    file = tmp_path / "result.json"
    command = [
        str(Path(sys.executable).with_name("dither")),
        "demo",
        "--devices",
        "3000",
        "--json",
        str(file),
    ]
    environ = os.environ | {"TMPDIR": str(folder)}
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "PASS" in ran.stdout
    assert "Utility, predicted and real" in ran.stdout
    result = json.loads(file.read_text())
    assert result["passed"] is True
    assert result["problems"] == []
    assert [m["mechanism"] for m in result["metrics"]] == ["rr", "grr", "oue", "sue", "grr"]
    for metric in result["metrics"]:
        assert metric["sent"] == metric["accepted"] == metric["counted"] == 3_200
        assert metric["utility"]["real"]["values"] == len(metric["values"])
        assert metric["utility"]["predicted"]["noise_ratio"] > 1
        assert {"value", "truth", "estimate", "lower", "upper", "covers"} == metric["values"][0].keys()
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert [line for line in lines if f"{folder}/" in line] == []
    assert list(folder.glob("dither-demo-*")) == []


def _demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A demo whose temporary files are below ``folder``."""
    with (folder / "out").open("w") as out:
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("dither")), "demo", *options],
            env=os.environ | {"TMPDIR": str(folder)},
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, since the store's socket lies below it."""
    with tempfile.TemporaryDirectory(prefix="d-") as short:
        yield Path(short)


@pytest.mark.parametrize(
    ("number", "moment", "options"),
    [
        (signal.SIGTERM, "starting store", []),
        (signal.SIGTERM, "logs/estimator.log", ["--devices", "200000"]),
        (signal.SIGHUP, "logs/estimator.log", ["--devices", "200000"]),
        (signal.SIGTERM, "Ctrl-C stops it", ["--devices", "500", "--keep"]),
        (signal.SIGHUP, "Ctrl-C stops it", ["--devices", "500", "--keep"]),
    ],
    ids=str,
)
def test_a_signal_leaves_neither_the_folder_with_the_keys_nor_a_process(
    folder: Path, number: signal.Signals, moment: str, options: list[str]
) -> None:
    """At the start, in the middle of the run, and afterwards: an orderly stop, and an exit code that says so."""
    running = _demo(folder, *options)
    wait_until(
        lambda: moment in (folder / "out").read_text() or any(folder.glob(f"dither-demo-*/{moment}")), moment
    )
    family = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(number)
    assert running.wait(timeout=120) == SIGNAL_EXIT + number
    assert f"dither demo: stopped by {number.name}" in (folder / "out").read_text()
    assert list(folder.glob("dither-demo-*")) == []
    assert not any(map(alive, family))


def test_ctrl_c_after_a_kept_demo_is_its_ordinary_end(folder: Path) -> None:
    """It said that it would stay until then: the exit code is the verdict's."""
    running = _demo(folder, "--devices", "500", "--keep")
    wait_until(lambda: "Ctrl-C stops it" in (folder / "out").read_text(), "the end of the run")
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=120) == 0
    assert list(folder.glob("dither-demo-*")) == []
