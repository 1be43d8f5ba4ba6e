"""From stream entries to counts per cell."""

from collections.abc import Iterable

import numpy as np
import pytest

from dither_client import randomize
from dither_estimator.tally import Entry, Tally, decode, fitting, set_aside_undecoded, tally
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


def _tally(entries: Iterable[Entry]) -> Tally:
    return tally(decode(entries, _definition))


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
    result = _tally(entries)
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
    result = _tally([(b"1-0", good), (b"2-0", b"\x07junk"), (b"3-0", b""), (b"4-0", good)])
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
    result = _tally([(b"1-0", bad), (b"2-0", good)])
    assert {name: c.n for name, c in result.cells.items()} == {_cell("dark_mode"): 1}
    assert dict(result.counted) == {("dark_mode", DAY): 1}
    assert dict(result.dead) == {("dark_mode", DAY): 2, ("first_color", "once"): 1}
    assert [entry_id for entry_id, _, _ in result.dead_entries] == [b"1-0"]


@pytest.mark.parametrize(
    ("entry", "dead"),
    [
        (encode_entry([("dark_mode:9:2026-11-29:", [b"\0\0\0\0"] * 3)]), {("dark_mode", DAY): 3}),
        (encode_entry([("nothing:1:2026-11-29:", [b"\0\0\0\0"])]), {("nothing", DAY): 1}),
        (encode_entry([(_cell("dark_mode"), [b"\0\0"] * 2)]), {("dark_mode", DAY): 2}),
        (encode_entry([("no cell", [b"\0\0\0\0"] * 2)]), {("_unknown", "_unknown"): 1}),
        (
            encode_entry([(_cell("dark_mode"), [b"\0\0\0\0"] * 2)]) + b"\x05",
            {("dark_mode", DAY): 2, ("_unknown", "_unknown"): 1},
        ),
    ],
)
def test_an_entry_that_nobody_announced_is_set_aside(entry: bytes, dead: dict[tuple[str, str], int]) -> None:
    """Unknown version or metric, a report of another size, no cell's name, a torn end: booked by what headers say."""
    result = _tally([(b"1-0", entry)])
    assert result.cells == {}
    assert len(result.dead_entries) == 1
    assert dict(result.dead) == dead
    assert dict(result.dead) == dead


def test_a_definition_of_another_meaning_stops_the_count() -> None:
    """A worker that is older than the server must not throw reports away: it stops."""

    def newer(name: str, version: int) -> Metric:
        raise RegistryError(f"metrics.{name}", "another meaning")

    entry = encode_entry([(_cell("dark_mode"), [_pack("dark_mode", 1)])])
    with pytest.raises(RegistryError):
        decode([(b"1-0", entry)], newer)


def test_an_entry_that_is_not_decoded_any_more_is_booked_under_its_metrics() -> None:
    """Headers are read without numpy, so poison is accounted for as what it is (C2)."""
    poison = encode_entry(
        [
            (_cell("dark_mode"), [_pack("dark_mode", 1)] * 3),
            (_cell("first_color", "once"), [_pack("first_color", 3)] * 2),
        ]
    )
    result = set_aside_undecoded([(b"1-0", poison), (b"2-0", b"\x07junk")])
    assert dict(result.dead) == {
        ("dark_mode", DAY): 3,
        ("first_color", "once"): 2,
        ("_unknown", "_unknown"): 1,
    }
    assert [payload for _, _, payload in result.dead_entries] == [poison, b"\x07junk"]


def _days(*days: int) -> Entry:
    """An entry with one report for dark_mode on each of these days of November: cells of 24 bytes."""
    cells = [_cell("dark_mode", f"2026-11-{day:02}") for day in days]
    return b"1-0", encode_entry([(cell, [_pack("dark_mode", 1)]) for cell in cells])


@pytest.mark.parametrize(
    ("limit", "expected"), [(0, 2), (24, 2), (47, 2), (48, 4), (71, 4), (96, 5), (10_000, 5)]
)
def test_a_run_is_cut_where_its_cells_would_be_too_large_for_a_commit(limit: int, expected: int) -> None:
    """Each cell weighs once; an entry that only touches cells of the run weighs nothing; the first always goes."""
    run = decode([_days(1), _days(1), _days(2), _days(1, 2), _days(3, 4)], _definition)
    assert len(fitting(run, limit)) == expected


def test_an_entry_with_more_than_the_limit_goes_alone_with_those_of_the_same_cells() -> None:
    """One entry may be larger than a commit should be, and what adds no cell goes with it."""
    run = decode([_days(1, 2, 3), _days(3), _days(4)], _definition)
    assert len(fitting(run, 24)) == 2


def test_a_cell_that_comes_twice_in_an_entry_weighs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server writes such an entry, but it can be read, and one cell is all that it changes."""
    monkeypatch.setattr("dither_estimator.tally.MAX_ENTRY_CELL_BYTES", 48)
    result = _tally([_days(1, 2, 1, 2, 1)])
    assert dict(result.counted) == {("dark_mode", "2026-11-01"): 3, ("dark_mode", "2026-11-02"): 2}
    assert not result.dead_entries


def test_an_entry_that_no_commit_can_carry_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that refuses it would be tried for ever; its reports are accounted for."""
    monkeypatch.setattr("dither_estimator.tally.MAX_ENTRY_CELL_BYTES", 48)
    result = _tally([_days(1, 2, 3), _days(1, 2)])
    assert dict(result.counted) == {("dark_mode", "2026-11-01"): 1, ("dark_mode", "2026-11-02"): 1}
    assert sum(result.dead.values()) == 3
