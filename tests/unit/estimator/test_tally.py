"""From stream entries to counts per cell."""

import numpy as np
import pytest

from dither_client import randomize
from dither_estimator.tally import tally
from dither_protocol.errors import RegistryError, StorageError
from dither_protocol.registry import Metric
from dither_protocol.storage import Cell, encode_entry
from support.registries import small_registry

REGISTRY = small_registry()
DAY = "2026-11-29"


def _definition(name: str, version: int) -> Metric:
    metric = REGISTRY.metrics.get(name)
    if metric is None or metric.version != version:
        raise StorageError("not announced")
    return metric


def _cell(metric: str, window: str = DAY, **dimensions: str) -> str:
    return Cell(metric, REGISTRY.metric(metric).version, window, tuple(dimensions.items())).name


def _pack(metric: str, data: object) -> bytes:
    return REGISTRY.metric(metric).mechanism.pack(data)


def test_reports_are_counted_by_cell() -> None:
    """Two entries, three cells: each cell has its own n and counters."""
    ones = [_pack("dark_mode", 1)] * 3 + [_pack("dark_mode", 0)]
    mechanism = REGISTRY.metric("color").mechanism
    bits = mechanism.pack(randomize(mechanism, 2))
    entries = [
        (
            b"1-0",
            encode_entry([(_cell("dark_mode"), ones), (_cell("color", "2026-W48", os="linux"), [bits])]),
        ),
        (b"2-0", encode_entry([(_cell("dark_mode"), ones[:1]), (_cell("dark_mode", "2026-11-30"), ones)])),
    ]
    result = tally(entries, _definition)
    assert {name: (c.n, c.counters.tolist()) for name, c in result.cells.items()} == {
        _cell("dark_mode"): (5, [1, 4]),
        _cell("dark_mode", "2026-11-30"): (4, [1, 3]),
        _cell("color", "2026-W48", os="linux"): (1, [bits[0] >> i & 1 for i in range(5)]),
    }
    assert dict(result.counted) == {
        ("dark_mode", DAY): 5,
        ("dark_mode", "2026-11-30"): 4,
        ("color", "2026-W48"): 1,
    }
    assert not result.dead_entries
    assert all(c.counters.dtype == np.int64 for c in result.cells.values())


def test_an_entry_that_cannot_be_read_is_set_aside_and_its_neighbours_are_counted() -> None:
    """One poisonous entry costs nothing but itself, and is kept with the reason."""
    good = encode_entry([(_cell("dark_mode"), [_pack("dark_mode", 1)])])
    result = tally([(b"1-0", good), (b"2-0", b"\x07junk"), (b"3-0", b""), (b"4-0", good)], _definition)
    assert result.cells[_cell("dark_mode")].n == 2
    assert [(entry_id, payload) for entry_id, _, payload in result.dead_entries] == [
        (b"2-0", b"\x07junk"),
        (b"3-0", b""),
    ]
    assert dict(result.dead) == {("_unknown", "_unknown"): 2}


def test_an_entry_with_an_impossible_report_is_set_aside_whole() -> None:
    """An index outside the domain: none of its entry's reports is counted, all of them are accounted for."""
    bad = encode_entry(
        [
            (_cell("dark_mode"), [b"\x00\x00\x00\x00", b"\x02\x00\x00\x00"]),
            (_cell("first_color", "once"), [_pack("first_color", 3)]),
        ]
    )
    good = encode_entry([(_cell("dark_mode"), [_pack("dark_mode", 0)])])
    result = tally([(b"1-0", bad), (b"2-0", good)], _definition)
    assert {name: c.n for name, c in result.cells.items()} == {_cell("dark_mode"): 1}
    assert dict(result.counted) == {("dark_mode", DAY): 1}
    assert dict(result.dead) == {("dark_mode", DAY): 2, ("first_color", "once"): 1}
    assert [entry_id for entry_id, _, _ in result.dead_entries] == [b"1-0"]


@pytest.mark.parametrize(
    "entry",
    [
        encode_entry([("dark_mode:9:2026-11-29:", [b"\0\0\0\0"])]),
        encode_entry([("nothing:1:2026-11-29:", [b"\0\0\0\0"])]),
        encode_entry([(_cell("dark_mode"), [b"\0\0"])]),
        encode_entry([("no cell", [b"\0\0\0\0"])]),
    ],
)
def test_an_entry_that_nobody_announced_is_set_aside(entry: bytes) -> None:
    """An unknown version, an unknown metric, a report of another size, a name that is no cell's."""
    result = tally([(b"1-0", entry)], _definition)
    assert result.cells == {}
    assert len(result.dead_entries) == 1


def test_a_definition_of_another_meaning_stops_the_count() -> None:
    """A worker that is older than the server must not throw reports away: it stops."""

    def newer(name: str, version: int) -> Metric:
        raise RegistryError(f"metrics.{name}", "another meaning")

    entry = encode_entry([(_cell("dark_mode"), [_pack("dark_mode", 1)])])
    with pytest.raises(RegistryError):
        tally([(b"1-0", entry)], newer)
