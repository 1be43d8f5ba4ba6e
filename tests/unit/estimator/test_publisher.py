"""The order in which changed cells are published."""

from dither_estimator.faults import Faults
from dither_estimator.publisher import oldest_first
from dither_protocol.storage import Cell


def _cell(window: str, os: str) -> Cell:
    return Cell("m", 1, window, (("os", os),))


def test_the_longest_marked_come_first() -> None:
    """By the oldest mark in any partition, as numbers; a window stands where its oldest cell does."""
    a, b, c, d = _cell("w1", "a"), _cell("w2", "b"), _cell("w2", "c"), _cell("w3", "d")
    marks = [
        {a.name: b"1000-0", c.name: b"999-10", b.name: b"2000-0"},
        {b.name: b"999-9", d.name: b"1000-1", c.name: b"3000-0"},
    ]
    assert oldest_first(marks, Faults()) == {
        ("m", 1, "w2"): [b, c],
        ("m", 1, "w1"): [a],
        ("m", 1, "w3"): [d],
    }


def test_nothing_marked_is_nothing_to_do() -> None:
    """Empty partitions are no error."""
    assert oldest_first([{}, {}], Faults()) == {}
    assert oldest_first([], Faults()) == {}
