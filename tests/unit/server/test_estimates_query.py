"""Queries for estimates: pages, cursors, levels."""

import pytest

from dither_server.estimates_query import EstimatesQuery
from dither_server.problems import Problem


def _read(name: str = "browser", **query: str) -> EstimatesQuery:
    return EstimatesQuery.read(name, query)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"level": "0.5"}, "level"),
        ({"level": "1"}, "level"),
        ({"level": "1.0"}, "level"),
        ({"level": "0.4999"}, "level"),
        ({"level": "-0.9"}, "level"),
        ({"level": "nan"}, "level"),
        ({"level": "9e-1"}, "level"),
        ({"level": "0.٩"}, "level"),
        ({"level": "0." + "9" * 100}, "level"),
        ({"level": ""}, "level"),
        ({"simultaneous": "1"}, "simultaneous"),
        ({"simultaneous": ""}, "simultaneous"),
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"limit": "٣"}, "limit"),
        ({"limit": "9" * 10_000}, "limit"),
        ({"cursor": ""}, "cursor"),
        ({"cursor": "é"}, "cursor"),
        ({"cursor": "A" * 16}, "cursor"),
        ({"cursor": "A" * 1_000}, "cursor"),
        ({"confidence": "0.9"}, "confidence"),
        ({"from": "2026-11-30T00:00:00Z", "to": "2026-11-30T00:00:00Z"}, "from"),
        ({"from": "2026-11-30T01:00:00+01:00", "to": "2026-11-29"}, "from"),
        ({"from": "2026-11-30T25:00:00Z"}, "from"),
        ({"from": "2026-02-30T00:00:00Z"}, "from"),
        ({"from": "0001-01-01T00:00:00+23:00"}, "from"),
        ({"from": "2026-11-30T00:00:00"}, "from"),
        ({"to": "2026-11-30 00:00:00Z"}, "to"),
    ],
)
def test_what_is_not_understood_names_its_parameter(query: dict[str, str], field: str) -> None:
    """Nothing is guessed or left out."""
    with pytest.raises(Problem) as caught:
        _read(**query)
    assert (caught.value.type, caught.value.field) == ("query-invalid", field)


@pytest.mark.parametrize(
    ("query", "scores"),
    [
        ({"from": "1970-01-02T00:00:00Z"}, ("86400", "+inf")),
        ({"from": "1970-01-02T00:00:00.25Z"}, ("86401", "+inf")),
        ({"to": "1970-01-02T00:00:00Z"}, ("-inf", "(86400")),
        ({"to": "1970-01-02T00:00:00.25z"}, ("-inf", "(86401")),
        ({"from": "1970-01-02t01:30:00+01:30", "to": "1970-01-02"}, ("86400", "(172800")),
    ],
)
def test_instants_bound_the_starts_of_windows(query: dict[str, str], scores: tuple[str, str]) -> None:
    """The first is included, the last is not; a label includes its whole window."""
    assert _read(**query).selection.scores == scores


def test_a_cursor_continues_its_own_query_and_no_other() -> None:
    """Another metric, range, cell, level or kind of interval is another query; another size of pages is the same."""
    asked = {"from": "2026-11-01", "dimensions": "os=linux"}
    cursor = _read(**asked, limit="2").cursor("2026-11-29")
    assert cursor is not None
    found = _read(**asked, limit="5", cursor=cursor).selection
    assert (found.after, found.limit) == ("2026-11-29", 5)
    assert found.scores == ("1795910400", "+inf")
    others = [
        {"from": "2026-11-02"}, {"to": "2026-12-31"}, {"dimensions": "*"}, {"level": "0.9"},
        {"simultaneous": "true"}, {"from": "2026-11-01", "rollup": "7", "dimensions": "*"},
    ]  # fmt: skip
    for other in others:
        with pytest.raises(Problem) as caught:
            _read(**(asked | other), cursor=cursor)
        assert caught.value.field == "cursor"
    with pytest.raises(Problem):
        EstimatesQuery.read("toolbar", asked | {"cursor": cursor})


def test_after_the_last_page_there_is_no_cursor() -> None:
    """And ``once`` has one like any other window."""
    query = _read()
    assert query.cursor(None) is None
    assert _read(cursor=str(query.cursor("once"))).selection.after == "once"


def test_a_made_up_window_in_a_cursor_is_refused() -> None:
    """A cursor is not signed: what it names is read as strictly as a parameter."""
    for label in ("2026-13-01", "*", "", "once "):
        with pytest.raises(Problem):
            _read(cursor=str(_read().cursor(label)))


def test_the_published_level_asks_for_nothing_new() -> None:
    """However it is written."""
    assert _read().intervals.as_published
    assert _read(level="0.950", simultaneous="false").intervals.as_published
    assert not _read(level="0.9").intervals.as_published
    assert not _read(simultaneous="true").intervals.as_published
