"""What is damaged: said once, and tried again after a while."""

import pytest

from dither_estimator.faults import Faults
from dither_protocol.errors import StorageError


def test_a_fault_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Again only where it is another one, or somewhere else."""
    faults = Faults()
    for where, what in (("a", "x"), ("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")):
        faults.note(where, StorageError(what))
    assert [record.getMessage().rpartition("is: ")[2] for record in caplog.records] == [
        "a: x",
        "a: y",
        "b: x",
    ]


def test_what_was_said_takes_bounded_memory(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After very many faults it begins anew."""
    monkeypatch.setattr("dither_estimator.faults._REMEMBERED", 3)
    faults = Faults()
    for number in (1, 2, 3, 4, 4, 1):
        faults.note("a", StorageError(str(number)))
    assert len(caplog.records) == 5


def test_what_has_to_wait_waits_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else does."""
    now = 100.0
    monkeypatch.setattr("dither_estimator.faults.time.monotonic", lambda: now)
    faults = Faults()
    faults.hold("a")
    assert (faults.holds("a"), faults.holds("b")) == (True, False)
    now = 129.0
    assert faults.holds("a")
    now = 131.0
    assert not faults.holds("a")
