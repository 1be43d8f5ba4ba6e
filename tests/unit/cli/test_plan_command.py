"""``dither plan``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dither_cli.parts import example_registry
from dither_cli.plan_command import plan_command
from dither_estimator.plan import plan
from dither_protocol import mechanism
from dither_protocol.mechanisms import memoized


def _run(*options: str) -> Result:
    return CliRunner().invoke(plan_command, list(options))


def test_json_is_what_the_library_plans() -> None:
    """The command adds nothing to the figures."""
    result = _run("--epsilon", "1", "--values", "263", "-n", "200000", "--margin", "0.01", "--json")
    assert result.exit_code == 0, result.output
    (answer,) = json.loads(result.output)
    expected = plan(mechanism("auto", 1.0, 263), 200_000)
    assert (answer["mechanism"], answer["report_bits"]) == ("projective", 9)
    (entry,) = answer["plans"]
    assert entry["precision"] == [vars(row) for row in expected.precision]
    assert entry["detectable_share"] == expected.detectable_share
    assert [row["share"] for row in answer["reports_for_margin"]] == [0.0, 0.01, 0.1]


def test_the_table_has_every_figure_with_its_terms() -> None:
    """Mechanism, bits, standard error, interval, central privacy, and what can be told from zero."""
    result = CliRunner(env={"COLUMNS": "160"}).invoke(
        plan_command, ["--epsilon", "1", "--values", "16", "--margin", "0.02"]
    )
    for word in (
        "subset",
        "16 bits",
        "std error",
        "central DP",
        "told from zero",
        "1,000,000",
        "± 2.00 %",
        "population",
    ):
        assert word in result.output, word


@pytest.mark.parametrize(
    ("level", "shown"), [("0.95", "95%"), ("0.999", "99.9%"), ("0.9999999", "99.99999%")]
)
def test_the_level_is_shown_with_all_its_digits(level: str, shown: str) -> None:
    """Rounded to whole per cents, 99.9% would be a certainty."""
    output = _run("--epsilon", "1", "--values", "4", "--level", level, "-n", "1000").output
    assert f"{shown} intervals" in output
    assert f"probability {shown}" in output
    assert "100%" not in output


def test_a_registry_is_planned_metric_by_metric(tmp_path: Path) -> None:
    """Every metric by its own mechanism; one chart for all."""
    chart = tmp_path / "plan.svg"
    result = _run("--registry", str(example_registry()), "--json", "--plot", str(chart))
    names = [(answer["metric"], answer["mechanism"]) for answer in json.loads(result.output)]
    assert ("dark_mode", "rr") in names
    assert ("preview_browser", "oue") in names
    assert chart.stat().st_size > 5_000


def test_a_memoised_metric_names_its_floor_and_guarantees(tmp_path: Path) -> None:
    """By numbers, and from a registry, where both guarantees are known."""
    result = _run("--epsilon", "1", "--epsilon-permanent", "2", "--values", "5", "-n", "400", "--json")
    (answer,) = json.loads(result.output)
    chain = memoized("auto", 1.0, 5, 2.0)
    assert answer["memoized"]["floors"][0]["std_error"] == pytest.approx((chain.n_floor(0.0) / 400) ** 0.5)
    path = tmp_path / "registry.toml"
    path.write_text(
        'schema = 1\nproject = "p"\n[metrics.mood]\nversion = 1\ntype = "boolean"\ndescription = "d"\n'
        'collection = "memoized"\nepsilon = 1.0\nepsilon_permanent = 2.0\nmax_distinct_values = 2\n'
    )
    shown = " ".join(_run("--registry", str(path), "-n", "400").output.split())
    for words in (
        "however often 400 devices report",
        "change at the same times",
        "epsilon 4",
        "Without that",
    ):
        assert words in shown


def test_the_chart_has_a_line_per_candidate(tmp_path: Path) -> None:
    """The one that auto picks is marked."""
    chart = tmp_path / "plan.svg"
    assert _run("--epsilon", "1", "--values", "128", "--plot", str(chart)).exit_code == 0
    assert chart.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--epsilon and --values"),
        (["--epsilon", "1"], "--epsilon and --values"),
        (["--epsilon", "1", "--registry", "@"], "its own epsilon"),
        (["--epsilon", "nan", "--values", "5"], "epsilon"),
        (["--epsilon", "1", "--values", "1"], "d must be"),
        (["--epsilon", "1", "--values", "5", "--mechanism", "nope"], "unknown mechanism"),
        (["--epsilon", "1", "--values", "5", "--margin", "0"], "margin"),
        (["--epsilon", "0.001", "--values", "60000", "--margin", "1e-7"], "more than"),
        (["--epsilon", "1", "--values", "5", "--level", "1"], "level"),
        (["--epsilon", "1", "--values", "5", "-n", "0"], "0"),
        (["--epsilon", "1", "--values", "5", "--plot", "x.gif"], ".png or .svg"),
        (["--epsilon", "1", "--values", "5", "--epsilon-permanent", "1"], "below epsilon_permanent"),
        (["--epsilon-permanent", "1", "--registry", "@"], "its own epsilon"),
    ],
    ids=str,
)
def test_a_bad_question_is_refused_clearly(options: list[str], words: str) -> None:
    """A non-zero exit and the name of what is wrong."""
    result = _run(*[str(example_registry()) if option == "@" else option for option in options])
    assert result.exit_code != 0
    assert words in result.output
