"""The verdict on a load run: it passes the truth, and finds loss, duplication and shift that were planted."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import bdtrc

from dither_client.transport import Delivered, Refused, Retry
from dither_estimator import count, estimate
from dither_fleet import randomize_many
from dither_fleet.expectation import Cell, Fate
from dither_fleet.population import draw
from dither_fleet.server_view import Books, Place, Snapshot, sent_places
from dither_fleet.tally import Tally, surprise
from dither_fleet.truth import truths_of
from dither_fleet.verdict import Verdict, judge, most_misses
from support.registries import small_registry

REGISTRY = small_registry()
TRUTHS = truths_of(REGISTRY)
WINDOWS = {"dark_mode": "2026-11-29", "color": "2026-W48", "first_color": "once"}
N = 3_000
EMPTY = Snapshot(Books({}, {}, 0), {})


def _document(metric: str, shares: np.ndarray[Any, Any], n: int) -> dict[str, Any]:
    """What a server would publish about n devices with these true shares; the noise is real."""
    mechanism = REGISTRY.metric(metric).mechanism
    values = draw(shares.tolist(), n, np.random.default_rng())
    counters, counted = count(mechanism, randomize_many(mechanism, values))
    found = estimate(mechanism, counters, counted)
    rows = zip(found.estimate, found.lower, found.upper, found.supporters, strict=True)
    return {
        "n": n,
        "status": "open",
        "values": [{"estimate": e, "interval": [lo, up], "support": int(c)} for e, lo, up, c in rows],
    }


def _cells() -> list[Cell]:
    return [
        Cell(metric.name, metric.version, WINDOWS[metric.name], dimensions)
        for metric in REGISTRY
        for dimensions in ([(("os", "linux"),), (("os", "macos"),)] if metric.dimensions else [()])
    ]


def _published(all_hold: int | None = None) -> dict[Place, dict[str, Any]]:
    """Estimates about the true shares; or about devices that all hold one value."""
    places = sent_places(dict.fromkeys(_cells(), N))
    published = {}
    for place, n in places.items():
        shares = np.array(TRUTHS[place.metric, place.version].shares)
        held = shares if all_hold is None else np.eye(shares.size)[all_hold]
        published[place] = _document(place.metric, held, n)
    return published


def _tally() -> Tally:
    tally = Tally()
    for cell in _cells():
        tally.made[Fate((cell,))] = tally.settled[Fate((cell,))] = N
    tally.made[Fate((), ("report-too-early",))] = tally.settled[Fate((), ("report-too-early",))] = 7
    tally.made[Fate((), (), "http:422")] = tally.settled[Fate((), (), "http:422")] = 5
    return tally


def _books(**changes: int) -> Books:
    n: Counter[str] = Counter()
    for cell in _cells():
        n[cell.metric] += N
    terms = {
        name: {"received": each, "accepted": each, "counted": each, "duplicate": 0, "dead": 0, "in_flight": 0}
        for name, each in n.items()
    }
    terms["dark_mode"] |= {term: terms["dark_mode"][term] + more for term, more in changes.items()}
    return Books(terms, {"report-too-early": 7}, 0)


def _judge(tally: Tally, after: Snapshot, before: Snapshot = EMPTY) -> Verdict:
    return judge(REGISTRY, TRUTHS, tally, before, after)


def test_a_run_without_fault_passes() -> None:
    """Everything accounted for, intervals that cover; each metric and scope has its line."""
    verdict = _judge(_tally(), Snapshot(_books(), _published()))
    assert verdict.problems == []
    assert verdict.passed
    assert [(each.scope, each.intervals) for each in verdict.coverage] == [
        ("over all devices", 12),
        ("by dimension", 10),
    ]
    assert {line.metric: line.counted for line in verdict.lines} == {
        "dark_mode": N, "color": 2 * N, "first_color": N,
    }  # fmt: skip
    # For one normal error, beyond 6 is one in a billion; below, anything goes.
    assert all(each.error / each.theory < 6 for each in verdict.judged)
    (dark,) = (each for each in verdict.judged if each.place.metric == "dark_mode")
    # pi = 0.2689 + 0.37 * 0.4621 supports among 3,000: sqrt(pi (1 - pi) / 3000) / 0.4621
    assert dark.theory == pytest.approx(0.0196, rel=0.005)


def _lose_a_batch(tally: Tally) -> None:
    tally.settled[Fate((_cells()[0],))] -= 1


def _surprise(tally: Tally) -> None:
    tally.surprises["a batch was given up: no patience"] = 1


def _crash(tally: Tally) -> None:
    tally.retries["http:500"] = 1


def _rude(tally: Tally) -> None:
    tally.untimed = 1


def _unseen_duplicate(tally: Tally) -> None:
    tally.duplicates = 1


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (_lose_a_batch, "not equal"),
        (_surprise, "given up"),
        (_crash, "1 answers were 500"),
        (_rude, "did not say when to come back"),
        (_unseen_duplicate, "duplicates"),
    ],
)
def test_what_devices_saw_can_fail_a_run(plant: Callable[[Tally], None], said: str) -> None:
    """One lost batch, one surprise, one error of the server: each is named."""
    tally = _tally()
    plant(tally)
    problems = _judge(tally, Snapshot(_books(), _published())).problems
    assert len(problems) == 1
    assert said in problems[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"counted": -1}, "not equal"),
        ({"counted": 1}, "not equal"),
        ({"accepted": 1, "counted": 1}, "not equal"),
        ({"in_flight": 1}, "still not counted"),
        ({"dead": 1}, "set aside"),
    ],
)
def test_a_ledger_that_is_off_by_one_fails_the_run(changes: dict[str, int], said: str) -> None:
    """A report that is lost, counted twice, waiting, or set aside."""
    problems = _judge(_tally(), Snapshot(_books(**changes), _published())).problems
    assert any(said in problem for problem in problems)


@pytest.mark.parametrize(
    "books",
    [replace(_books(), imbalance=1), replace(_books(), rejected={"report-too-early": 8}),
     replace(_books(), rejected={}), replace(_books(), rejected={"report-too-early": 7, "unknown-metric": 1})],
)  # fmt: skip
def test_rejections_and_balance_are_compared(books: Books) -> None:
    """Each reason has the number that was expected, and no other reason has any."""
    assert len(_judge(_tally(), Snapshot(books, _published())).problems) == 1


def test_a_cell_above_its_unique_reports_is_a_double_count() -> None:
    """Even where another cell has one less, so that all sums are right."""
    published = _published()
    linux, macos = (place for place in published if place.metric == "color" and place.dimensions)
    published[linux]["n"] += 1
    published[macos]["n"] -= 1
    (problem,) = _judge(_tally(), Snapshot(_books(), published)).problems
    assert "color v2 2026-W48 os=linux: 3,001 counted of 3,000 unique reports" in problem


def test_a_published_estimate_that_lacks_a_report_fails_the_run() -> None:
    """The ledger alone is not believed."""
    published = _published()
    published[next(place for place in published if place.metric == "dark_mode")]["n"] -= 1
    (problem,) = _judge(_tally(), Snapshot(_books(), published)).problems
    assert "published 2,999 are not equal" in problem


@pytest.mark.parametrize("held", [0, -1])
def test_a_shifted_truth_is_found(held: int) -> None:
    """The noise is real, and the estimates are about other shares than those that are held to be true."""
    verdict = _judge(_tally(), Snapshot(_books(), _published(held)))
    assert any("miss the truth" in problem for problem in verdict.problems)


def test_earlier_reports_are_taken_off() -> None:
    """A server that had reports about something else is judged by what this run added; its books by differences."""
    old = {
        place: _document(place.metric, np.roll(TRUTHS[place[:2]].shares, 1), 500) for place in _published()
    }
    new = _published()
    mixed: dict[Place, Mapping[str, Any]] = {}
    for place, document in new.items():
        pairs = zip(document["values"], old[place]["values"], strict=True)
        # What is published is about all reports together, and says nothing about those of the run alone.
        both = {"estimate": 9.0, "interval": [9.0, 9.0]}
        values = [row | both | {"support": row["support"] + before["support"]} for row, before in pairs]
        mixed[place] = document | {"n": document["n"] + 500, "values": values}
    before = Snapshot(Books({"dark_mode": dict.fromkeys(_books().terms["dark_mode"], 9)}, {}, 0), old)
    terms = dict(_books().terms)
    terms["dark_mode"] = {term: number + 9 for term, number in terms["dark_mode"].items()} | {"in_flight": 0}
    verdict = _judge(_tally(), Snapshot(replace(_books(), terms=terms), mixed), before)
    assert verdict.problems == []
    assert verdict.left_out == 0
    wrong = _judge(_tally(), Snapshot(replace(_books(), terms=terms), mixed), replace(before, published={}))
    assert not wrong.passed


def test_suppressed_estimates_are_left_out_and_said() -> None:
    """Where nothing at all can be judged, that is no pass."""
    published = _published()
    one = next(iter(published))
    published[one] = {"n": published[one]["n"], "status": "suppressed", "values": []}
    verdict = _judge(_tally(), Snapshot(_books(), published))
    assert verdict.passed
    assert verdict.left_out == 1
    hidden = {place: document | {"status": "suppressed"} for place, document in published.items()}
    assert not _judge(_tally(), Snapshot(_books(), hidden)).passed


@pytest.mark.parametrize("intervals", [0, 1, 47, 141])
def test_the_limit_is_exact(intervals: int) -> None:
    """One more miss has a chance of one in a million at most; the limit itself has more."""
    limit = most_misses(intervals, 0.95)
    assert limit == intervals or bdtrc(limit, intervals, 0.05) <= 1e-6
    assert limit == 0 or bdtrc(limit - 1, intervals, 0.05) > 1e-6


CELL = _cells()[0]
TWO = Fate((CELL, CELL), ("report-too-early",))


@pytest.mark.parametrize(
    ("outcome", "fate", "right"),
    [
        (Delivered(2, duplicate=False, rejected=1), TWO, True),
        (Delivered(0, duplicate=True, rejected=1), TWO, True),
        (Delivered(1, duplicate=False, rejected=1), TWO, False),
        (Delivered(2, duplicate=True, rejected=1), TWO, False),
        (Delivered(3, duplicate=False, rejected=0), TWO, False),
        (Delivered(2, duplicate=False, rejected=0), TWO, False),
        (Delivered(0, duplicate=True, rejected=2), TWO, False),
        (Refused("http:422"), TWO, False),
        (Refused("http:422"), Fate((), (), "http:422"), True),
        (Refused("http:400"), Fate((), (), "http:422"), False),
        (Delivered(0, duplicate=False, rejected=0), Fate((), (), "http:422"), False),
        (Retry("http:503"), TWO, False),
    ],
)
def test_an_answer_is_right_or_a_surprise(outcome: Any, fate: Fate, right: bool) -> None:
    """Accepted, rejected and refused, each as the rules say."""
    assert (surprise(fate, outcome) == "") is right
    tally = Tally()
    tally.settle(fate, outcome)
    assert tally.settled.total() == right
    assert tally.surprises.total() == (not right)
