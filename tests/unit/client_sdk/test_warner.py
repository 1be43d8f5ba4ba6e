"""Warnings: each kind at most once a minute."""

import logging

import pytest

from dither_client import warner
from dither_client.warner import PAUSE_S, Warner


@pytest.mark.parametrize("start", [0.0, 12_345.6])
def test_a_kind_is_said_once_a_minute_and_kinds_do_not_share(
    start: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first at once, whatever the clock shows; the next after a minute from the last one that was said."""
    now = [start]
    monkeypatch.setattr(warner.time, "monotonic", lambda: now[0])
    made = Warner()
    with caplog.at_level(logging.WARNING, "dither_client"):
        for step, expected in ((0.0, 1), (30.0, 1), (29.9, 1), (0.1, 2), (59.9, 2), (0.1, 3)):
            now[0] += step
            made.warn("a", "%d things (%s)", 3, "a")
            assert len(caplog.records) == expected
        made.warn("b", "another")
    assert [record.getMessage() for record in caplog.records] == ["3 things (a)"] * 3 + ["another"]
    assert PAUSE_S == 60.0
