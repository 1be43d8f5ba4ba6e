import math
import threading
import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither_protocol import AccountingError, PrivacyBudgetManager, PrivacyLoss
from dither_protocol.accounting.bounds import advanced, best, optimal
from dither_protocol.accounting.budget import ADAPTIVE, COMPOSITIONS
from dither_protocol.accounting.renyi import RenyiFilter, renyi_total

RULES = list(COMPOSITIONS)
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def _manager(rule: str = "basic", epsilon: float = 1.0, delta: float = 1e-6) -> PrivacyBudgetManager:
    return PrivacyBudgetManager(epsilon, delta, rule)


def _slow_clock() -> datetime:
    """The time, with a pause in which other threads run: between the decision and the charge."""
    time.sleep(0.001)
    return NOON


def _granted(manager: PrivacyBudgetManager, epsilon: float, tries: int = 2_000) -> int:
    count = 0
    while count < tries and manager.request_budget(f"q{count}", epsilon):
        count += 1
    return count


def _state(manager: PrivacyBudgetManager) -> dict[str, Any]:
    """All that a report says, apart from the trail."""
    state = asdict(manager.usage_report())
    del state["requests"]
    return state


@pytest.mark.parametrize("rule", RULES)
def test_sums_are_exact_in_what_was_typed(rule: str) -> None:
    """Ten requests of 0.1 fit into 1.0 and an eleventh of next to nothing does not, though doubles add up otherwise."""
    manager = PrivacyBudgetManager(1.0, 1e-99 if rule != "basic" else 0.0, rule)
    assert _granted(manager, 0.1) == 10
    assert not manager.request_budget("crumb", 1e-15)
    assert manager.remaining_budget().epsilon == pytest.approx(0.0, abs=1e-7)
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert _granted(_manager("basic", 0.3), 0.1) == 3


@given(st.lists(st.floats(1e-6, 3), min_size=1, max_size=40), st.floats(0.5, 5))
def test_basic_never_overspends_and_never_refuses_what_fits(asked: list[float], total: float) -> None:
    """Against sums of exact fractions of the decimals, each decision is right."""
    manager = _manager("basic", total)
    spent, limit = Fraction(0), Fraction(repr(total))
    for i, epsilon in enumerate(asked):
        fits = spent + Fraction(repr(epsilon)) <= limit
        assert manager.request_budget(f"q{i}", epsilon) is fits
        spent += Fraction(repr(epsilon)) if fits else 0
    assert Fraction(repr(manager.remaining_budget().epsilon)) <= limit - spent


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(RULES), st.lists(st.floats(0.01, 1), max_size=12), st.floats(1.0, 4))
def test_what_remains_is_granted(rule: str, asked: list[float], total: float) -> None:
    """Whatever went before, one more request of the remaining budget fits, and it is what the report says."""
    manager = PrivacyBudgetManager(total, 0.01, rule)
    for i, epsilon in enumerate(asked):
        manager.request_budget(f"q{i}", epsilon)
    left = manager.remaining_budget()
    assert left == manager.usage_report().remaining
    assert 0 <= left.epsilon <= total
    if left.epsilon > 1e-9 and left.delta > 0:
        assert manager.request_budget("rest", left.epsilon)
    spent = manager.usage_report().spent_epsilon
    assert spent <= total * (1 + 1e-8)


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_grants_as_many_as_its_bound_allows(rule: str) -> None:
    """The last grant is within the total and one more would not be, by the bound computed beside it."""
    total, delta, epsilon = 10.0, 1e-6, 0.1
    loss = PrivacyLoss.pure(epsilon)
    bound = {"advanced": advanced, "optimal": optimal, "best": best}

    def fits(count: int) -> bool:
        if count * 0.1 <= total + 1e-12:
            return True
        if rule == "rdp":
            return RenyiFilter(total, delta / 2).allows(renyi_total([(loss, count)]))
        return rule in bound and bound[rule]([(loss, count)], delta).epsilon <= total

    count = _granted(_manager(rule, total, delta), epsilon)
    assert fits(count)
    assert not fits(count + 1)
    assert count == {"basic": 100, "advanced": 216, "optimal": 346, "rdp": 255, "best": 346}[rule]


@pytest.mark.parametrize("rule", RULES)
def test_a_refusal_changes_nothing_but_the_trail(rule: str) -> None:
    """After it the state is the same to the last bit, the refused id is free, and the trail has the refusal."""
    manager = _manager(rule)
    assert manager.request_budget("first", 0.7, analyst="ada")
    before = _state(manager)
    assert not manager.request_budget("second", 5.0, description="too much", analyst="bob")
    assert not manager.request_budget("third", 0.1, delta=0.5, analyst="bob")
    assert _state(manager) == before
    trail = manager.usage_report().requests
    assert [(r.query_id, r.granted) for r in trail] == [("first", True), ("second", False), ("third", False)]
    assert (trail[1].epsilon, trail[1].description, trail[1].analyst) == (5.0, "too much", "bob")
    assert manager.request_budget("second", 0.3)


@pytest.mark.parametrize("rule", RULES)
def test_sixteen_threads_never_overspend(rule: str) -> None:
    """Asked by 16 threads at once, exactly as many are granted as by one, and no request is lost from the trail."""
    manager = PrivacyBudgetManager(1.0, 1e-6, rule, clock=_slow_clock)
    start = threading.Barrier(16)
    answers: list[bool] = []

    def ask(thread: int) -> None:
        start.wait(60)
        answers.extend(manager.request_budget(f"q{thread}-{i}", 0.05, analyst=str(thread)) for i in range(10))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    report = manager.usage_report()
    assert sum(answers) == _granted(_manager(rule, 1.0, 1e-6), 0.05) >= 20
    assert len(answers) == len(report.requests) == 160
    assert sum(r.granted for r in report.requests) == sum(answers)
    assert report.spent_epsilon <= 1.0
    assert math.fsum(report.spent_by_analyst.values()) == pytest.approx(0.05 * sum(answers))


def test_one_id_is_granted_once_among_threads() -> None:
    """Of 16 threads that ask for the same id, one is granted and 15 are told that it was."""
    manager = PrivacyBudgetManager(100.0, clock=_slow_clock)
    start, answers = threading.Barrier(16), []

    def ask() -> None:
        start.wait(60)
        try:
            answers.append(str(manager.request_budget("same", 1.0)))
        except AccountingError as error:
            answers.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(answers) == sorted(
        ["True"] + ["query_id was granted before; a second answer needs another one"] * 15
    )
    assert manager.usage_report().spent_epsilon == 1.0
    assert len(manager.usage_report().requests) == 1


def test_deltas_add_up_and_are_taken_from_the_slack() -> None:
    """Requests may carry a delta; together they stay below the total, and what they take the rule has not."""
    manager = PrivacyBudgetManager(5.0, 1e-5)
    assert manager.request_budget("a", 1.0, delta=6e-6)
    assert not manager.request_budget("b", 1.0, delta=6e-6)
    assert manager.request_budget("c", 1.0, delta=4e-6)
    assert manager.remaining_budget().delta == 0.0
    assert manager.usage_report().spent_delta == 1e-5
    with_delta, without = (
        PrivacyBudgetManager(5.0, 1e-5, "optimal"),
        PrivacyBudgetManager(5.0, 1e-5, "optimal"),
    )
    assert with_delta.request_budget("a", 0.1, delta=9.999e-6)
    assert without.request_budget("a", 0.1)
    assert _granted(with_delta, 0.1) < _granted(without, 0.1)


def test_the_filter_keeps_half_of_delta_whatever_is_asked() -> None:
    """Under "rdp" the slack must not depend on requests, so they have half of delta and the conversion the other."""
    manager = PrivacyBudgetManager(5.0, 1e-5, "rdp")
    assert not manager.request_budget("a", 0.1, delta=6e-6)
    assert manager.request_budget("b", 0.1, delta=5e-6)
    assert not manager.request_budget("c", 0.1, delta=1e-20)
    assert _granted(manager, 0.1) == _granted(PrivacyBudgetManager(5.0, 1e-5, "rdp"), 0.1) - 1


def test_all_of_delta_spent_leaves_the_plain_sum() -> None:
    """Without slack no rule but the plain sum holds, and that is what is left."""
    manager = PrivacyBudgetManager(1.0, 1e-6, "best")
    assert manager.request_budget("a", 0.1, delta=1e-6)
    assert _granted(manager, 0.1) == 9


@pytest.mark.parametrize("rule", RULES)
def test_a_report_says_everything(rule: str) -> None:
    """Rule, assumption, totals, what is spent by whom, and each request with its time."""
    times = iter(NOON + timedelta(minutes=i) for i in range(9))
    manager = PrivacyBudgetManager(2.0, 1e-6, rule, clock=lambda: next(times))
    empty = manager.usage_report()
    assert (empty.spent_epsilon, empty.requests, empty.spent_by_analyst) == (0.0, (), {})
    assert empty.remaining.epsilon == 2.0
    manager.request_budget("a", 0.5, description="the first", analyst="ada")
    manager.request_budget("b", 0.25, analyst="bob")
    manager.request_budget("c", 0.25, analyst="ada")
    report = manager.usage_report()
    assert (report.composition, report.total_epsilon, report.total_delta) == (rule, 2.0, 1e-6)
    assert report.spent_by_analyst == {"ada": 0.75, "bob": 0.25}
    assert report.spent_epsilon == pytest.approx(1.0, abs=1e-4)
    assert [request.at for request in report.requests] == [NOON + timedelta(minutes=i) for i in range(3)]
    assert report.requests[0].description == "the first"
    assert report.adaptive is (rule in {"basic", "rdp"}) is (rule in ADAPTIVE)
    assert report.assumption.startswith("None: later" if report.adaptive else "All requests are fixed before")


def test_the_time_of_a_request_is_now() -> None:
    """Without a clock of the caller's, the trail has the time of the system, in UTC."""
    manager = _manager()
    manager.request_budget("a", 0.5)
    at = manager.usage_report().requests[0].at
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query_id": ""}, "query_id must be"),
        ({"query_id": 7}, "query_id must be"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"epsilon": "1"}, "epsilon must be"),
        ({"epsilon": True}, "epsilon must be"),
        ({"epsilon": 101.0}, "epsilon must be at most 100"),
        ({"delta": -1e-9}, "delta must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"delta": math.nan}, "delta must be"),
        ({"description": None}, "description and analyst"),
        ({"analyst": 3}, "description and analyst"),
        ({"query_id": "taken"}, "granted before"),
    ],
)
def test_impossible_requests_are_refused_and_leave_no_trace(arguments: dict[str, Any], message: str) -> None:
    """A mistake is an error, no refusal: nothing is charged and nothing recorded."""
    manager = _manager()
    manager.request_budget("taken", 0.1)
    before = manager.usage_report()
    with pytest.raises(AccountingError, match=message):
        manager.request_budget(**({"query_id": "new", "epsilon": 0.1} | arguments))
    assert manager.usage_report() == before


def test_a_clock_that_fails_changes_nothing() -> None:
    """The time is taken before anything is charged."""

    def broken() -> datetime:
        raise OSError("no time")

    manager = PrivacyBudgetManager(1.0, clock=broken)
    with pytest.raises(OSError, match="no time"):
        manager.request_budget("a", 0.5)
    assert manager.remaining_budget().epsilon == 1.0
    assert manager.usage_report().requests == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), "total_epsilon must be"),
        ((math.inf,), "total_epsilon must be"),
        ((1.0, 1.0), "total_delta must be"),
        ((1.0, -1e-6), "total_delta must be"),
        ((1.0, 1e-6, "zcdp"), "unknown composition; known are basic, advanced, optimal, rdp, best"),
        *(((1.0, 0.0, rule), f"above 0 for composition {rule}") for rule in RULES if rule != "basic"),
    ],
)
def test_impossible_budgets_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    """A budget is positive and finite; a rule that needs a delta has one."""
    with pytest.raises(AccountingError, match=message):
        PrivacyBudgetManager(*arguments)
