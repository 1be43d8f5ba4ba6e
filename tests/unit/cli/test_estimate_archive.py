"""``dither estimate`` on the archive of a worker: the same documents as from the reports themselves."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dither_cli.estimate_command import estimate
from dither_cli.exit_codes import ExitCode
from dither_client import randomize
from dither_estimator.archive_file import Group, write
from dither_protocol.registry import Registry, parse_registry
from dither_protocol.storage import Cell
from dither_protocol.wire import Report, encode_report

METRIC = """
[metrics.{name}]
version = 1
type = "categorical"
description = "{name}"
categories = [{labels}]
epsilon = 4.0
mechanism = "{name}"
dimensions = {{ os = ["linux", "macos"] }}
min_reports = 1
"""
SHAPES = ("grr", "oue", "subset", "olh", "hadamard", "projective")
LABELS = ", ".join(f'"v{number}"' for number in range(12))
TOML = 'schema = 1\nproject = "p"\n' + "".join(METRIC.format(name=name, labels=LABELS) for name in SHAPES)


@pytest.fixture
def registry_file(tmp_path: Path) -> Path:
    """The registry as a file."""
    path = tmp_path / "registry.toml"
    path.write_text(TOML)
    return path


class Sample:
    """The same reports as lines of JSON and as groups of an archive."""

    def __init__(self, registry: Registry, seed: int) -> None:
        self.lines: list[str] = []
        self.groups: list[Group] = []
        for metric in registry:
            for number in range(30):
                system = ("linux", "macos")[number % 2]
                window = f"2026-11-{28 + number % 3 // 2}"
                data = randomize(metric.mechanism, (number + seed) % 5)
                fields: Any = (metric.name, 1, metric.params_hash, window, {"os": system}, data)
                self.lines.append(encode_report(Report(*fields)))
                cell = Cell(metric.name, 1, window, (("os", system),))
                self.groups.append((cell.name, metric, memoryview(metric.mechanism.pack(data))))

    def write(self, path: Path) -> None:
        """The archive's file."""
        with path.open("wb") as file:
            write(self.groups, file)


@pytest.fixture
def run(registry_file: Path) -> Callable[..., Result]:
    """`dither estimate` with the registry."""

    def invoke(*arguments: object, **options: Any) -> Result:
        given = [*map(str, arguments), "--registry", str(registry_file)]
        return CliRunner().invoke(estimate, given, **options)

    return invoke


@pytest.mark.parametrize("by_dimensions", [(), ("--by-dimensions",)], ids=["all", "by dimensions"])
def test_an_archive_gives_the_same_estimates(
    run: Callable[..., Result], tmp_path: Path, by_dimensions: tuple[str, ...]
) -> None:
    """For every mechanism: one file, a folder of them, a pattern, files by name, and lines beside them."""
    samples = [Sample(parse_registry(TOML), seed) for seed in range(2)]
    (tmp_path / "archive").mkdir()
    for number, sample in enumerate(samples):
        sample.write(tmp_path / "archive" / f"p0-0000000{number}.parquet")
    first, second = sorted((tmp_path / "archive").iterdir())
    both = tmp_path / "both.jsonl"
    both.write_text("\n".join(samples[0].lines + samples[1].lines))
    lines = tmp_path / "second.jsonl"
    lines.write_text("\n".join(samples[1].lines))
    expected = run(both, "--json", *by_dimensions)
    assert expected.exit_code == 0, expected.output
    assert len(expected.output.splitlines()) == len(SHAPES) * 2 * (1 + len(by_dimensions))
    for names in (
        (first, second),
        (tmp_path / "archive",),
        (tmp_path / "archive" / "*.parquet",),
        (tmp_path / "**" / "*.parquet",),
        (first, lines),
    ):
        result = run(*names, "--json", *by_dimensions)
        assert result.exit_code == 0, result.output
        assert result.output == expected.output, names
    piped = run(first, "-", "--json", *by_dimensions, input=lines.read_text())
    assert piped.output == expected.output


def test_reports_that_the_registry_does_not_know_are_refused(
    run: Callable[..., Result], tmp_path: Path, registry_file: Path
) -> None:
    """The file and the key are named, as for lines."""
    sample = Sample(parse_registry(TOML), 0)
    sample.write(tmp_path / "x.parquet")
    for old, new, words in (
        ("[metrics.olh]", "[metrics.other]", "x.parquet: metric: the registry has no metric"),
        ("epsilon = 4.0", "epsilon = 3.0", "x.parquet: params: the report was made for another meaning"),
        ("version = 1", "version = 2", "x.parquet: version: the registry has no metric"),
    ):
        registry_file.write_text(TOML.replace(old, new))
        result = run(tmp_path / "x.parquet", "--json")
        assert result.exit_code == ExitCode.FAILED
        assert words in result.output, result.output


def test_files_that_are_not_there_or_no_archive_are_errors(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    """A wrong name is a wrong use; a wrong content is named."""
    (tmp_path / "empty").mkdir()
    for name in ("nothing.jsonl", "nothing.parquet", "*.parquet", "empty"):
        result = run(tmp_path / name)
        assert result.exit_code == ExitCode.USAGE, result.output
        assert name in result.output.replace("\n", "")
    (tmp_path / "x.parquet").write_text("no parquet")
    result = run(tmp_path / "x.parquet")
    assert (result.exit_code, "x.parquet" in result.output) == (ExitCode.FAILED, True)


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, registry_file: Path) -> None:
    """The extra of the archive, not that of the command."""
    Sample(parse_registry(TOML), 0).write(tmp_path / "x.parquet")
    code = "import sys; sys.modules['pyarrow'] = None\nfrom dither_cli.entry import main; main()"
    command = [sys.executable, "-c", code, "estimate", str(tmp_path / "x.parquet")]
    command += ["--registry", str(registry_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.USAGE
    assert "pip install 'dither[archive]'" in done.stderr


def test_documents_of_an_archive_are_complete(run: Callable[..., Result], tmp_path: Path) -> None:
    """Their n and their mechanisms, as for lines."""
    Sample(parse_registry(TOML), 0).write(tmp_path / "x.parquet")
    documents = [json.loads(line) for line in run(tmp_path / "x.parquet", "--json").output.splitlines()]
    assert sum(document["n"] for document in documents) == 30 * len(SHAPES)
    assert {document["mechanism"] for document in documents} == set(SHAPES)
