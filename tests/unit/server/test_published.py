"""The answer to a query for estimates: in order, untouched, and how versions go together."""

import json

import msgspec
import pytest

from dither_protocol.registry import encode_definition, registry_from_document
from dither_server.published import estimates_document
from dither_server.store_rules import Published, PublishedVersion

DEFINITION = b'{"name":"m","params":"0123abcd","table":{}}'


def test_documents_come_in_the_order_of_windows_and_dimensions():
    """Whatever the order in which they were read."""
    names = [("2026-11-30", ""), ("2026-11-28", "os=a"), ("2026-11-28", "*"), ("2026-11-29", "os=b")]
    versions = [PublishedVersion(1, DEFINITION, {name: "|".join(name).encode() for name in names})]
    (version,) = estimates_document("m", Published(versions))["versions"]
    assert [bytes(document).decode() for document in version["estimates"]] == [
        "2026-11-28|*",
        "2026-11-28|os=a",
        "2026-11-29|os=b",
        "2026-11-30|",
    ]


def test_versions_stand_side_by_side():
    """Each version has its params and its own estimates, as the estimator wrote them."""
    document = b'{ "n" : 1.50 }'
    versions = [
        PublishedVersion(1, DEFINITION, {("2026-11", ""): document}),
        PublishedVersion(2, DEFINITION, {}),
    ]
    text = msgspec.json.encode(estimates_document("m", Published(versions)))
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


def _two_versions(second, *, own=True, other=True, combined=True, rollup=False):
    """The answer where the versions have an estimate of one day, and both together another, as far as they are True."""

    def estimates(text, there):
        return {("2026-11-29", "*"): text} if there else {}

    versions = [
        PublishedVersion(1, _definition(1), estimates(b'"1"', own)),
        PublishedVersion(2, second, estimates(b'"2"', other)),
    ]
    published = Published(versions, estimates(b'"both"', combined))
    return json.loads(msgspec.json.encode(estimates_document("m", published, rollup=rollup)))


def test_versions_of_one_question_are_combined_beside_their_own_estimates():
    """Another mechanism and epsilon make no other question."""
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
    """A version with other labels does not touch a range that it has no estimates in."""
    other = _definition(2, categories=["x", "y"])
    for own, rule in ((False, "single-version"), (True, "side-by-side")):
        answer = _two_versions(other, own=own)
        assert answer["combination"]["rule"] == rule
        assert answer["combined"] == []
    nothing = _two_versions(other, own=False, other=False, combined=False)["combination"]
    assert nothing == {"rule": "single-version", "reason": "no version has estimates here"}


def test_the_reason_says_where_nothing_was_combined():
    """The versions go together, but no window has a combined estimate."""
    answer = _two_versions(_definition(2, mechanism="grr"), combined=False)
    assert (answer["combined"], answer["combination"]["rule"]) == ([], "weighted-by-n")
    assert "no window here is combined" in answer["combination"]["reason"]


def test_a_rollup_may_contain_a_version_that_has_none_of_its_own_here():
    """Its reports are of earlier windows: the combined estimate is shown, and the reason says why."""
    second = _definition(2, mechanism="grr")
    answer = _two_versions(second, own=False, rollup=True)
    assert (answer["combined"], answer["combination"]["rule"]) == (["both"], "weighted-by-n")
    assert "other versions" in answer["combination"]["reason"]
    for changes in ({"rollup": False}, {"combined": False}):
        answer = _two_versions(second, **({"own": False, "rollup": True} | changes))
        assert (answer["combined"], answer["combination"]["rule"]) == ([], "single-version")
