"""`make bench-check` as a command: what it says, and its exit status."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import run_check
from harness import Case, Row, Skipped, machine
from suites import as_json

Check = Callable[..., int]


def rate(value: float) -> Row:
    """A row of the suite `sdk`."""
    return Row("a rate", value, "1/s", over=2.0, yardstick="loop")


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Check:
    """Runs the command on committed rows and on what is measured now."""

    def run(committed: list[Row], measured: Callable[[], list[Row]]) -> int:
        case = Case("sdk", measured, guarded=True)
        results = tmp_path / "results.json"
        document = {"machine": machine(), "rows": [as_json(case, row) for row in committed]}
        results.write_text(json.dumps(document), encoding="utf-8")

        def cases(names: tuple[str, ...]) -> Iterator[Case]:
            yield case
            yield Case("sdk", pytest.fail)  # not guarded, so not measured

        monkeypatch.setattr(run_check, "cases", cases)
        monkeypatch.setattr("sys.argv", ["run_check.py", "--results", str(results), "--only", "sdk"])
        return run_check.main()

    return run


def test_a_row_that_held_is_status_0(check: Check) -> None:
    """The values are another machine's, twice as fast; the ratios are the same."""
    assert check([rate(100.0)], lambda: [Row("a rate", 200.0, "1/s", over=4.0, yardstick="loop")]) == 0


def test_a_worse_row_is_status_1_and_named_with_both_figures(
    check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ratios, and by how much."""
    assert check([rate(100.0)], lambda: [rate(70.0)]) == 1
    assert "a rate: 35, committed 50: worse by 30.0%\n1 of 1 rows failed" in capsys.readouterr().out


def test_a_row_that_is_gone_is_status_1(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    """And is said to be."""
    assert check([rate(100.0)], list) == 1
    assert "a rate: missing, no longer measured" in capsys.readouterr().out


def test_nothing_to_compare_with_is_status_2(check: Check) -> None:
    """A guard that guards nothing has not passed, and nothing is measured for it."""
    assert check([Row("a rate", 100.0, "1/s")], lambda: pytest.fail("measured")) == 2


def test_what_cannot_be_measured_here_is_said(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason, and is no failure."""

    def skip() -> list[Row]:
        raise Skipped("wrk is not installed")

    assert check([rate(100.0)], skip) == 0
    assert "wrk is not installed" in capsys.readouterr().out
