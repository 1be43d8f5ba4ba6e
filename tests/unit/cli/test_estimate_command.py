"""``dither estimate``: reports from a file, without any server."""

import csv
import json
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dither_cli.estimate_command import estimate
from dither_client import randomize
from dither_protocol.registry import load_registry
from dither_protocol.wire import Report, encode_batch, encode_report, new_batch_id

REGISTRY_TOML = """
schema = 1
project = "p"
[metrics.color]
version = 1
type = "categorical"
description = "Favourite colour"
categories = ["red", "[bold]green", "blue"]
epsilon = 4.0
mechanism = "oue"
dimensions = { os = ["linux", "macos"] }
min_reports = 10
"""


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """The registry as a file."""
    path = tmp_path / "registry.toml"
    path.write_text(REGISTRY_TOML)
    return path


def _report(registry: Path, index: int, system: str = "linux", **changes: object) -> str:
    metric = load_registry(registry).metric("color")
    fields = {
        "metric": "color",
        "version": 1,
        "params": metric.params_hash,
        "window": "2026-11-29",
        "dimensions": {"os": system},
        "data": randomize(metric.mechanism, index),
    }
    return encode_report(Report(**(fields | changes)))  # type: ignore[arg-type]


def _run(tmp_path: Path, registry: Path, lines: list[str], *options: str) -> Result:
    file = tmp_path / "reports.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return CliRunner().invoke(estimate, [str(file), "--registry", str(registry), *options])


def test_reports_and_batches_are_counted_together(tmp_path: Path, registry: Path) -> None:
    """A line is a report, or a batch with its reports; empty lines are skipped."""
    reports = [_report(registry, i % 3) for i in range(30)]
    batch = encode_batch(new_batch_id(), date(2026, 12, 2), reports[10:]).decode()
    result = _run(tmp_path, registry, [*reports[:10], "", batch], "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert (document["n"], document["dimensions"], document["epsilon"]) == (30, None, 4.0)
    assert [row["value"] for row in document["values"]] == ["red", "[bold]green", "blue"]


def test_dimensions_may_be_kept_apart(tmp_path: Path, registry: Path) -> None:
    """One estimate per combination of dimensions; the smaller one is suppressed, and said to be."""
    lines = [_report(registry, 0)] * 20 + [_report(registry, 1, "macos")] * 9
    result = _run(tmp_path, registry, lines, "--by-dimensions", "--json")
    documents = [json.loads(line) for line in result.output.splitlines()]
    assert [(d["dimensions"], d["n"], d["status"]) for d in documents] == [
        ({"os": "linux"}, 20, "open"),
        ({"os": "macos"}, 9, "suppressed"),
    ]


def test_the_table_shows_everything_an_estimate_needs(
    tmp_path: Path, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n, mechanism, epsilon, target, level and window in the title; labels are text, never markup."""
    monkeypatch.setenv("COLUMNS", "160")
    result = _run(tmp_path, registry, [_report(registry, 1)] * 20)
    for word in ("n = 20", "oue", "epsilon 4", "population", "95%", "2026-11-29", "[bold]green", "norm_sub"):
        assert word in result.output, word
    small = _run(tmp_path, registry, [_report(registry, 1)] * 3)
    assert "suppressed: fewer than 10 reports" in small.output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metric": "nope"}, "no metric of this name and version"),
        ({"version": 2}, "no metric of this name and version"),
        ({"params": "00000000"}, "another meaning"),
        ({"window": "2026-13-01"}, "label"),
        ({"dimensions": {"os": "beos"}}, "os"),
        ({"data": "AA=="}, "base64url"),
        ({"data": 5}, "base64url"),
    ],
    ids=str,
)
def test_a_bad_report_is_named_by_line_and_nothing_is_counted(
    tmp_path: Path, registry: Path, changes: dict[str, object], words: str
) -> None:
    """Line 2 is the culprit."""
    result = _run(tmp_path, registry, [_report(registry, 0), _report(registry, 0, **changes)])
    assert result.exit_code == 1
    assert "line 2" in result.output
    assert words in result.output


@pytest.mark.parametrize("line", ["{", "[]", "NaN", '{"metric": "color"}', '{"reports": []}'])
def test_a_line_that_is_no_report_is_refused(tmp_path: Path, registry: Path, line: str) -> None:
    """A clear error with the number of the line."""
    result = _run(tmp_path, registry, [line])
    assert result.exit_code == 1
    assert "line 1" in result.output


def test_an_empty_file_and_a_bad_registry_are_errors(tmp_path: Path, registry: Path) -> None:
    """Nothing to estimate is no success."""
    assert "no reports" in _run(tmp_path, registry, []).output
    registry.write_text("schema = 2\nproject = 'p'\n")
    assert "schema" in _run(tmp_path, registry, []).output


def _other_version(registry: Path, changes: dict[str, str]) -> Path:
    text = REGISTRY_TOML
    for old, new in ({"version = 1": "version = 2"} | changes).items():
        assert old in text
        text = text.replace(old, new)
    path = registry.with_name("newer.toml")
    path.write_text(text)
    return path


def _two_versions(tmp_path: Path, registry: Path, newer: Path, *options: str) -> Result:
    metric = load_registry(newer).metric("color")
    lines = [_report(registry, i % 3) for i in range(300)]
    for i in range(100):
        data = randomize(metric.mechanism, i % 2)
        lines.append(_report(registry, 0, version=2, params=metric.params_hash, data=data))
    return _run(tmp_path, registry, lines, "--registry", str(newer), *options)


def test_versions_of_one_domain_are_combined_by_n_and_said_to_be(tmp_path: Path, registry: Path) -> None:
    """Another mechanism and epsilon: each version stands for itself, then both together, weighted by n."""
    newer = _other_version(registry, {"epsilon = 4.0": "epsilon = 2.0", '"oue"': '"grr"'})
    result = _two_versions(tmp_path, registry, newer, "--json")
    first, second, both = [json.loads(line) for line in result.output.splitlines()]
    assert (first["version"], second["version"], both["versions"]) == (1, 2, [1, 2])
    assert (both["status"], both["n"]) == ("combined", 400)
    assert [(part["n"], part["mechanism"]) for part in both["parts"]] == [(300, "oue"), (100, "grr")]
    for one, other, row in zip(first["values"], second["values"], both["values"], strict=True):
        assert row["estimate"] == pytest.approx(0.75 * one["estimate"] + 0.25 * other["estimate"])
        assert row["std_error"] ** 2 == pytest.approx(
            (0.75 * one["std_error"]) ** 2 + (0.25 * other["std_error"]) ** 2
        )
        assert row["interval_method"] == "mover"
    table = _two_versions(tmp_path, registry, newer).output
    assert "v1 + v2" in table


def test_versions_of_different_domains_stand_side_by_side(tmp_path: Path, registry: Path) -> None:
    """A category more: two estimates, and no third."""
    newer = _other_version(registry, {'"blue"]': '"blue", "violet"]'})
    result = _two_versions(tmp_path, registry, newer, "--json")
    documents = [json.loads(line) for line in result.output.splitlines()]
    assert [document["version"] for document in documents] == [1, 2]


def test_csv_has_one_row_per_value(tmp_path: Path, registry: Path) -> None:
    """Columns have names, and a suppressed estimate has a row that says so."""
    lines = [_report(registry, 0)] * 20 + [_report(registry, 1, "macos")] * 9
    result = _run(tmp_path, registry, lines, "--by-dimensions", "--csv")
    rows = list(csv.DictReader(result.output.splitlines()))
    assert [row["value"] for row in rows] == ["red", "[bold]green", "blue", ""]
    assert [row["status"] for row in rows] == ["open"] * 3 + ["suppressed"]
    assert {row["n"] for row in rows} == {"20", "9"}
    assert float(rows[0]["lower"]) <= float(rows[0]["estimate"]) <= float(rows[0]["upper"])


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_plot_is_a_file_of_its_kind(tmp_path: Path, registry: Path, suffix: str) -> None:
    """One chart per estimate, the files numbered."""
    lines = [_report(registry, 0)] * 20 + [_report(registry, 1, "macos")] * 15
    result = _run(tmp_path, registry, lines, "--by-dimensions", "--plot", str(tmp_path / f"chart.{suffix}"))
    assert result.exit_code == 0, result.output
    for number in (1, 2):
        head = (tmp_path / f"chart-{number}.{suffix}").read_bytes()[:200]
        assert head.startswith(b"\x89PNG") if suffix == "png" else b"<?xml" in head


@pytest.mark.parametrize(
    ("name", "words"), [("chart.gif", ".png or .svg"), ("missing/chart.png", "does not exist")]
)
def test_a_chart_that_cannot_be_written_is_refused_first(
    tmp_path: Path, registry: Path, name: str, words: str
) -> None:
    """Before anything is counted."""
    result = _run(tmp_path, registry, [_report(registry, 0)] * 20, "--plot", str(tmp_path / name))
    assert result.exit_code == 1
    assert words in result.output


def test_nothing_to_draw_is_an_error(tmp_path: Path, registry: Path) -> None:
    """Suppressed estimates make no chart."""
    result = _run(tmp_path, registry, [_report(registry, 0)] * 3, "--plot", str(tmp_path / "chart.png"))
    assert "nothing to draw" in result.output
