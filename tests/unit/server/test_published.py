"""Published estimates: chosen by window and dimensions, in order, untouched."""

import json

import msgspec
import pytest

from dither_protocol.registry import encode_definition, registry_from_document
from dither_server.problems import Problem
from dither_server.published import Selection, estimates_document
from dither_server.store_rules import Published, PublishedVersion

DEFINITION = b'{"name":"m","params":"0123abcd","table":{}}'


def _fields(estimates, **query):
    versions = [PublishedVersion(1, DEFINITION, {field: field.encode() for field in estimates})]
    (version,) = estimates_document("m", Published(versions), Selection.from_query(query))["versions"]
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
        ({"from": "2026-11-30", "to": "2026-11"}, ["2026-11-30|"]),
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
        ({"dimension": "os=linux"}, "dimension"),
        ({"from": "2026-11-29", "form": "2026-11-29"}, "form"),
        ({"<script>": ""}, "query"),
        ({"x" * 33: ""}, "query"),
        ({"from": "2026-11-30", "to": "2026-11-29"}, "from"),
        ({"from": "2026-12", "to": "2026-11-30"}, "from"),
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
    text = msgspec.json.encode(estimates_document("m", Published(versions), Selection()))
    assert text == (
        b'{"metric":"m","versions":[{"version":1,"params":"0123abcd","estimates":[' + document + b"]},"
        b'{"version":2,"params":"0123abcd","estimates":[]}],"combined":[],'
        b'"combination":{"rule":"single-version","reason":"one version has estimates here"}}'
    )


def _definition(version, **changes):
    table = {
        "version": version,
        "type": "categorical",
        "description": "m",
        "categories": ["a", "b", "c"],
        "epsilon": 1.0,
        "mechanism": "oue",
    } | changes
    document = {"schema": 1, "project": "p", "metrics": {"m": table}}
    return encode_definition(registry_from_document(document), "m").encode()


def _two_versions(second, fields=("2026-11-29|*",), combined=("2026-11-29|*",), **query):
    """The answer where version 1 has an estimate of 2026-11-29 and version 2 those of ``fields``."""
    versions = [
        PublishedVersion(1, _definition(1), {"2026-11-29|*": b'"1"', "n|2026-11-29|*": b"7"}),
        PublishedVersion(2, second, dict.fromkeys(fields, b'"2"')),
    ]
    joint = dict.fromkeys(combined, b'"both"') | {f"n|{field}": b"9" for field in combined}
    answer = estimates_document("m", Published(versions, joint), Selection.from_query(query))
    return json.loads(msgspec.json.encode(answer))


def test_versions_of_one_question_are_combined_beside_their_own_estimates():
    """Another mechanism and epsilon make no other question; the worker's own fields are left out."""
    answer = _two_versions(_definition(2, mechanism="grr", epsilon=2.0))
    assert answer["combined"] == ["both"]
    assert answer["combination"] == {
        "rule": "weighted-by-n",
        "reason": "the versions have the same labels and period",
    }
    assert [version["estimates"] for version in answer["versions"]] == [["1"], ["2"]]


@pytest.mark.parametrize(
    ("second", "word"),
    [
        (_definition(2, categories=["a", "b", "d"]), "labels"),
        (_definition(2, categories=["b", "a", "c"]), "labels"),
        (_definition(2, period="hour"), "period"),
        (DEFINITION, "cannot be read"),
    ],
)
def test_versions_of_different_questions_stand_side_by_side(second, word):
    """Other labels, another order of them, another period or an unreadable definition: nothing is combined."""
    answer = _two_versions(second)
    assert answer["combination"]["rule"] == "side-by-side"
    assert word in answer["combination"]["reason"]
    assert answer["combined"] == []
    assert [version["estimates"] for version in answer["versions"]] == [["1"], ["2"]]


def test_only_versions_with_estimates_in_the_range_decide():
    """A later version with other labels does not touch a range that it has no estimates in."""
    other = _definition(2, categories=["x", "y"])
    for days, rule in (("2026-11-29", "single-version"), ("2026-11-30", "side-by-side")):
        answer = _two_versions(other, fields=["2026-11-30|*"], to=days)
        assert answer["combination"]["rule"] == rule
        assert answer["combined"] == []
    nothing = _two_versions(other, **{"from": "2026-12"})["combination"]
    assert nothing == {"rule": "single-version", "reason": "no version has estimates here"}


def test_combined_estimates_are_selected_like_the_others():
    """Range and dimensions choose among them; where none is left the reason says so."""
    same = _definition(2, mechanism="grr")
    assert _two_versions(same, dimensions="*")["combined"] == ["both"]
    later = _two_versions(same, combined=["2026-11-28|*"], **{"from": "2026-11-29"})
    assert (later["combined"], later["combination"]["rule"]) == ([], "weighted-by-n")
    assert "no window here is combined" in later["combination"]["reason"]
    assert _two_versions(same, fields=["2026-11-29|os=a"], dimensions="os=a")["combined"] == []
