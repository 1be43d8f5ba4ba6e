"""What the parties read of a stream entry without its definition: its reports by header, its place in the stream."""

import pytest

from dither_protocol.errors import StorageError
from dither_protocol.storage import UNKNOWN, encode_entry, entry_position, entry_reports

_REPORT = b"\1\0\0\0"


def test_the_reports_of_an_entry_by_metric_and_window():
    """Versions and dimensions of a metric and window add up."""
    entry = encode_entry(
        [
            ("browser:2:2126-11-28:os=linux", [_REPORT] * 2),
            ("browser:1:2126-11-28:", [_REPORT]),
            ("dark_mode:1:once:", [_REPORT] * 4),
        ]
    )
    assert entry_reports(entry) == {("browser", "2126-11-28"): 3, ("dark_mode", "once"): 4}


@pytest.mark.parametrize("rest", [b"\1", b"\1\0\1\0\1\0\0\0:\1", b"\xff" * 8])
def test_what_a_damaged_entry_does_not_tell_is_one_report(rest):
    """A cut header, a name that is none, sizes beyond the end."""
    entry = encode_entry([("dark_mode:1:once:", [_REPORT] * 4)]) + rest
    assert entry_reports(entry) == {("dark_mode", "once"): 4, (UNKNOWN, UNKNOWN): 1}


def test_an_entry_without_a_version_is_one_report():
    """Nothing of it can be told."""
    assert entry_reports(b"") == entry_reports(b"\7abc") == {(UNKNOWN, UNKNOWN): 1}


def test_positions_sort_as_the_stream_does():
    """By milliseconds, then by number, both as numbers; the mark of a prune is left out."""
    ids = [b"9-1", b"9-2", b"9-10", b"10-0"]
    assert sorted(ids, key=entry_position) == ids
    assert entry_position(b"1690000000000-3.1") == entry_position(b"1690000000000-3") == (1690000000000, 3)


@pytest.mark.parametrize("text", [b"", b"-", b"1", b"1-", b"-1", b"1-x", b"1-1-1", b".1"])
def test_what_is_no_id_is_refused(text):
    """Where a place in the stream is wanted."""
    with pytest.raises(StorageError):
        entry_position(text)
