"""Groups of metrics (`one_of`) in ``plan``, ``privacy``, ``registry check``, ``registry diff`` and ``statement``."""

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dither_cli.main import cli
from dither_estimator import EstimationError
from dither_estimator.plan import plan, plan_document, reports_for
from dither_protocol import mechanism
from support.groups import group_toml


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """The file of a registry with a group of three."""
    path = tmp_path / "registry.toml"
    path.write_text(group_toml(), "utf-8")
    return path


def _run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli, [str(each) for each in arguments])


def _words(result: Result) -> str:
    return " ".join(result.output.split())


def test_a_plan_for_one_of_several_has_their_part_of_the_reports() -> None:
    """A quarter of the devices report: the figures are those of a quarter of n, intervals twice as wide."""
    oracle = mechanism("grr", 1.0, 5)
    document = plan_document(oracle, [40_000], 0.05, 0.95, group=[1.0] * 4)
    (entry,) = document["plans"]
    assert (entry["devices"], entry["n"]) == (40_000, 10_000)
    assert entry["precision"] == [vars(row) for row in plan(oracle, 10_000).precision]
    alone = plan(oracle, 40_000).precision
    for row, whole in zip(entry["precision"], alone, strict=True):
        assert row["std_error"] == pytest.approx(whole.std_error * document["one_of"]["interval_factor"])
        assert row["half_width"] == pytest.approx(whole.half_width * 2, rel=0.01)
    assert document["one_of"] == {
        "members": 4, "interval_factor": math.sqrt(4), "epsilon_charged": 1.0, "epsilon_otherwise": 4.0,
    }  # fmt: skip
    rare = document["reports_for_margin"][0]
    assert (rare["reports"], rare["devices"]) == (
        reports_for(oracle, 0.05, 0.0),
        4 * reports_for(oracle, 0.05, 0.0),
    )
    assert "one_of" not in plan_document(oracle, [40_000], None, 0.95)
    with pytest.raises(EstimationError, match="3 devices are too few for a group of 4"):
        plan_document(oracle, [3], None, 0.95, group=[1.0] * 4)


def test_plan_says_what_one_of_several_saves_and_costs() -> None:
    """Charged once instead of four times; a quarter of the reports, intervals twice as wide."""
    options = ("plan", "--epsilon", 1, "--values", 5, "--one-of", 4, "-n", 10_000, "--margin", 0.02)
    said = _words(_run(*options))
    assert "each device answers one of 4 metrics, drawn by lot, and is charged epsilon 1 instead of 4" in said
    assert "1/4 of the reports, which makes its intervals about 2.00 times as wide" in said
    assert "10,000" in said
    assert "2,500" in said
    (answer,) = json.loads(_run(*options, "--json").output)
    assert answer["one_of"] == {
        "members": 4, "interval_factor": 2.0, "epsilon_charged": 1.0, "epsilon_otherwise": 4.0,
    }  # fmt: skip


def test_plan_of_a_registry_knows_its_groups(registry: Path) -> None:
    """A member by its part and by what the group is charged; a metric without a group by all reports."""
    answers = {
        answer["metric"]: answer
        for answer in json.loads(_run("plan", "--registry", registry, "--json").output)
    }
    assert answers["tab_width"]["one_of"] == {
        "members": 3, "interval_factor": math.sqrt(3), "epsilon_charged": 2.0, "epsilon_otherwise": 3.5,
    }  # fmt: skip
    assert [entry["n"] for entry in answers["tab_width"]["plans"]] == [333, 3_333, 33_333, 333_333]
    assert "one_of" not in answers["dark_mode"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--one-of", 1, "--epsilon", 1, "--values", 5), "one-of"),
        (("--one-of", 3, "--registry", "@"), "groups"),
        (("--one-of", 3, "--epsilon", 1, "--values", 5, "--epsilon-permanent", 2), "memoized metric"),
        (("--one-of", 30, "--epsilon", 1, "--values", 5, "-n", 10), "too few"),
    ],
)
def test_a_bad_question_about_a_group_is_refused(
    registry: Path, options: tuple[object, ...], words: str
) -> None:
    """With a non-zero exit and a reason."""
    result = _run("plan", *[registry if option == "@" else option for option in options])
    assert result.exit_code != 0
    assert words in result.output.replace("memoised", "memoized")


def test_privacy_and_check_charge_a_group_once(registry: Path) -> None:
    """2 + 1 a day instead of 3.5 + 1, and the group is named with what it is charged."""
    document = json.loads(_run("privacy", registry, "--json").output)
    assert document["spans"]["day"]["epsilon"] == 3.0
    assert {each["metric"]: each["one_of"] for each in document["metrics"]} == {
        name: {
            "group": "editor", "members": ["editor_font", "line_length", "tab_width"], "epsilon_charged": 2.0,
        }
        for name in ("editor_font", "line_length", "tab_width")
    } | {"dark_mode": None}  # fmt: skip
    said = _words(_run("privacy", registry))
    assert (
        "one of 'editor' (editor_font, line_length, tab_width): a device answers one of them per window"
        in said
    )
    checked = json.loads(_run("registry", "check", registry, "--json").output)
    assert checked["worst_case_epsilon_per_day"] == 3.0
    assert not [each for each in checked["warnings"] if "one_of" in each["path"]]


def test_check_notes_a_group_of_one(tmp_path: Path) -> None:
    """It is allowed, and does nothing."""
    path = tmp_path / "registry.toml"
    path.write_text(group_toml().replace('one_of = "editor"', "", 2), "utf-8")
    result = _run("registry", "check", path, "--json")
    assert result.exit_code == 0
    (found,) = [each for each in json.loads(result.output)["warnings"] if "one_of" in each["path"]]
    assert found["path"] == "metrics.tab_width.one_of"
    assert "'editor' has no other metric" in found["problem"]


def test_the_statement_says_that_one_of_the_group_is_asked(registry: Path) -> None:
    """In plain words, at each member, with what it costs; the sums count the group once."""
    document = json.loads(_run("registry", "statement", registry, "--format", "json").output)
    often = {each["name"]: each["how_often"] for each in document["metrics"]}
    for name in ("editor_font", "line_length", "tab_width"):
        assert "In each day, this device answers only one of 3 questions" in often[name]
        assert "largest epsilon among them, 2." in often[name]
    assert "only one of" not in often["dark_mode"]
    assert document["spending"]["spans"]["day"]["epsilon"] == 3.0


def test_diff_says_that_a_group_changes_n(registry: Path, tmp_path: Path) -> None:
    """A notice, and no breaking change."""
    other = tmp_path / "new.toml"
    other.write_text(group_toml().replace('one_of = "editor"', 'one_of = "other"', 1), "utf-8")
    result = _run("registry", "diff", registry, other)
    assert result.exit_code == 0
    assert "so n changes" in _words(result)
