"""Admission: each reason, in its order; accounting; and whatever JSON may come."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol.errors import BatchError, BatchProblem, Rejection
from dither_protocol.registry import parse_registry
from dither_protocol.storage import decode_entry
from dither_protocol.wire import Envelope
from dither_server.admission import NOWHERE, admit
from dither_server.catalogue import Catalogue
from support.server import NOW, REGISTRY, TODAY, registry, report

CATALOGUE = Catalogue(registry())
ID = bytes(16)


def _admit(*reports, until=TODAY, now=NOW, catalogue=CATALOGUE):
    return admit(catalogue, Envelope(ID, until, reports), now)


def _groups(entry):
    return [(name, count, bytes(packed)) for name, _, count, packed in decode_entry(entry)]


def test_accepted_reports_are_grouped_by_cell():
    """Reports of one cell stand together in the entry, packed, in the order in which they came."""
    found = _admit(
        report(data=1),
        report("browser", 4),
        report(data=0),
        report("browser", 2, dimensions={"os": "windows"}),
    )
    assert (found.accepted, found.refusals, found.batch_id, found.until) == (4, (), ID, TODAY)
    assert _groups(found.entry) == [
        ("dark_mode:1:2126-11-29:", 2, b"\1\0\0\0\0\0\0\0"),
        ("browser:2:2126-11-29:os=linux", 1, b"\4\0\0\0"),
        ("browser:2:2126-11-29:os=windows", 1, b"\2\0\0\0"),
    ]
    assert found.outcomes == {
        ("dark_mode", "2126-11-29"): {"received": 2, "accepted": 2},
        ("browser", "2126-11-29"): {"received": 2, "accepted": 2},
    }


HERE = ("dark_mode", "2126-11-29")
REFUSED = [
    ([], Rejection.MALFORMED_REPORT, NOWHERE),
    ({}, Rejection.MALFORMED_REPORT, NOWHERE),
    (report(device="x"), Rejection.MALFORMED_REPORT, NOWHERE),
    (report(version=True), Rejection.MALFORMED_REPORT, NOWHERE),
    (report(metric="dark"), Rejection.UNKNOWN_METRIC, NOWHERE),
    (report(version=7), Rejection.UNKNOWN_VERSION, NOWHERE),
    (report("retired", window="2126-11-21"), Rejection.METRIC_EXPIRED, NOWHERE),
    (report("retired", window="2126-11-21", params="00000000"), Rejection.METRIC_EXPIRED, NOWHERE),
    (report(params="00000000"), Rejection.PARAMS_MISMATCH, HERE),
    (report(params="00000000", window="2000-01-01"), Rejection.PARAMS_MISMATCH, NOWHERE),
    (report(params="00000000", dimensions={"a": "b"}), Rejection.PARAMS_MISMATCH, HERE),
    (report(dimensions={"os": "linux"}), Rejection.DIMENSIONS_INVALID, HERE),
    (report("browser", dimensions={}), Rejection.DIMENSIONS_INVALID, ("browser", "2126-11-29")),
    (report("browser", dimensions={"os": "beos"}), Rejection.DIMENSIONS_INVALID, ("browser", "2126-11-29")),
    (report("browser", dimensions={"os": "\ud800"}), Rejection.DIMENSIONS_INVALID, ("browser", "2126-11-29")),
    (report("browser", dimensions={"os": "beos"}, window="x"), Rejection.DIMENSIONS_INVALID, NOWHERE),
    (report(window="2126-W48"), Rejection.WINDOW_INVALID, NOWHERE),
    (report(window="2126-11-31"), Rejection.WINDOW_INVALID, NOWHERE),
    (report(window="2126-11-30"), Rejection.REPORT_TOO_EARLY, NOWHERE),
    (report(window="2126-11-25"), Rejection.REPORT_TOO_OLD, NOWHERE),
    (report("toolbar", "AA", window="2126-11-29T11"), Rejection.REPORT_TOO_OLD, NOWHERE),
    (report(window="2126-11-25", data="?"), Rejection.REPORT_TOO_OLD, NOWHERE),
    (report(data=2), Rejection.PAYLOAD_INVALID, HERE),
    (report(data=-1), Rejection.PAYLOAD_INVALID, HERE),
    (report(data=True), Rejection.PAYLOAD_INVALID, HERE),
    (report(data=1.0), Rejection.PAYLOAD_INVALID, HERE),
    (report(data=None), Rejection.PAYLOAD_INVALID, HERE),
    (report(data=10**300), Rejection.PAYLOAD_INVALID, HERE),
    (report("toolbar", "AA"), Rejection.PAYLOAD_INVALID, ("toolbar", "2126-11-29T12")),
    (report("toolbar", "AAQ"), Rejection.PAYLOAD_INVALID, ("toolbar", "2126-11-29T12")),
    (report("toolbar", "AAR"), Rejection.PAYLOAD_INVALID, ("toolbar", "2126-11-29T12")),
]


OF_NO_VERSION = (Rejection.MALFORMED_REPORT, Rejection.UNKNOWN_METRIC, Rejection.UNKNOWN_VERSION)


@pytest.mark.parametrize(("bad", "reason", "bucket"), REFUSED)
def test_a_bad_report_is_refused_alone_and_accounted_for(bad, reason, bucket):
    """The first broken rule is the reason; the neighbours stay; hostile names and windows make no bucket."""
    found = _admit(report("first_use", 1), bad, report("first_use", 0))
    (refusal,) = found.refusals
    assert (refusal.index, refusal.rejection) == (1, reason)
    assert found.accepted == 2
    assert found.outcomes == {
        ("first_use", "once"): {"received": 2, "accepted": 2},
        bucket: {"received": 1, f"rejected:{reason}": 1},
    }
    assert found.refused == ({} if reason in OF_NO_VERSION else {(bad["metric"], bad["version"], reason): 1})
    assert _groups(found.entry) == [("first_use:1:once:", 2, b"\1\0\0\0\0\0\0\0")]


def test_every_reason_has_its_case():
    """The table above leaves out no rejection of the protocol."""
    assert {reason for _, reason, _ in REFUSED} == set(Rejection)


def test_a_refusal_names_the_key_and_not_the_value():
    """What a report said is not in the detail of its refusal."""
    secret = "s3cr3t"
    bad = [
        report(**{secret: 1}),
        report(metric=secret),
        report(params=secret),
        report(window=secret),
        report(dimensions={secret: secret}),
        report("browser", dimensions={"os": secret}),
        report(data=secret),
        report("toolbar", secret),
    ]
    refusals = _admit(*bad).refusals
    assert len(refusals) == len(bad)
    for refusal in refusals:
        assert secret not in refusal.detail
    assert [refusal.detail.partition(":")[0] for refusal in refusals] == [
        "report", "metric", "params", "window", "dimensions", "dimensions", "data", "data",
    ]  # fmt: skip


def test_a_batch_of_bad_reports_has_no_entry():
    """Where nothing is accepted there is nothing to append, and the accounting is whole."""
    found = _admit(report(metric="x"), report(metric="y"), report(data=9))
    assert (found.accepted, found.entry) == (0, b"")
    assert found.outcomes == {
        NOWHERE: {"received": 2, "rejected:unknown-metric": 2},
        HERE: {"received": 1, "rejected:payload-invalid": 1},
    }


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (datetime(2126, 11, 28, 23, 49, 59, tzinfo=UTC), Rejection.REPORT_TOO_EARLY),
        (datetime(2126, 11, 28, 23, 50, tzinfo=UTC), None),
        (datetime(2126, 12, 2, 23, 59, 59, 999_999, tzinfo=UTC), None),
        (datetime(2126, 12, 3, tzinfo=UTC), Rejection.REPORT_TOO_OLD),
    ],
)
def test_a_window_takes_reports_from_ten_minutes_before_until_late_days_after(now, reason):
    """Both ends of the time in which a day's reports are taken are exact."""
    found = _admit(report(window="2126-11-29"), until=date(2126, 12, 3), now=now)
    assert [refusal.rejection for refusal in found.refusals] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("until", "now", "problem"),
    [
        (TODAY - timedelta(days=1), NOW, BatchProblem.UNTIL_PAST),
        (date.min, NOW, BatchProblem.UNTIL_PAST),
        (TODAY, NOW, None),
        (TODAY, NOW.replace(hour=23, minute=59), None),
        (TODAY + timedelta(days=40), NOW, None),
        (TODAY + timedelta(days=41), NOW, BatchProblem.UNTIL_TOO_FAR),
        (TODAY + timedelta(days=41), NOW.replace(hour=23, minute=49), BatchProblem.UNTIL_TOO_FAR),
        (TODAY + timedelta(days=41), NOW.replace(hour=23, minute=50), None),
        (date.max, NOW, BatchProblem.UNTIL_TOO_FAR),
    ],
)
def test_until_is_between_today_and_forty_days_ahead(until, now, problem):
    """A batch is refused whole after its last day, and when its id would have to be kept for too long."""
    if problem is None:
        assert _admit(report(), until=until, now=now).accepted == 1
        return
    with pytest.raises(BatchError) as caught:
        _admit(report(), until=until, now=now)
    assert (caught.value.problem, caught.value.field) == (problem, "until")


def _changed(text, old, new):
    assert old in text
    return parse_registry(text.replace(old, new))


def test_an_older_version_is_accepted_beside_the_current_one():
    """A device that still has the earlier registry is heard, into a cell of its own."""
    head = "[metrics.dark_mode]\nversion = "
    newer = _changed(REGISTRY, f"{head}1", f"{head}2")
    catalogue = Catalogue(newer, [registry().metrics["dark_mode"]])
    new = {"version": 2, "params": newer.metrics["dark_mode"].params_hash}
    found = _admit(report(), report(**new), report(**(new | {"version": 1})), catalogue=catalogue)
    assert [name for name, _, _ in _groups(found.entry)] == [
        "dark_mode:1:2126-11-29:",
        "dark_mode:2:2126-11-29:",
    ]
    assert [refusal.rejection for refusal in found.refusals] == [Rejection.PARAMS_MISMATCH]


def test_an_older_version_of_a_metric_that_is_gone_is_not_accepted():
    """A metric that the registry no longer has is unknown, whatever the store remembers."""
    without = _changed(REGISTRY, "[metrics.dark_mode]", "[metrics.light_mode]")
    found = _admit(report(), catalogue=Catalogue(without, [registry().metrics["dark_mode"]]))
    assert [refusal.rejection for refusal in found.refusals] == [Rejection.UNKNOWN_METRIC]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
_near = st.fixed_dictionaries(
    {},
    optional={
        "metric": st.sampled_from(["dark_mode", "browser", "toolbar", "first_use", "retired"]) | _json,
        "version": st.sampled_from([1, 2]) | _json,
        "params": st.sampled_from([metric.params_hash for metric in registry()]) | _json,
        "window": st.sampled_from(["2126-11-29", "2126-11-29T12", "once"]) | _json,
        "dimensions": st.sampled_from([{}, {"os": "linux"}]) | _json,
        "data": st.sampled_from([0, "AAA"]) | _json,
    },
)


@given(st.lists(_json | _near, min_size=1, max_size=8))
def test_no_json_crashes_admission(reports):
    """Whatever JSON the reports are, each is accounted for exactly once, under a bucket of ours."""
    found = _admit(*reports)
    assert found.accepted + len(found.refusals) == len(reports)
    assert sum(counts["received"] for counts in found.outcomes.values()) == len(reports)
    assert sum(counts.get("accepted", 0) for counts in found.outcomes.values()) == found.accepted
    assert sum(count for _, count, _ in _groups(found.entry) or []) == found.accepted if found.entry else True
    names = {metric.name for metric in registry()}
    assert all(bucket == NOWHERE or bucket[0] in names for bucket in found.outcomes)
