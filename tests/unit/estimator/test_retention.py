"""Retention: which clock is believed, and how a checkpoint is marked."""

from datetime import UTC, datetime, timedelta

import pytest

from dither_estimator.pruning import Pruned, marked
from dither_estimator.retention import HOLD, MAX_PAUSE, Mark, judged
from dither_estimator.store import after

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "mark",
    [
        None,
        Mark(NOW - HOUR),
        Mark(NOW - MAX_PAUSE),
        Mark(NOW + timedelta(days=400)),
        Mark(NOW - HOUR, NOW - HOUR),
    ],
    ids=["first", "an hour ago", "longest pause", "clock put back", "a jump that was put right"],
)
def test_a_clock_that_goes_on_is_believed(mark: Mark | None) -> None:
    """A first prune, a usual pause, and a clock that was put back: nothing too much can be forgotten."""
    assert judged(mark, NOW) == (True, Mark(NOW))


def test_a_clock_that_jumped_is_believed_after_a_day() -> None:
    """A year ahead: nothing for a day of that clock, however often it is asked, then it is believed."""
    before = Mark(NOW - timedelta(days=365))
    trusted, mark = judged(before, NOW)
    assert (trusted, mark) == (False, Mark(before.pruned, held=NOW))
    for hour in range(1, 24):
        trusted, mark = judged(mark, NOW + hour * HOUR)
        assert (trusted, mark) == (False, Mark(before.pruned, held=NOW))
    assert judged(mark, NOW + HOLD) == (True, Mark(NOW + HOLD))


def test_a_second_jump_begins_the_day_anew() -> None:
    """A clock that was put back while it was held, and is ahead again, is held from then on."""
    held = Mark(NOW - timedelta(days=100), held=NOW + timedelta(days=300))
    assert judged(held, NOW) == (False, Mark(held.pruned, held=NOW))


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [(b"", b"0-0.1"), (b"5-3", b"5-3.1"), (b"5-3.1", b"5-3.2"), (b"5-3.99", b"5-3.100")],
)
def test_a_marked_checkpoint_compares_unequal_and_means_the_same(checkpoint: bytes, expected: bytes) -> None:
    """Whoever read the one before notices; whoever reads on from it reads the same entries."""
    assert marked(checkpoint) == expected
    assert after(expected) == after(checkpoint or b"0-0")


def test_what_went_adds_up() -> None:
    """Field by field; nothing at all is false."""
    assert Pruned(cells=1, dead=2) + Pruned(cells=3, estimates=4) == Pruned(cells=4, estimates=4, dead=2)
    assert not Pruned()
    assert Pruned(archived=1)
