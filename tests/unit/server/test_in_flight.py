"""What is in flight, followed through pages of entries and a checkpoint that moves."""

import random

import pytest

from dither_protocol.errors import StorageError
from dither_protocol.storage import UNKNOWN, encode_entry
from dither_server.in_flight import InFlight

DARK = ("dark_mode", "2126-11-29")
BROWSER = ("browser", "2126-11-28")
_CELLS = {DARK: "dark_mode:1:2126-11-29:", BROWSER: "browser:2:2126-11-28:os=linux"}


def _entry(number, **reports):
    groups = [
        (_CELLS[bucket], [b"\1\0\0\0"] * n)
        for bucket, n in ((DARK, reports.get("dark", 0)), (BROWSER, reports.get("browser", 0)))
        if n
    ]
    return b"5-%d" % number, {b"b": encode_entry(groups)}


def _waiting(in_flight):
    return {bucket: n for bucket, n in in_flight.reports.items() if n}


def test_entries_add_up_and_leave_with_the_checkpoint():
    """Read in two pages; those that the checkpoint has passed are in flight no more."""
    in_flight = InFlight()
    assert in_flight.next_id == "0-1"
    in_flight.take(None, [_entry(1, dark=2), _entry(2, dark=1, browser=3)])
    assert (_waiting(in_flight), in_flight.next_id) == ({DARK: 3, BROWSER: 3}, "5-3")
    in_flight.take(b"5-1", [_entry(3, browser=4)])
    assert (_waiting(in_flight), in_flight.next_id) == ({DARK: 1, BROWSER: 7}, "5-4")
    in_flight.take(b"5-3", [])
    assert _waiting(in_flight) == {}


def test_what_was_counted_before_it_was_read_is_passed_over():
    """The checkpoint is ahead of the reading: on from there, whatever was trimmed in between."""
    in_flight = InFlight()
    in_flight.take(b"5-10", [_entry(12, dark=1)])
    assert (_waiting(in_flight), in_flight.next_id) == ({DARK: 1}, "5-13")
    in_flight.take(b"7-0", [])
    assert (_waiting(in_flight), in_flight.next_id) == ({}, "7-1")


def test_entries_that_an_archive_keeps_are_not_in_flight():
    """They stand in the stream before the checkpoint, and are counted."""
    in_flight = InFlight()
    in_flight.take(b"5-2", [_entry(1, dark=1), _entry(2, dark=1), _entry(3, dark=1)])
    assert _waiting(in_flight) == {DARK: 1}


def test_the_mark_of_a_prune_changes_nothing():
    """A checkpoint `id.n` is the id."""
    in_flight = InFlight()
    in_flight.take(b"5-1.7", [_entry(1, dark=1), _entry(2, dark=1)])
    assert (_waiting(in_flight), in_flight.next_id) == ({DARK: 1}, "5-3")


def test_a_damaged_entry_is_one_report_of_nobody():
    """As the worker books it; what its headers tell before the damage counts as it should."""
    whole = _entry(1, dark=2)[1][b"b"]
    in_flight = InFlight()
    in_flight.take(None, [(b"5-1", {b"b": whole + b"\1"}), (b"5-2", {}), (b"5-3", {b"b": b"\7"})])
    assert _waiting(in_flight) == {DARK: 2, (UNKNOWN, UNKNOWN): 3}


@pytest.mark.parametrize("checkpoint", [b"x", b"5", b"5-x", b"-", b"5-1-2"])
def test_a_checkpoint_that_is_none_is_refused(checkpoint):
    """It would be taken for a place in the stream."""
    with pytest.raises(StorageError):
        InFlight().take(checkpoint, [])


def test_any_pages_and_any_checkpoints_give_the_sum_after_the_last_checkpoint():
    """Against the definition, for random streams and random moments of reading."""
    draw = random.Random(5)  # noqa: S311  # a story, no privacy
    for _ in range(200):
        entries = [_entry(n, dark=draw.randint(0, 2), browser=draw.randint(1, 2)) for n in range(1, 30)]
        in_flight, read, counted = InFlight(), 0, 0
        while read < len(entries):
            counted = draw.randint(counted, read)
            page = entries[read : read + draw.randint(1, 6)]
            in_flight.take(b"5-%d" % counted if counted else None, page)
            read += len(page)
        fresh = InFlight()
        fresh.take(None, entries[counted:])
        assert _waiting(in_flight) == _waiting(fresh)
