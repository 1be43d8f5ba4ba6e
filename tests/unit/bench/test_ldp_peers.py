"""Peers that no longer install or import."""

import sys
from pathlib import Path

import pytest

import ldp_peers
from harness import Skipped
from ldp_peers import installed, last_meaningful, own_facts, rows


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("", ""),
        ("WARNING: a\nERROR: No distribution found for x\n", "ERROR: No distribution found for x"),
        ("ERROR: no wheel\n\n[notice] A new release of pip\nWARNING: b\n", "ERROR: no wheel"),
        ("Traceback:\n  File\nImportError: no name\n", "ImportError: no name"),
    ],
)  # fmt: skip
def test_the_last_line_that_means_something_is_the_reason(said: str, meant: str) -> None:
    """Warnings and notices are not what went wrong."""
    assert last_meaningful(said) == meant


def test_what_does_not_install_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python that is not there makes no environment, and nothing says that it did."""
    monkeypatch.setattr(ldp_peers, "_HOMES", tmp_path)
    with pytest.raises(Skipped, match="No such file"):
        installed("opendp", str(tmp_path / "python"))
    assert not (tmp_path / "opendp").exists()


def test_what_does_not_import_is_skipped_with_the_reason() -> None:
    """The probe of another library, run where that is not installed."""
    with pytest.raises(Skipped, match="No module named"):
        list(rows("pure-ldp", sys.executable))


def test_own_noise_does_not_repeat() -> None:
    """Whoever seeds the generators of Python and numpy learns nothing about it."""
    found = own_facts()
    assert not found.repeats_when_seeded
