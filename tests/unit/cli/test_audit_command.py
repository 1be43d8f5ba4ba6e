"""``dither audit``: what is refused before anything runs, and what is said about it."""

import pytest
from click.testing import CliRunner, Result

from dither_cli.audit_command import audit


def _run(*options: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(audit, list(options))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--command", "echo {value}"], "goes with one --mechanism, one --epsilon and one --d"),
        (["--command", "echo 1", "--mechanism", "grr", "--epsilon", "1", "--d", "4"], "{value} and {count}"),
        (
            ["--command", "echo '{value} {count}", "--mechanism", "grr", "--epsilon", "1", "--d", "4"],
            "cannot be read",
        ),
        (
            ["--command", "echo {value} {count} {x}", "--mechanism", "rr", "--epsilon", "1", "--d", "2"],
            "no others",
        ),
        (["--seconds", "3", "--reports", "1000"], "not both"),
        (["--epsilon", "9"], "at most 5"),
        (["--epsilon", "nan"], "at most 5"),
        (["--epsilon", "0"], "epsilon must be"),
        (["--d", "1"], "d must be"),
        (["--epsilon", "0.01", "--mechanism", "rr"], "at most 4,000,000 are drawn"),
        (["--collection", "memoized", "--mechanism", "olh"], "memoised collection takes grr, sue, oue"),
        (["--mechanism", "rappor"], "'rappor' is not one of"),
        (["--reports", "5"], "x>=100"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(options: list[str], words: str) -> None:
    """Exit code 2, and a sentence that says what to give."""
    done = _run(*options)
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.output.split())


def test_the_help_has_contract_and_exit_codes() -> None:
    """Whoever writes a program for --command needs nothing else."""
    text = " ".join(_run("--help").output.split())
    for words in (
        "{value} an index from 0",
        "{count} how many",
        "one report per line",
        "Exit codes: 0",
        "128 + n",
    ):
        assert words in text, words
