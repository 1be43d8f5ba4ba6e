"""`dither plan` and `dither estimate` as a person runs them: before the reports, and on a file of them."""

import csv
import io
import json
import math
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dither_client import randomize
from dither_protocol import load_registry, mechanism
from dither_protocol.mechanisms import MECHANISMS
from dither_protocol.registry import Metric
from dither_protocol.wire import Report, encode_report

DITHER = Path(sys.executable).with_name("dither")
EACH = 500
D = 40
EPSILON = 2.0
HELD = 3
"""The value that every device holds, except that a boolean is true."""
SIGMAS = 7.0
NAMES = [*MECHANISMS, "auto"]


def _dither(folder: Path, *options: str) -> str:
    done = subprocess.run(
        [str(DITHER), *options],
        cwd=folder,
        env=os.environ | {"COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def _table(name: str) -> str:
    """A metric that asks for one mechanism by name."""
    labels = ", ".join(f'"value {number}"' for number in range(D))
    domain = 'type = "boolean"' if name == "rr" else f'type = "categorical"\ncategories = [{labels}]'
    return (
        f'[metrics.by_{name}]\nversion = 1\ndescription = "By {name}"\n{domain}\n'
        f'epsilon = {EPSILON}\nmechanism = "{name}"\n'
    )


def _held(metric: Metric) -> int:
    return 1 if metric.type == "boolean" else HELD


def _reports(metric: Metric) -> list[str]:
    """What the devices send, each by the SDK's own sampler."""
    return [
        encode_report(
            Report(
                metric=metric.name,
                version=metric.version,
                params=metric.params_hash,
                window="2026-11-29",
                dimensions={},
                data=randomize(metric.mechanism, _held(metric)),
            )
        )
        for _ in range(EACH)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a registry of every mechanism and auto, a file of all reports, and one of those by auto."""
    folder = tmp_path_factory.mktemp("reports")
    text = 'schema = 1\nproject = "p"\n' + "".join(map(_table, NAMES))
    (folder / "registry.toml").write_text(text)
    lines = {metric.name: _reports(metric) for metric in load_registry(folder / "registry.toml")}
    (folder / "all.jsonl").write_text("\n".join(line for some in lines.values() for line in some))
    (folder / "auto.jsonl").write_text("\n".join(lines["by_auto"]))
    return folder


def _metrics(folder: Path) -> dict[str, Metric]:
    return {metric.name: metric for metric in load_registry(folder / "registry.toml")}


def _check_row(metric: Metric, row: dict[str, Any], index: int) -> None:
    """The estimate is as far from the truth as n reports allow, and its interval lies around it."""
    truth = float(index == _held(metric))
    limit = SIGMAS * math.sqrt(metric.mechanism.n_variance(truth) / EACH)
    estimate, lower, upper = (float(row[name]) for name in ("estimate", "lower", "upper"))
    assert abs(estimate - truth) < limit, (metric.name, index)
    assert lower <= estimate <= upper
    assert lower < upper


def test_a_plan_as_json(tmp_path: Path) -> None:
    """The mechanism, its report, and errors that fall with the root of n, each above central privacy's."""
    (answer,) = json.loads(_dither(tmp_path, "plan", "--epsilon", "1", "--values", "263", "--json"))
    oracle = mechanism("auto", 1.0, 263)
    assert (answer["mechanism"], answer["report_bits"], answer["counters"]) == (
        oracle.name, oracle.report_bits, oracle.counters,
    )  # fmt: skip
    assert [plan["n"] for plan in answer["plans"]] == [1_000, 10_000, 100_000, 1_000_000]
    for column, share in enumerate((0.0, 0.01, 0.1)):
        rows = [plan["precision"][column] for plan in answer["plans"]]
        assert {row["share"] for row in rows} == {share}
        for row in rows:
            assert row["central_std_error"] < row["std_error"] < row["half_width"]
        ratios = [a["std_error"] / b["std_error"] for a, b in pairwise(rows)]
        assert ratios == pytest.approx([math.sqrt(10)] * 3)


def test_a_registry_is_planned_and_drawn(folder: Path) -> None:
    """Every metric by the mechanism that its registry names, auto by the one that it picks."""
    answers = json.loads(_dither(folder, "plan", "--registry", "registry.toml", "--json", "--plot", "p.svg"))
    assert [answer["metric"] for answer in answers] == [f"by_{name}" for name in NAMES]
    picked = mechanism("auto", EPSILON, D).name
    assert [answer["mechanism"] for answer in answers] == [*MECHANISMS, picked]
    assert ElementTree.parse(folder / "p.svg").getroot().tag.endswith("svg")  # noqa: S314  # our own file


def test_a_file_with_every_mechanism_as_json(folder: Path) -> None:
    """One document per metric: complete, and right within what its mechanism promises."""
    lines = _dither(folder, "estimate", "all.jsonl", "--registry", "registry.toml", "--json").splitlines()
    metrics = _metrics(folder)
    documents = {document["metric"]: document for document in map(json.loads, lines)}
    assert documents.keys() == metrics.keys()
    for name, document in documents.items():
        metric = metrics[name]
        oracle = metric.mechanism
        assert (document["n"], document["mechanism"], document["epsilon"], document["target"]) == (
            EACH, oracle.name, EPSILON, "population",
        )  # fmt: skip
        assert [row["value"] for row in document["values"]] == list(metric.labels)
        for index, row in enumerate(document["values"]):
            _check_row(metric, row | dict(zip(("lower", "upper"), row["interval"], strict=True)), index)
        assert document["values"][_held(metric)]["present"] is True
        assert sum(row["norm_sub"] for row in document["values"]) == pytest.approx(1)


def test_the_same_file_as_csv(folder: Path) -> None:
    """A row per value with all that belongs to it, and the figures of the JSON."""
    command = ("estimate", "all.jsonl", "--registry", "registry.toml")
    rows = list(csv.DictReader(io.StringIO(_dither(folder, *command, "--csv"))))
    documents = [json.loads(line) for line in _dither(folder, *command, "--json").splitlines()]
    assert [(row["metric"], row["value"], float(row["estimate"]), row["present"]) for row in rows] == [
        (document["metric"], value["value"], value["estimate"], str(value["present"]))
        for document in documents
        for value in document["values"]
    ]
    assert {(row["n"], row["epsilon"], row["level"]) for row in rows} == {(str(EACH), "2.0", "0.95")}
    metrics = _metrics(folder)
    for row in rows:
        metric = metrics[row["metric"]]
        assert row["mechanism"] == metric.mechanism.name
        _check_row(metric, row, metric.labels.index(row["value"]))


def test_an_estimate_as_table_and_chart(folder: Path) -> None:
    """One metric gives one file by the name that was asked for; the table stands in the terminal all the same."""
    table = _dither(folder, "estimate", "auto.jsonl", "--registry", "registry.toml", "--plot", "x.svg")
    assert f"n = {EACH}" in table
    assert "value 39" in table
    assert ElementTree.parse(folder / "x.svg").getroot().tag.endswith("svg")  # noqa: S314  # our own file
    assert not (folder / "x-1.svg").exists()


def test_a_chart_per_estimate(folder: Path) -> None:
    """Several estimates give numbered files."""
    _dither(folder, "estimate", "all.jsonl", "--registry", "registry.toml", "--plot", "many.svg")
    assert {path.name for path in folder.glob("many*.svg")} == {
        f"many-{number}.svg" for number in range(1, len(NAMES) + 1)
    }
