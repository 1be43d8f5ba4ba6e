"""``dither audit --command``: any program that prints reports, right ones and faulty ones."""

import shlex
import sys
from pathlib import Path

import pytest

import support
from support.audit_faults import Audited, audit

PROGRAM = Path(str(support.__path__[0])) / "audit_program.py"


def _audited(fault: str, name: str, *options: str, epsilon: float = 1.0, d: int = 8) -> Audited:
    words = [sys.executable, str(PROGRAM), fault, name, f"{epsilon:g}", str(d)]
    command = shlex.join(words) + " {value} {count}"
    declared = ["--mechanism", name, "--epsilon", f"{epsilon:g}", "--d", str(d)]
    return audit("--command", command, *declared, *options)


@pytest.mark.parametrize(
    ("order", "name", "epsilon", "d"),
    [
        ("sound", "grr", 1.0, 8),
        ("sound", "oue", 2.0, 4),
        ("sound", "subset", 1.0, 16),
        ("sorted", "subset", 1.0, 16),
    ],
)
def test_a_right_program_passes(order: str, name: str, epsilon: float, d: int) -> None:
    """Indices and lists in sorted or drawn order prove no more than declared, and the proof comes near to it."""
    done = _audited(order, name, epsilon=epsilon, d=d)
    assert (done.status, done.found["problems"]) == (0, [])
    (row,) = done.found["mechanisms"]
    assert 0.5 * epsilon < row["epsilon_lower_bound"] <= epsilon < row["smallest_violation"] <= 1.5 * epsilon
    assert done.found["checks"][0]["passed"]


@pytest.mark.parametrize("name", ["grr", "oue"])
def test_one_and_a_half_times_the_epsilon_is_proved(name: str) -> None:
    """The number of reports is chosen so that no such program gets through."""
    done = _audited("loud", name)
    assert done.status == 1
    assert "the reports prove an epsilon of 1." in done.problems
    assert done.found["mechanisms"][0]["margin"] < 0


def test_a_subset_with_the_truth_first_is_found_by_its_order() -> None:
    """As a set it keeps its epsilon; only the order of the list betrays it, and quite."""
    done = _audited("truth-first", "subset", d=16)
    assert done.status == 1
    assert "by order of the list" in done.problems
    assert "support" not in done.problems
    games = {game["name"]: game["epsilon_lower_bound"] for game in done.found["mechanisms"][0]["games"]}
    assert games["order of the list"] > 2
    assert max(games["support"], games["bits"]) <= 1


@pytest.mark.parametrize("name", ["grr", "oue"])
def test_a_known_seed_is_found(name: str) -> None:
    """A Mersenne Twister that is seeded the same at every start repeats its noise."""
    done = _audited("seeded", name)
    assert done.status == 1
    assert "a second run repeats the noise of the first" in done.problems


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("quiet", "reports that support the held value: "),
        ("repeats", "neighbouring reports alike in supporting the held value: "),
    ],
)
def test_what_breaks_no_promise_but_the_estimates_is_found_too(fault: str, words: str) -> None:
    """Too much noise, or reports that repeat each other, are not as p and q say."""
    done = _audited(fault, "grr")
    assert done.status == 1
    assert words in done.problems
    assert "prove an epsilon" not in done.problems


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("short", "was asked for"),
        ("words", "a line that is not JSON"),
        ("fails", "ended with exit code 1:\nno such file: mine.csv"),
    ],
)
def test_a_program_that_prints_no_reports_is_an_error(fault: str, words: str) -> None:
    """One sentence says what came in place of reports; no traceback."""
    done = _audited(fault, "grr")
    assert (done.status, done.found) == (1, {})
    assert words in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("fault", ["outside", "nan"])
def test_what_the_mechanism_does_not_produce_is_found(fault: str) -> None:
    """A report outside its range, or NaN, is none."""
    done = _audited(fault, "grr", "--reports", "100")
    assert done.status == 1
    assert "report 0: data must be" in done.problems


def test_a_program_that_hangs_is_ended() -> None:
    """--timeout says how long one run may take."""
    done = _audited("hangs", "grr", "--timeout", "2")
    assert done.status == 1
    assert "takes longer than 2 seconds" in done.err


def test_a_command_that_does_not_exist_is_named() -> None:
    """No traceback of the system's."""
    done = audit(
        "--command", "no-such-thing {value} {count}", "--mechanism", "rr", "--epsilon", "1", "--d", "2"
    )
    assert done.status == 1
    assert "no-such-thing cannot be started: No such file or directory" in done.err
