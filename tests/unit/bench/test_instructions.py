"""Instruction counts by valgrind."""

import shutil
import sys

import pytest

from harness import Skipped
from instructions import cases, counted


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_more_work_takes_more_instructions() -> None:
    """A real count; and a program that fails gives none."""
    few, many = (counted([sys.executable, "-S", "-c", f"sum(range({n}))"]) for n in (10, 1_000_000))
    assert many > few + 1_000_000
    with pytest.raises(RuntimeError, match="ended with 3"):
        counted([sys.executable, "-S", "-c", "raise SystemExit(3)"])


def test_without_valgrind_the_suite_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything runs."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for case in cases():
        with pytest.raises(Skipped, match="valgrind is not installed"):
            list(case.rows())
