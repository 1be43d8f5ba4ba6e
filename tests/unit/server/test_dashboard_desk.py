"""Readings that several pages share. Pure but for the clock."""

from typing import Any

import pytest

from dither_server.dashboard import desk


def test_a_reading_is_used_again_while_it_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pages at a time cost one reading; an old one is read again; an error is nobody's reading."""
    answers: list[Any] = [1, 2, ValueError("not now"), 3]

    def read() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    clock = [0.0]
    monkeypatch.setattr(desk.time, "monotonic", lambda: clock[0])
    recent = desk.Recent(read)
    assert [recent(), recent()] == [1, 1]
    clock[0] = desk.FRESH_S + 0.1
    assert recent() == 2
    clock[0] += desk.FRESH_S + 0.1
    with pytest.raises(ValueError, match="not now"):
        recent()
    assert [recent(), recent()] == [3, 3]


def test_a_dear_reading_is_used_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that took two seconds is good for twenty."""
    clock = [0.0]

    def read() -> float:
        clock[0] += 2.0
        return clock[0]

    monkeypatch.setattr(desk.time, "monotonic", lambda: clock[0])
    recent = desk.Recent(read)
    assert recent() == 2.0
    clock[0] = 21.9
    assert recent() == 2.0
    clock[0] = 22.1
    assert recent() == 24.1
