"""The order in which changed cells are published."""

from dither_estimator.faults import Faults
from dither_estimator.publisher import oldest_first
from dither_protocol.storage import Cell


def _cell(window: str, os: str, metric: str = "m") -> Cell:
    return Cell(metric, 1, window, (("os", os),))


def test_the_longest_marked_come_first() -> None:
    """By the oldest mark in any partition, as numbers; a metric stands where its oldest cells do."""
    a, b, c, d = (
        _cell("w1", place, metric) for place, metric in zip("abcd", ("m", "k", "k", "l"), strict=True)
    )
    marks = [
        {a.name: b"1000-0", c.name: b"999-10", b.name: b"2000-0"},
        {b.name: b"999-9", d.name: b"1000-1", c.name: b"3000-0"},
    ]
    assert list(oldest_first(marks, Faults()).items()) == [
        (("k", 1, "w1"), [b, c]),
        (("m", 1, "w1"), [a]),
        (("l", 1, "w1"), [d]),
    ]


def test_the_windows_of_a_version_come_in_the_order_of_time() -> None:
    """In the places that they have together: others that were marked between them stay there."""
    early, late, other = _cell("2026-11-28", "a"), _cell("2026-11-29", "a"), _cell("2026-11-30", "a", "k")
    marks = [{late.name: b"1-0", other.name: b"2-0", early.name: b"3-0"}]
    assert list(oldest_first(marks, Faults()).items()) == [
        (("m", 1, "2026-11-28"), [early]),
        (("k", 1, "2026-11-30"), [other]),
        (("m", 1, "2026-11-29"), [late]),
    ]


def test_nothing_marked_is_nothing_to_do() -> None:
    """Empty partitions are no error."""
    assert oldest_first([{}, {}], Faults()) == {}
    assert oldest_first([], Faults()) == {}
