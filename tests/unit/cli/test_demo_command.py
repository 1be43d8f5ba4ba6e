"""What `dither demo` refuses before it starts anything, and its tables."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from dither_cli import demo as demo_module
from dither_cli.demo_verdict import MetricReport, ValueRow
from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from dither_cli.parts import example_registry
from dither_protocol.registry import load_registry


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seed", "-1"], "-1 is not in the range"),
        (["--devices", "0"], "0 is not in the range"),
        (["--json", "missing/result.json"], "the folder of missing/result.json does not exist"),
    ],
)
def test_a_wrong_option_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    """A run takes a while: what can be refused is refused before it."""

    def never(*_: object) -> None:
        pytest.fail("the service was started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo_module, "Service", never)
    result = CliRunner().invoke(cli, ["demo", *options])
    assert result.exit_code == ExitCode.USAGE, result.output
    assert words in result.output


def test_the_table_fits_eighty_columns() -> None:
    """Every figure is whole."""
    metric = load_registry(example_registry()).metric("dark_mode")
    row = ValueRow("a label of quite some length, for a value", 1.0, 1.02, 0.98, 1.06)
    console = Console(width=80)
    with console.capture() as captured:
        console.print(demo_module._metric_table(MetricReport(metric, 9, 9, 9, [row], [])))
    output = captured.get()
    assert max(map(len, output.splitlines())) <= 80
    for figure in ("100.00 %", "102.00 %", "98.00 … 106.00 %", "95 % interval", "covers", "yes", "sent 9"):
        assert figure in output, figure
