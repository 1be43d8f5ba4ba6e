"""Reading published estimates from a store: those asked for, and no others."""

import pytest

from dither_protocol.storage import (
    COMBINED,
    companion_field,
    estimates_key,
    metric_key,
    published_key,
    published_member,
    rollups_key,
    versions_key,
)
from dither_protocol.windows import parse_window
from dither_server.reading import read_published
from dither_server.selection import ONCE_SCORE, read_selection

DEFINITION = b'{"name":"m","params":"0123abcd","table":{}}'
DAYS = [
    ("2026-11-30", ""),
    ("2026-11-28", "os=a"),
    ("2026-11-28", "*"),
    ("2026-11-29", "os=a"),
    ("2026-11-29", "os=b"),
]


def _score(label):
    """As the worker writes it."""
    if label == "once":
        return ONCE_SCORE
    period = {13: "hour", 10: "day", 8: "week", 7: "month"}[len(label)]
    return parse_window(period, label).start.timestamp()


@pytest.fixture
def redis(store):
    """A store that holds nothing but one version of the metric ``m``."""
    with store.client() as client:
        client.flushall()
        client.set(metric_key("m", 1), DEFINITION)
        client.sadd(versions_key("m"), 1)
        yield client


def _chosen(redis, names, **query):
    """The names, in order, of the documents that a query finds among these."""
    for label, field in names:
        document = {field: f"{label}|{field}", companion_field(field): "9 0 1"}
        redis.hset(estimates_key("m", 1, label), mapping=document)
        redis.zadd(published_key("m"), {published_member(1, label): _score(label)})
    (version,) = read_published(redis, "m", read_selection(query)).versions
    assert all(document.decode() == "|".join(name) for name, document in version.estimates.items())
    return sorted(version.estimates)


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ({}, sorted(DAYS)),
        ({"from": "2026-11-29", "to": "2026-11-29"}, [("2026-11-29", "os=a"), ("2026-11-29", "os=b")]),
        ({"from": "2026-11-30"}, [("2026-11-30", "")]),
        ({"to": "2026-11-28"}, [("2026-11-28", "*"), ("2026-11-28", "os=a")]),
        ({"from": "2026-12"}, []),
        ({"from": "2026-11-30", "to": "2026-11"}, [("2026-11-30", "")]),
        ({"to": "2026-11", "dimensions": "os=a"}, [("2026-11-28", "os=a"), ("2026-11-29", "os=a")]),
        ({"dimensions": "*"}, [("2026-11-28", "*")]),
        ({"dimensions": ""}, [("2026-11-30", "")]),
        ({"dimensions": "os=c"}, []),
    ],
)
def test_a_range_includes_both_ends(redis, query, chosen):
    """``from`` and ``to`` are windows of any period, both included; dimensions are matched whole."""
    assert _chosen(redis, DAYS, **query) == chosen


def test_dimensions_may_come_in_any_order_and_spelling(redis):
    """The order of names and needless percent signs do not matter."""
    name = ("2026-11", "a=1,b=x%2Cy")
    assert _chosen(redis, [name], dimensions="b=x%2Cy,a=%31") == [name]


def test_a_day_takes_its_hours_and_a_week_the_days_that_begin_in_it(redis):
    """A bound of a longer period covers the windows that begin inside it."""
    hours = [(hour, "") for hour in ("2026-11-28T23", "2026-11-29T00", "2026-11-29T23", "2026-11-30T00")]
    assert _chosen(redis, hours, **{"from": "2026-11-29", "to": "2026-11-29"}) == hours[1:3]


def test_a_week_takes_the_days_that_begin_in_it(redis):
    """Monday to Sunday, and not the Monday after."""
    days = [(day, "") for day in ("2026-11-23", "2026-11-29", "2026-11-30")]
    assert _chosen(redis, days, to="2026-W48") == days[:2]


@pytest.mark.parametrize("query", [{}, {"from": "2026-11-29", "to": "2026-11-29"}, {"to": "1999-12"}])
def test_once_lies_in_every_range(redis, query):
    """The one window of a ``once`` metric is never filtered out, and comes once."""
    assert _chosen(redis, [("once", "")], **query) == [("once", "")]


def test_a_metric_that_was_never_announced_has_nothing(redis):
    """No versions, no error."""
    assert read_published(redis, "other", read_selection({})).versions == ()


def _rollups(redis, version, size, *labels):
    """Put rollups where the worker does."""
    for label in labels:
        document = {label: f"{version}|{size}|{label}", companion_field(label): "9 1 1"}
        redis.hset(rollups_key("m", version, size), mapping=document)


def test_rollups_are_chosen_by_their_last_window(redis):
    """In the range, of that size and no other; those over several versions beside each version's own."""
    redis.set(metric_key("m", 2), DEFINITION)
    redis.sadd(versions_key("m"), 2)
    days = ["2026-11-28", "2026-11-29", "2026-11-30"]
    for version, label in ((1, days[0]), (1, days[1]), (2, days[2]), (COMBINED, days[0])):
        redis.zadd(published_key("m"), {published_member(version, label): _score(label)})
    redis.zadd(published_key("m"), {published_member(1, "once"): ONCE_SCORE})
    _rollups(redis, 1, 7, days[0], days[1])
    _rollups(redis, 1, 28, days[0])
    _rollups(redis, 2, 7, days[2])
    _rollups(redis, COMBINED, 7, days[1], days[2])
    query = {"rollup": "7", "from": "2026-11-29"}
    found = read_published(redis, "m", read_selection(query))
    assert [version.estimates for version in found.versions] == [
        {(days[1], "*"): b"1|7|2026-11-29"},
        {(days[2], "*"): b"2|7|2026-11-30"},
    ]
    assert found.combined == {
        (days[1], "*"): b"combined|7|2026-11-29",
        (days[2], "*"): b"combined|7|2026-11-30",
    }
    nothing = read_published(redis, "m", read_selection({"rollup": "90"}))
    assert [version.estimates for version in nothing.versions] == [{}, {}]
    assert read_published(redis, "m", read_selection({"rollup": "7", "from": "2027-01"})).combined == {}


def test_a_query_reads_nothing_that_it_does_not_ask_for(redis):
    """Of ten windows by three dimensions one document; the rest stays in the store."""
    names = [(f"2026-11-{day:02}", f"os={os}") for day in range(1, 11) for os in "abc"]
    _chosen(redis, names)
    redis.config_resetstat()
    query = {"from": "2026-11-05", "to": "2026-11-05", "dimensions": "os=b"}
    found = read_published(redis, "m", read_selection(query))
    assert list(found.versions[0].estimates) == [("2026-11-05", "os=b")]
    stats = redis.info("commandstats")
    assert stats["cmdstat_hmget"]["calls"] == 1
    assert not {"cmdstat_hgetall", "cmdstat_hkeys"} & set(stats)
