"""Sums of one to two weeks: differences of sums that only grow, which balance as those do."""

import pytest

from dither_server.conservation import Terms
from dither_server.recent import EVERY, Recent

DAY_S = 86_400
BEGIN_S = 2_000_000_000


def _terms(scale, in_flight=0, lost=0):
    """Balanced sums, but for the reports that are lost."""
    found = Terms(
        received=20 * scale + in_flight,
        accepted=10 * scale + in_flight,
        counted=8 * scale - lost,
        duplicate=6 * scale,
        rejected={"payload-invalid": 3 * scale, "params-mismatch": scale},
        dead=2 * scale,
        in_flight=in_flight,
    )
    found.imbalance = found.gap
    return found


def _noted(notes, now_s, ever):
    """The notes after a look at a time."""
    return notes | {name.encode(): text for name, text in Recent(notes).notes(now_s, ever).items()}


def test_a_young_store_shows_all_that_it_has():
    """Nothing is taken away before there is something older than a week."""
    notes = _noted({}, BEGIN_S, {"m": _terms(1)})
    assert Recent({}).of("m", _terms(3)) == _terms(3)
    assert Recent(notes).of("m", _terms(3, in_flight=2)) == _terms(3, in_flight=2)


def test_sums_begin_one_to_two_weeks_ago():
    """Looked at every day: what is taken away is what there was seven to fourteen days ago."""
    notes: dict[bytes, bytes] = {}
    for day in range(40):
        notes = _noted(notes, BEGIN_S + day * DAY_S, {"m": _terms(day)})
        shown = Recent(notes).of("m", _terms(day)).dead // 2
        assert shown == day if day < 2 * EVERY.days else EVERY.days <= shown < 2 * EVERY.days + 1


@pytest.mark.parametrize("ahead_days", [-4_000, 4_000])
def test_a_clock_of_the_store_that_was_set_right_does_not_stop_the_notes(ahead_days):
    """However far it was off, the sums begin one to two weeks ago again once it has been right for two weeks."""
    notes = _noted({}, BEGIN_S + ahead_days * DAY_S, {"m": _terms(1)})
    for day in range(2, 40):
        notes = _noted(notes, BEGIN_S + day * DAY_S, {"m": _terms(day)})
    assert EVERY.days <= Recent(notes).of("m", _terms(39)).dead // 2 <= 2 * EVERY.days


def test_what_was_in_flight_then_belongs_to_the_time_since():
    """So the difference balances, and a report that is in flight all the while stays in it."""
    notes = _noted({}, BEGIN_S, {"m": _terms(5, in_flight=7)})
    notes = _noted(notes, BEGIN_S + 7 * DAY_S, {"m": _terms(6)})
    found = Recent(notes).of("m", _terms(9, in_flight=4))
    assert (found.received, found.accepted, found.counted) == (20 * 4 + 4, 10 * 4 + 4, 32)
    assert (found.imbalance, found.gap, found.in_flight) == (0, 0, 4)
    assert found.rejected == {"payload-invalid": 12, "params-mismatch": 4}


def test_an_imbalance_leaves_the_sums_with_its_time():
    """A loss shows for a week at the least; one that was there before does not ring for ever, and hides no new one."""
    notes = _noted({}, BEGIN_S, {"m": _terms(1)})
    notes = _noted(notes, BEGIN_S + 7 * DAY_S, {"m": _terms(5, lost=3)})
    assert Recent(notes).of("m", _terms(6, lost=3)).imbalance == 3
    notes = _noted(notes, BEGIN_S + 14 * DAY_S, {"m": _terms(7, lost=3)})
    assert Recent(notes).of("m", _terms(8, lost=3)).imbalance == 0
    assert Recent(notes).of("m", _terms(8, lost=5)).imbalance == 2
    assert Recent(notes).of("m", _terms(8, lost=1)).imbalance == 2


def test_sums_that_were_begun_anew_are_shown_whole():
    """Less than there was a week ago is no number of reports."""
    notes = _noted({}, BEGIN_S, {"m": _terms(5)})
    notes = _noted(notes, BEGIN_S + 7 * DAY_S, {"m": _terms(5)})
    assert Recent(notes).of("m", _terms(2)) == _terms(2)


@pytest.mark.parametrize("text", [b"", b"no json", b"[]", b'{"m": {"received": "x"}}', b"\xff"])
def test_damaged_notes_count_as_none(text):
    """They only say since when."""
    found = Recent({b"base": text, b"next": text, b"next_at": text, b"names": text})
    assert found.of("m", _terms(2)) == _terms(2)
    assert found.notes(BEGIN_S, {"m": _terms(1)}).keys() == {"next", "next_at"}
    assert not found.names


def test_names_are_noted():
    """In order, so that the same names are the same note."""
    (note,) = Recent({}).names_note({"b", "a"}).values()
    assert note == b'["a","b"]'
    assert Recent({b"names": note}).names == {"a", "b"}
