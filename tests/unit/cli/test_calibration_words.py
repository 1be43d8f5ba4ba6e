"""What the command line says of calibration metrics, and the demo of utility."""

import json
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from dither_cli.demo_population import demo_truths
from dither_cli.demo_utility import metric_utility, utility_table
from dither_cli.demo_verdict import MetricReport, ValueRow
from dither_cli.main import cli
from dither_cli.parts import example_registry
from dither_cli.statement import statement
from dither_protocol.registry import load_registry
from dither_protocol.utility import predicted_utility

REGISTRY = load_registry(example_registry())


def test_privacy_names_the_metrics_that_ask_nobody() -> None:
    """Beside their epsilon, which is charged all the same."""
    result = CliRunner().invoke(cli, ["privacy", str(example_registry())])
    assert result.exit_code == 0, result.output
    assert "calibration (noise_check): the device draws the answer by lot" in " ".join(result.output.split())


def test_a_registry_without_one_says_nothing_of_it(tmp_path: Path) -> None:
    """No empty line of words."""
    file = tmp_path / "r.toml"
    file.write_text(
        'schema = 1\nproject = "p"\n[metrics.m]\nversion = 1\ntype = "boolean"\ndescription = "d"\nepsilon = 1.0\n'
    )
    result = CliRunner().invoke(cli, ["privacy", str(file)])
    assert result.exit_code == 0, result.output
    assert "calibration" not in result.output


def test_the_statement_says_that_nothing_is_asked() -> None:
    """Of that metric alone, as a flag and in words."""
    said = {each["name"]: each for each in statement(REGISTRY, date(2026, 11, 29))["metrics"]}
    assert [name for name, each in said.items() if each["calibration"]] == ["noise_check"]
    words = {name for name, each in said.items() if "asks nothing about you" in each["how_often"]}
    assert words == {"noise_check"}


def _report(name: str, shift: float = 0.01) -> MetricReport:
    metric, truth = REGISTRY.metric(name), demo_truths(REGISTRY)[name].shares
    rows = [
        ValueRow(label, share, share + shift, share - 0.005, share + 0.02)
        for label, share in zip(metric.labels, truth, strict=True)
    ]
    return MetricReport(metric, 900, 900, 900, rows, [])


def test_the_demo_knows_predicted_and_real_errors() -> None:
    """Against the demo's own truth; the exact coverage is near the level."""
    found = metric_utility(_report("dark_mode"))
    assert found is not None
    assert found.predicted == predicted_utility(
        REGISTRY.metric("dark_mode").mechanism, [0.63, 0.37], 900, 0.95
    )
    assert found.real.mean_absolute_error == pytest.approx(0.01)
    assert (found.real.covered, found.real.values) == (2, 2)
    assert found.exact_coverage == pytest.approx(0.95, abs=0.01)
    document = json.loads(json.dumps(found.document()))
    assert document["predicted"].keys() == {
        "mean_absolute_error", "relative_error", "coverage", "noise_ratio", "exact_coverage",
    }  # fmt: skip
    assert document["real"].keys() == {
        "mean_absolute_error", "relative_error", "covered", "values", "noise_ratio",
    }  # fmt: skip


def test_several_windows_or_none_have_no_figures() -> None:
    """A run over midnight publishes two: the demo leaves the table out rather than mixing them."""
    report = _report("dark_mode")
    twice = MetricReport(report.metric, 9, 9, 9, [*report.rows, *report.rows], [])
    assert metric_utility(twice) is None
    assert metric_utility(MetricReport(report.metric, 0, 0, 0, [], [])) is None


def test_the_table_of_utility_fits_eighty_columns() -> None:
    """Predicted above real for each metric, every figure whole."""
    found = [metric_utility(_report(metric.name)) for metric in REGISTRY]
    console = Console(width=80)
    with console.capture() as captured:
        console.print(utility_table([each for each in found if each], console))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 2 + 2 * len(REGISTRY.metrics)
    assert lines[2].split()[:2] == ["dark_mode", "predicted"]
    assert lines[3].split()[:3] == ["real", "1.00", "%"]
    assert "2 of 2" in lines[3]
