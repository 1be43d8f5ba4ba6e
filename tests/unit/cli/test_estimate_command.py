"""``dither estimate``: reports from a file, without any server."""

import csv
import json
import re
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
        ({"metric": "nope"}, "metric: the registry has no metric of this name and version"),
        ({"version": 2}, "version: the registry has no metric of this name and version"),
        ({"params": "00000000"}, "params: the report was made for another meaning"),
        ({"window": "2026-13-01"}, "window: the label is not one of period 'day'"),
        ({"dimensions": {"os": "beos"}}, "dimensions: "),
        ({"dimensions": {}}, "dimensions: "),
        ({"data": "AA=="}, "data: must be"),
        ({"data": 5}, "data: must be"),
    ],
    ids=str,
)
def test_a_bad_report_is_named_by_line_and_nothing_is_counted(
    tmp_path: Path, registry: Path, changes: dict[str, object], words: str
) -> None:
    """Line 2 is the culprit, and the key of the report comes first."""
    result = _run(tmp_path, registry, [_report(registry, 0), _report(registry, 0, **changes)])
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: line 2: {words}"), result.output


@pytest.mark.parametrize("line", ["{", "[]", "NaN", '{"metric": "color"}', '{"reports": []}'])
def test_a_line_that_is_no_report_is_refused(tmp_path: Path, registry: Path, line: str) -> None:
    """A clear error with the number of the line."""
    result = _run(tmp_path, registry, [line])
    assert result.exit_code == 1
    assert "line 1" in result.output


def test_bytes_that_are_no_text_are_refused_by_line(tmp_path: Path, registry: Path) -> None:
    """A sentence with the number of the line, and no traceback."""
    file = tmp_path / "reports.jsonl"
    file.write_bytes(_report(registry, 0).encode() + b"\n\xff\xfe\n")
    result = CliRunner().invoke(estimate, [str(file), "--registry", str(registry)])
    assert (result.exit_code, result.output) == (1, "Error: line 2: is not UTF-8\n")


def test_a_batch_that_stands_twice_is_counted_once(tmp_path: Path, registry: Path) -> None:
    """Same id and same last day: skipped as the server does, and said; another day is another batch."""
    reports = [_report(registry, i % 3) for i in range(150)]
    batch_id = new_batch_id()
    first, other = (encode_batch(batch_id, date(2026, 12, day), reports).decode() for day in (2, 3))
    result = _run(tmp_path, registry, [first, first, other, first], "--json")
    assert json.loads(result.stdout)["n"] == 300
    assert result.stderr == "skipped 300 reports of 2 repeated batches\n"
    once = _run(tmp_path, registry, [first, first], "--json")
    assert (json.loads(once.stdout)["n"], once.stderr) == (150, "skipped 150 reports of 1 repeated batch\n")


def test_equal_reports_outside_of_batches_are_other_devices(tmp_path: Path, registry: Path) -> None:
    """Only a batch has an id; a report alone that stands twice is two reports."""
    result = _run(tmp_path, registry, [_report(registry, 0)] * 20, "--json")
    assert (json.loads(result.stdout)["n"], result.stderr) == (20, "")


@pytest.mark.parametrize(
    ("columns", "left_out"),
    [(60, ["norm_sub", "std error", "method", "█"]), (80, ["method", "█"]), (120, [])],
)
def test_the_table_fits_its_terminal(
    tmp_path: Path, registry: Path, monkeypatch: pytest.MonkeyPatch, columns: int, left_out: list[str]
) -> None:
    """Whole columns are left out, and nothing is cut: no line is too long, no number and no word is shortened."""
    label = "a value with a label that is rather long, too long for any table"
    registry.write_text(REGISTRY_TOML.replace('"blue"', f'"{label}"'))
    monkeypatch.setenv("COLUMNS", str(columns))
    output = _run(tmp_path, registry, [_report(registry, i % 2) for i in range(200)]).stdout
    assert max(map(len, output.splitlines())) <= columns
    table = output[output.index("value") :]
    for word in ("value", "share", "std error", "interval", "method", "norm_sub", "present", "█"):
        assert (word in table) == (word not in left_out), word
    assert len(re.findall(r"-?\d+\.\d\d … -?\d+\.\d\d %", table)) == 3
    assert "[bold]green" in table
    folded = [line[: table.splitlines()[0].index("share") - 4].strip() for line in table.splitlines()[4:]]
    assert " ".join(filter(None, folded)) == label


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
    assert (both["status"], both["n"]) == ("open", 400)
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
