"""What the system refuses is said in one sentence, with a non-zero exit and no traceback."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dither_cli.edge import sentence
from dither_cli.exit_codes import ExitCode
from dither_cli.parts import example_registry
from dither_client import randomize
from dither_protocol.registry import load_registry
from dither_protocol.wire import Report, encode_report

DITHER = str(Path(sys.executable).with_name("dither"))
UNREADABLE = "/proc/self/mem"  # it may be opened, and no byte of it can be read from the start
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full and /proc")


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Twenty reports of the example registry, as a file."""
    metric = load_registry(example_registry()).metric("dark_mode")
    dimensions = {name: values[0] for name, values in metric.dimensions.items()}
    report = Report(
        "dark_mode",
        metric.version,
        metric.params_hash,
        metric.window_at(datetime.now(UTC)).label,
        dimensions,
        randomize(metric.mechanism, 0),
    )
    path = tmp_path / "reports.jsonl"
    path.write_text(f"{encode_report(report)}\n" * 100)
    return path


def dither(*options: str, stdout: str = "/dev/null", **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command with its output into a file."""
    with open(stdout, "w", encoding="utf-8") as out:
        return subprocess.run(
            [DITHER, *options],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | environ,
        )


@needs_linux
@pytest.mark.parametrize("form", [["--csv"], ["--json"], []], ids=str)
def test_a_full_disk_is_said(reports: Path, form: list[str]) -> None:
    """Whatever is printed, and even if all of it still fits the buffer."""
    done = dither("estimate", str(reports), "--registry", str(example_registry()), *form, stdout="/dev/full")
    assert (done.returncode, done.stderr) == (ExitCode.FAILED, "Error: No space left on device\n")


@needs_linux
@pytest.mark.parametrize("options", [["--help"], ["--version"], ["plan", "--help"]], ids=str)
def test_a_full_disk_is_said_by_click_too(options: list[str]) -> None:
    """Help and version are printed before any command is called."""
    done = dither(*options, stdout="/dev/full")
    assert (done.returncode, done.stderr) == (ExitCode.FAILED, "Error: No space left on device\n")


@needs_linux
@pytest.mark.parametrize(
    "options",
    [
        ["plan", "--registry", UNREADABLE],
        ["registry", "check", UNREADABLE],
        ["estimate", "@", "--registry", UNREADABLE],
        ["estimate", UNREADABLE, "--registry", str(example_registry())],
    ],
    ids=str,
)
def test_a_file_that_cannot_be_read_is_named(reports: Path, options: list[str]) -> None:
    """The system does not name it, since it was opened; the message does."""
    done = dither(*[str(reports) if option == "@" else option for option in options])
    assert (done.returncode, done.stderr) == (ExitCode.FAILED, f"Error: {UNREADABLE}: Input/output error\n")


@needs_linux
def test_a_chart_that_cannot_be_written_is_named(reports: Path) -> None:
    """The folder is there, and takes no file."""
    for options in (
        ["plan", "--epsilon", "1", "--values", "4"],
        ["estimate", str(reports), "--registry", str(example_registry())],
    ):
        done = dither(*options, "--plot", "/proc/chart.svg")
        assert done.returncode == ExitCode.FAILED
        assert done.stderr == "Error: /proc/chart.svg: No such file or directory\n"


def test_a_reader_that_is_gone_is_no_news(reports: Path) -> None:
    """As `| head` does: no word, and an exit code that is not zero."""
    command = [DITHER, "estimate", str(reports), "--registry", str(example_registry()), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == ExitCode.FAILED


def test_a_terminal_without_a_character_is_said() -> None:
    """The way out is in the message."""
    done = dither("plan", "--epsilon", "1", "--values", "4", PYTHONIOENCODING="ascii")
    assert done.returncode == ExitCode.FAILED
    assert done.stderr == "Error: the output is ascii, which lacks a character; set PYTHONIOENCODING=utf-8\n"


def test_no_sentence_repeats_what_was_read() -> None:
    """The bytes of a file may be private; what is wrong with them is not."""
    error = UnicodeDecodeError("utf-8", b"secret\xff", 6, 7, "invalid start byte")
    assert sentence(error) == "not utf-8: invalid start byte at byte 6"
    assert sentence(OSError("odd")) == "odd"
    assert sentence(OSError(5, "Input/output error", "x")) == "x: Input/output error"
