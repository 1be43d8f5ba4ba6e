"""The comparison of the terms, and what of it is shown: pure arithmetic."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from dither_protocol.errors import StorageError
from dither_protocol.storage import UNKNOWN
from dither_protocol.windows import window_at
from dither_server.admission import NOWHERE
from dither_server.catalogue import Catalogue
from dither_server.conservation import (
    LISTED,
    RECENT,
    Conservation,
    Terms,
    View,
    damaged_account,
    ledger_document,
    read_account,
)
from dither_server.problems import Problem
from support.server import registry

NOW = datetime(2126, 11, 29, 12, 0, tzinfo=UTC)
BUCKET = ("dark_mode", "2126-11-29")
FIELDS = {
    b"received": 100,
    b"accepted": 70,
    b"counted": 50,
    b"duplicate": 10,
    b"rejected:payload-invalid": 15,
    b"rejected:params-mismatch": 5,
    b"dead": 8,
}
IN_FLIGHT = 12


def _account(changes=None, in_flight=IN_FLIGHT):
    return read_account({word: str(n).encode() for word, n in (FIELDS | (changes or {})).items()}, in_flight)


def _view(**query):
    return View.from_query(
        {name.rstrip("_"): value for name, value in query.items()}, Catalogue(registry()), NOW
    )


def test_every_term_of_an_account_is_read():
    """The words of the two scripts become terms, exactly; balanced books have no imbalance."""
    assert _account() == Terms(
        received=100,
        accepted=70,
        counted=50,
        duplicate=10,
        rejected={"payload-invalid": 15, "params-mismatch": 5},
        dead=8,
        in_flight=12,
        imbalance=0,
    )
    assert read_account({}, 0) == Terms()


@pytest.mark.parametrize("difference", [-3, -1, 1, 2**62])
@pytest.mark.parametrize("word", FIELDS)
def test_a_change_of_any_one_term_is_an_imbalance_of_its_size(word, difference):
    """No term is left out of the comparison, and none is counted twice."""
    assert _account({word: FIELDS[word] + difference}).imbalance == abs(difference)


@pytest.mark.parametrize("difference", [-12, -1, 1])
def test_what_is_in_flight_is_a_term_like_the_others(difference):
    """A lost entry, or one too many, is an imbalance of as many reports."""
    assert _account(in_flight=IN_FLIGHT + difference).imbalance == abs(difference)


def test_numbers_beyond_doubles_are_compared_exactly():
    """One report is missed among 2^62."""
    assert _account({b"received": 2**62, b"accepted": 2**62 - 30, b"counted": 2**62 - 50}).imbalance == 0
    assert _account({b"received": 2**62, b"accepted": 2**62 - 30, b"counted": 2**62 - 51}).imbalance == 1


@pytest.mark.parametrize(
    "fields",
    [{b"received": b"x"}, {b"received": b"1_0"}, {b"received": b""}, {b"word": b"1"}, {b"\xff": b"1"}],
)
def test_an_account_that_nobody_wrote_is_refused(fields):
    """A number that is none, and a word that no script writes."""
    with pytest.raises(StorageError):
        read_account(fields, 0)


def test_a_damaged_account_is_out_of_balance():
    """By one even where nothing is in flight: what cannot be read is not known to balance."""
    assert damaged_account(0) == Terms(imbalance=1)
    assert damaged_account(7) == Terms(in_flight=7, imbalance=7)


def test_a_surplus_never_makes_up_for_a_loss():
    """Two accounts that are out by +2 and -2 are out by 4, in the sum over partitions as well as over windows."""
    total = Conservation()
    for difference in (2, -2):
        part = Conservation({BUCKET: _account({b"counted": 50 + difference})})
        total.add(part)
    assert (total.imbalance, total.accounts[BUCKET].imbalance) == (4, 4)
    assert total.by_metric()["dark_mode"].imbalance == 4
    assert total.accounts[BUCKET].received == 200
    assert total.accounts[BUCKET].rejected == {"payload-invalid": 30, "params-mismatch": 10}


def test_a_damaged_key_of_no_account_counts_under_unknown():
    """The sum is not zero, and the key is named."""
    found = Conservation()
    found.damaged("dither:{p1}:outcomes")
    assert (found.imbalance, found.unreadable) == (1, ["dither:{p1}:outcomes"])
    assert found.accounts[NOWHERE].imbalance == 1


@pytest.mark.parametrize(
    ("metric", "window", "taken"),
    [
        ("dark_mode", "2126-11-29", True),
        ("dark_mode", "2126-11-19", True),  # over at the 20th, closed at the 23rd (late_days = 3)
        ("dark_mode", "2126-11-18", False),  # closed for seven days and twelve hours
        ("toolbar", "2126-11-22T12", True),  # late_days = 0
        ("toolbar", "2126-11-22T10", False),
        ("retired", "2126-10-24", True),  # late_days = 30
        ("dark_mode", "2126-W47", True),  # another version may have had another period
        ("first_use", "once", True),
        ("left", "2126-11-22", True),
        ("left", "2126-11-20", False),
        (UNKNOWN, UNKNOWN, True),
    ],
)
def test_the_usual_view_is_what_takes_reports_or_did_in_the_last_week(metric, window, taken):
    """Whatever is older and has reports in flight is in it, too."""
    assert _view().takes((metric, window)) is taken
    assert _view().takes_in_flight((metric, window))


def test_the_week_is_seven_days():
    """The bound of the view, to the second."""
    assert timedelta(days=7) == RECENT
    closed = datetime(2126, 11, 22, 12, 0, tzinfo=UTC)  # 22T11, late_days = 0
    for passed, taken in ((RECENT - timedelta(seconds=1), True), (RECENT, False)):
        view = View.from_query({}, Catalogue(registry()), closed + passed)
        assert view.takes(("toolbar", "2126-11-22T11")) is taken


@pytest.mark.parametrize("period", ["hour", "day", "week", "month"])
def test_no_label_before_the_least_is_in_the_usual_view(period):
    """So the store may leave those out; and it leaves out what is a little older, else it would be of no use."""
    draw = random.Random(period)  # noqa: S311  # times, no privacy
    for _ in range(500):
        now = NOW + timedelta(minutes=draw.randrange(3 * 525_600))
        late_days = {metric: draw.randrange(6) for metric in ("a", "b")}
        view = View(now, late_days)
        least = {len(label): label for label in view.least_labels}
        for _ in range(20):
            label = window_at(period, now - timedelta(hours=draw.randrange(24 * 90))).label
            if view.takes((draw.choice(("a", "b", "left")), label)):
                assert label >= least[len(label)]
        oldest = now - RECENT - timedelta(days=max(late_days.values()))
        before = window_at(period, window_at(period, oldest).start - timedelta(seconds=1))
        assert before.label < least[len(before.label)]
        assert not any(view.takes((metric, before.label)) for metric in ("a", "b", "left"))


def test_a_view_of_named_windows_leaves_none_out():
    """They may be as old as can be."""
    assert _view(from_="2026-11-01").least_labels == ()


def test_a_view_may_be_of_one_metric_or_of_a_range():
    """`from` and `to` are labels of any period, both included; what has no date lies in every range."""
    assert _view(metric="browser").takes(("browser", "2126-11-29"))
    assert not _view(metric="browser").takes(BUCKET)
    assert not _view(metric="browser").takes_in_flight(BUCKET)
    november = _view(from_="2126-11-01", to="2126-11")
    assert november.takes(("dark_mode", "2126-11-01"))
    assert november.takes(("dark_mode", "2126-11-30"))
    assert not november.takes(("dark_mode", "2126-12-01"))
    assert not november.takes(("dark_mode", "2126-10-31"))
    assert not november.takes_in_flight(("dark_mode", "2126-10-31"))
    assert november.takes(("first_use", "once"))
    assert november.takes(NOWHERE)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"windows": "2126-11-29"}, "windows"),
        ({"dimensions": "*"}, "dimensions"),
        ({"from": "yesterday"}, "from"),
        ({"from": "2126-12", "to": "2126-11"}, "from"),
    ],
)
def test_a_query_that_is_not_understood_is_refused(query, field):
    """By the name of its parameter."""
    with pytest.raises(Problem) as refused:
        View.from_query(query, Catalogue(registry()), NOW)
    assert (refused.value.type, refused.value.field) == ("query-invalid", field)


def test_the_document_has_a_row_for_every_metric_and_one_for_each_window():
    """Metrics in the order of the registry, then those that left it, then the unknown; windows in order."""
    found = Conservation(
        {
            ("left", "2126-11-01"): Terms(received=1, accepted=1, counted=1),
            BUCKET: _account(),
            ("dark_mode", "2126-11-28"): Terms(received=1, accepted=1, imbalance=1),
            NOWHERE: Terms(received=2, rejected={"unknown-metric": 2}),
        },
        unsettled=[3],
        unreadable=["key"],
    )
    document = ledger_document(found, _view(), ("browser", "dark_mode"))
    assert (document["balanced"], document["imbalance"]) == (False, 1)
    assert (document["unsettled"], document["unreadable"]) == ([3], ["key"])
    assert [row["metric"] for row in document["metrics"]] == ["browser", "dark_mode", "left", UNKNOWN]
    browser, dark = document["metrics"][:2]
    assert (browser["received"], browser["windows"]) == (0, [])
    assert (dark["received"], dark["in_flight"], dark["imbalance"]) == (101, 12, 1)
    assert [(row["window"], row["received"]) for row in dark["windows"]] == [
        ("2126-11-28", 1),
        ("2126-11-29", 100),
    ]
    assert dark["windows"][1].keys() == {"window", *dark.keys()} - {"metric", "windows"}


def test_the_document_lists_so_many_windows_and_says_how_many_it_leaves_out():
    """Those out of balance before others, however late they stand in the order."""
    accounts = {
        ("m", f"{number:04}"): Terms(received=1, accepted=1, counted=1) for number in range(LISTED + 7)
    }
    for window in ("1005", "1006"):
        accounts["m", window].imbalance = 1
    document = ledger_document(Conservation(accounts), _view(), ("m",))
    (row,) = [row for row in document["metrics"] if row["windows"]]
    expected = [f"{number:04}" for number in range(LISTED - 2)] + ["1005", "1006"]
    assert [each["window"] for each in row["windows"]] == expected
    assert (document["windows_left_out"], row["received"], document["imbalance"]) == (7, LISTED + 7, 2)


def test_the_document_of_one_metric_has_its_row_alone():
    """Another metric that was not measured is not said to have nothing."""
    document = ledger_document(Conservation(), _view(metric="browser"), ("browser", "dark_mode"))
    assert [row["metric"] for row in document["metrics"]] == ["browser"]
    assert document["balanced"] is True
