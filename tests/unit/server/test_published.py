"""Published estimates: chosen by window and dimensions, in order, untouched."""

import msgspec
import pytest

from dither_server.problems import Problem
from dither_server.published import Selection, version_documents
from dither_server.store_rules import PublishedVersion

DEFINITION = b'{"name":"m","params":"0123abcd","table":{}}'


def _fields(estimates, **query):
    versions = [PublishedVersion(1, DEFINITION, {field: field.encode() for field in estimates})]
    (version,) = version_documents(versions, Selection.from_query(query))
    return [bytes(document).decode() for document in version["estimates"]]


DAYS = [
    "2026-11-30|",
    "2026-11-28|os=a",
    "2026-11-28|*",
    "2026-11-29|os=a",
    "2026-11-29|os=b",
    "n|2026-11-29|os=b",
]


def test_documents_come_in_the_order_of_windows_and_dimensions():
    """Estimates are sorted, and the worker's own fields are left out."""
    assert _fields(DAYS) == [
        "2026-11-28|*",
        "2026-11-28|os=a",
        "2026-11-29|os=a",
        "2026-11-29|os=b",
        "2026-11-30|",
    ]


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ({"from": "2026-11-29", "to": "2026-11-29"}, ["2026-11-29|os=a", "2026-11-29|os=b"]),
        ({"from": "2026-11-30"}, ["2026-11-30|"]),
        ({"to": "2026-11-28"}, ["2026-11-28|*", "2026-11-28|os=a"]),
        ({"from": "2026-12"}, []),
        ({"to": "2026-11", "dimensions": "os=a"}, ["2026-11-28|os=a", "2026-11-29|os=a"]),
        ({"dimensions": "*"}, ["2026-11-28|*"]),
        ({"dimensions": ""}, ["2026-11-30|"]),
        ({"dimensions": "os=c"}, []),
    ],
)
def test_a_range_includes_both_ends(query, chosen):
    """``from`` and ``to`` are windows of any period, both included; dimensions are matched whole."""
    assert _fields(DAYS, **query) == chosen


def test_dimensions_may_come_in_any_order_and_spelling():
    """The order of names and needless percent signs do not matter."""
    assert _fields(["2026-11|a=1,b=x%2Cy"], dimensions="b=x%2Cy,a=%31") == ["2026-11|a=1,b=x%2Cy"]


def test_a_day_takes_its_hours_and_a_week_the_days_that_begin_in_it():
    """A bound of a longer period covers the windows that begin inside it."""
    hours = ["2026-11-28T23|", "2026-11-29T00|", "2026-11-29T23|", "2026-11-30T00|"]
    assert _fields(hours, **{"from": "2026-11-29", "to": "2026-11-29"}) == hours[1:3]
    assert _fields(["2026-11-23|", "2026-11-29|", "2026-11-30|"], to="2026-W48") == [
        "2026-11-23|",
        "2026-11-29|",
    ]


def test_once_lies_in_every_range():
    """The one window of a ``once`` metric is never filtered out."""
    assert _fields(["once|"], **{"from": "2026-11-29", "to": "2026-11-29"}) == ["once|"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": ""}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"to": "2026-11-31"}, "to"),
        ({"to": "once"}, "to"),
        ({"to": "2026-11-29" * 1_000}, "to"),
        ({"dimensions": "linux"}, "dimensions"),
    ],
)
def test_a_query_that_is_not_understood_names_its_parameter(query, field):
    """A wrong parameter is refused, not ignored."""
    with pytest.raises(Problem) as caught:
        Selection.from_query(query)
    assert (caught.value.type, caught.value.field) == ("query-invalid", field)


def test_versions_stand_side_by_side():
    """Each version has its params and its own estimates, as the estimator wrote them."""
    document = b'{ "n" : 1.50 }'
    versions = [PublishedVersion(1, DEFINITION, {"2026-11|": document}), PublishedVersion(2, DEFINITION, {})]
    text = msgspec.json.encode(version_documents(versions, Selection()))
    assert text == (
        b'[{"version":1,"params":"0123abcd","estimates":[' + document + b"]},"
        b'{"version":2,"params":"0123abcd","estimates":[]}]'
    )
