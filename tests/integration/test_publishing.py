"""The publishing script between two publishers, and publishing beside what is damaged."""

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from dither_estimator.definitions import Definitions
from dither_estimator.published import Draft, Place, Published, Result
from dither_estimator.publisher import Publisher
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol import storage
from dither_protocol.registry import Registry
from dither_protocol.storage import COMBINED, Cell, encode_cell, encode_entry
from dither_protocol.windows import parse_window
from support.store import Store as Valkey
from support.worker_store import (
    PARTITIONS,
    append_entry,
    dark_entry,
    day,
    partition_keys,
    published_estimates,
)

pytestmark = pytest.mark.usefixtures("engine")

DAY = "2026-11-29"
CLOSES = datetime(2026, 12, 3, tzinfo=UTC)
PLACE = Place("dark_mode", 1, parse_window("day", DAY), CLOSES)
WATERMARKS = [datetime(2026, 11, 29, hour, tzinfo=UTC) for hour in range(24)]


def _draft(n: int, *, final: bool = False, field: str = "*", text: str = "x") -> Draft:
    document = {"text": text, "status": "final" if final else "open", "final": final}
    return Draft(field, n, final, document)


@pytest.fixture
def published(valkey: Valkey, registry: Registry) -> Published:
    """Of an empty store."""
    store = Store(valkey.url)
    store.open()
    return Published(store)


def _document(valkey: Valkey, field: str = "*") -> dict[str, Any]:
    document: dict[str, Any] = published_estimates(valkey, "dark_mode", 1)[f"{DAY}|{field}"]
    return document


def _open(valkey: Valkey) -> list[tuple[str, float]]:
    return list(valkey.client(decode=True).zrange(storage.open_key("dark_mode"), 0, -1, withscores=True))


_Text = tuple[int, bool, str]
"""n, whether final, content."""
_Stands = tuple[int, str, bool]
"""Revision, content, whether final."""


@pytest.mark.parametrize(
    ("first", "second", "result", "stands"),
    [
        ((5, False, "a"), (5, False, "a"), Result.UNCHANGED, (1, "a", False)),
        ((5, False, "a"), (5, False, "b"), Result.WRITTEN, (2, "b", False)),
        ((5, False, "a"), (4, False, "b"), Result.LATER_STANDS, (1, "a", False)),
        ((5, False, "a"), (4, True, "b"), Result.LATER_STANDS, (1, "a", False)),
        ((5, False, "a"), (6, False, "b"), Result.WRITTEN, (2, "b", False)),
        ((9, False, "a"), (10, False, "b"), Result.WRITTEN, (2, "b", False)),
        ((10, False, "a"), (9, False, "b"), Result.LATER_STANDS, (1, "a", False)),
        ((2**53, False, "a"), (2**53 + 1, False, "b"), Result.WRITTEN, (2, "b", False)),
        ((2**53 + 1, False, "a"), (2**53, False, "b"), Result.LATER_STANDS, (1, "a", False)),
        ((5, False, "a"), (5, True, "a"), Result.WRITTEN, (2, "a", True)),
        ((5, True, "a"), (5, True, "a"), Result.UNCHANGED, (1, "a", True)),
        ((5, True, "a"), (6, True, "b"), Result.WRITTEN, (2, "b", True)),
        ((5, True, "a"), (4, False, "b"), Result.LATER_STANDS, (1, "a", True)),
        ((5, True, "a"), (5, False, "a"), Result.FINAL_STANDS, (1, "a", True)),
        ((5, True, "a"), (6, False, "b"), Result.FINAL_STANDS, (2, "b", True)),
    ],
)
def test_of_two_publishers_the_later_reader_wins(
    valkey: Valkey, published: Published, *, first: _Text, second: _Text, result: Result, stands: _Stands
) -> None:
    """By n, whoever writes last; final stays final; the revision counts changes of content and nothing else."""
    results = [
        published.publish(PLACE, [_draft(n, final=final, text=text)], watermark)
        for (n, final, text), watermark in zip((first, second), WATERMARKS, strict=False)
    ]
    assert results == [[Result.WRITTEN], [result]]
    document = _document(valkey)
    assert (document["revision"], document["text"], document["final"]) == stands
    changed = 1 if stands[0] == 2 else 0
    assert document["watermark"] == f"2026-11-29T{changed:02}:00:00Z"
    assert _open(valkey) == ([] if first[1] else [(f"1:{DAY}", CLOSES.timestamp())])


def test_revisions_are_counted_for_each_estimate(valkey: Valkey, published: Published) -> None:
    """Several in one call; only those whose content changed get a new revision."""
    fields = ("*", "os=linux", "os=macos")
    for number, texts in enumerate((("a", "a", "a"), ("b", "a", "b"), ("b", "a", "c"))):
        drafts = [_draft(5, field=field, text=text) for field, text in zip(fields, texts, strict=True)]
        published.publish(PLACE, drafts, WATERMARKS[number])
    assert [_document(valkey, field)["revision"] for field in fields] == [2, 1, 3]


def test_a_window_with_an_open_estimate_is_not_closed(valkey: Valkey, published: Published) -> None:
    """Another publisher may have added a cell meanwhile: the window stays due, for every estimate of it."""
    published.publish(PLACE, [_draft(5, final=True), _draft(3, final=True, field="os=linux")], WATERMARKS[0])
    published.publish(PLACE, [_draft(2, field="os=macos")], WATERMARKS[0])
    assert published.close(PLACE) is False
    assert [found.key for found in published.open_windows(CLOSES)] == [("dark_mode", 1, DAY)]
    assert published.open_windows(WATERMARKS[5]) == []
    published.publish(PLACE, [_draft(2, final=True, field="os=macos")], WATERMARKS[1])
    assert published.close(PLACE) is True
    assert published.open_windows() == []


def test_the_total_of_a_window_is_kept_with_its_final_estimate_alone(
    valkey: Valkey, published: Published
) -> None:
    """Not with an open one, nor with one that was refused; with one that becomes final because that stands."""
    key = storage.totals_key("dark_mode", 1)
    for n, final, kept in ((5, False, None), (5, True, 5), (4, True, 5), (6, False, 6)):
        total = encode_cell(n, [0, n])
        published.publish(PLACE, [_draft(n, final=final, text=str(n))], WATERMARKS[0], total)
        found = valkey.client().hget(key, DAY)
        assert (found and storage.decode_cell(found)[0]) == kept


def test_an_estimate_is_taken_back(valkey: Valkey, published: Published) -> None:
    """What can be combined no longer is gone for readers; when it comes back its revision goes on."""
    place = Place("dark_mode", COMBINED, PLACE.window, CLOSES)
    taken_back = Draft("*", 6, final=False, document=None)
    for draft, result in (
        (_draft(5), Result.WRITTEN),
        (taken_back, Result.WRITTEN),
        (taken_back, Result.UNCHANGED),
    ):
        assert published.publish(place, [draft], WATERMARKS[0]) == [result]
    assert published_estimates(valkey, "dark_mode", COMBINED) == {}
    published.publish(place, [_draft(7)], WATERMARKS[0])
    (document,) = published_estimates(valkey, "dark_mode", COMBINED).values()
    assert document["revision"] == 3


def test_what_never_was_is_not_taken_back(valkey: Valkey, published: Published) -> None:
    """Nothing is written."""
    before = valkey.dump()
    draft = Draft("*", 6, final=False, document=None)
    assert published.publish(PLACE, [draft], WATERMARKS[0]) == [Result.UNCHANGED]
    assert valkey.dump() == before


@pytest.fixture
def definitions(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> Definitions:
    """Read anew at each refresh."""
    monkeypatch.setattr("dither_estimator.definitions.DEFINITIONS_AGE_S", -1.0)
    return Definitions(Store(valkey.url))


@pytest.fixture
def publisher(
    valkey: Valkey, registry: Registry, definitions: Definitions, monkeypatch: pytest.MonkeyPatch
) -> Publisher:
    """Of a store in which two metrics have been counted and not published; what has to wait waits no time."""
    monkeypatch.setattr("dither_estimator.faults.HOLD_S", 0.0)
    monkeypatch.setattr("dither_estimator.publisher.CLOSING_INTERVAL_S", 0.0)
    append_entry(valkey, 0, dark_entry(1, 0, window=day()))
    cells = [(_color(system), [b"\x01"] * n) for system, n in (("linux", 3), ("macos", 2))]
    append_entry(valkey, 1, encode_entry(cells))
    store = Store(valkey.url)
    Worker(store).count()
    return Publisher(store, definitions)


WEEK = "2026-W40"


def _color(system: str) -> str:
    return Cell("color", 2, WEEK, (("os", system),)).name


def _fields(valkey: Valkey) -> list[str]:
    found = [*published_estimates(valkey, "color", 2), *published_estimates(valkey, "dark_mode", 1)]
    return sorted(field.partition("|")[2] for field in found)


def _marked(valkey: Valkey) -> list[str]:
    client = valkey.client(decode=True)
    return sorted(name for p in range(PARTITIONS) for name in client.hkeys(partition_keys(p).dirty))


@pytest.mark.parametrize(
    "damage",
    [
        encode_cell(1, [9, 0, 0, 0, 0]),
        encode_cell(9, [1, 1]),
        b"damaged",
        encode_cell(1, [0] * 5)[:-1] + b"\xff",
    ],
    ids=["n below a counter", "another size", "no cell", "a negative counter"],
)
def test_a_damaged_cell_costs_what_contains_it_and_nothing_else(
    valkey: Valkey, publisher: Publisher, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    """The other cells and metrics are published, it is said once, and repaired it is made up for."""
    client, key = valkey.client(), partition_keys(1).cell(_color("linux"))
    sound = client.get(key)
    client.set(key, damage)
    for _ in range(3):
        assert publisher.publish(PARTITIONS, 60) is False
    assert _fields(valkey)[-1:] == ["os=macos"]
    assert "os=linux" not in _fields(valkey)
    assert _marked(valkey) == [_color("linux"), _color("macos")]
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert 1 <= len(said) <= 2
    assert WEEK in said[0].getMessage()
    client.set(key, sound)
    publisher.publish(PARTITIONS, 60)
    assert (_fields(valkey), _marked(valkey)) == (["*", "*", "os=linux", "os=macos"], [])
    assert published_estimates(valkey, "color", 2)[f"{WEEK}|*"]["n"] == 5
    assert published_estimates(valkey, "color", 2)[f"{WEEK}|*"]["final"] is True


@pytest.mark.parametrize(
    "mark",
    [
        "",
        "dark_mode",
        "dark_mode:1:yesterday:",
        "unheard_of:1:2026-11-29:",
        "dark_mode:1:2026-11-29:os=linux",
    ],
)
def test_a_mark_that_leads_nowhere_is_left_where_it_is(
    valkey: Valkey, publisher: Publisher, caplog: pytest.LogCaptureFixture, mark: str
) -> None:
    """No cell's name, no window's label, no metric's: it stops nothing, and is said once."""
    valkey.client().hset(partition_keys(2).dirty, mark, "not-an-id")
    for _ in range(3):
        assert publisher.publish(PARTITIONS, 60) is False
    assert _fields(valkey) == ["*", "*", "os=linux", "os=macos"]
    left = [] if "os=" in mark else [mark]  # that cell does not exist: there is nothing to publish
    assert _marked(valkey) == left
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == len(left)


@pytest.mark.parametrize(
    "member", ["", "1", "one:2026-11-29", "1:yesterday", "7:2026-11-29", f"{COMBINED}:2026-11-29", "-1:x"]
)
def test_an_open_window_that_leads_nowhere_stops_no_other(
    valkey: Valkey, publisher: Publisher, member: str
) -> None:
    """No version's, no label, nothing combined: the others close."""
    valkey.client().zadd(storage.open_key("color"), {member: 0.0})
    valkey.client().hset(storage.estimates_key("color", 2, WEEK), "no dimensions", "{}")
    for _ in range(2):
        assert publisher.publish(PARTITIONS, 60) is False
    assert published_estimates(valkey, "color", 2)[f"{WEEK}|os=linux"]["final"] is True
    assert published_estimates(valkey, "dark_mode", 1)[f"{day()}|*"]["n"] == 2


def test_a_definition_that_cannot_be_read_costs_its_own_estimates(
    valkey: Valkey,
    definitions: Definitions,
    publisher: Publisher,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The metric waits, the others are published; when it can be read again, it is published too."""
    client, key = valkey.client(), storage.metric_key("color", 2)
    sound = client.get(key)
    client.set(key, b"{damaged")
    for _ in range(2):
        definitions.refresh()
        assert publisher.publish(PARTITIONS, 60) is False
    assert _fields(valkey) == ["*"]
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1
    client.set(key, sound)
    definitions.refresh()
    publisher.publish(PARTITIONS, 60)
    assert (_fields(valkey), _marked(valkey)) == (["*", "*", "os=linux", "os=macos"], [])


def test_what_is_damaged_waits_before_it_is_tried_again(
    valkey: Valkey, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at every tick: meanwhile its window is not read, and nothing else waits."""
    monkeypatch.setattr("dither_estimator.faults.HOLD_S", 3_600.0)
    client, key = valkey.client(), partition_keys(1).cell(_color("linux"))
    sound = client.get(key)
    client.set(key, b"damaged")
    publisher.publish(PARTITIONS, 60)
    client.set(key, sound)
    append_entry(valkey, 0, dark_entry(1, window=day()))
    Worker(Store(valkey.url)).count()
    publisher.publish(PARTITIONS, 60)
    assert published_estimates(valkey, "dark_mode", 1)[f"{day()}|*"]["n"] == 3
    assert "os=linux" not in _fields(valkey)
