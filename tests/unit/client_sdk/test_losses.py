"""Limits for life that have a delta: as the Renyi filter says by hand, whatever was spent before there was one."""

import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from typing import Any

import pytest

from dither_client import Client, RecordStatus, losses
from dither_client.ledger import (
    LEAST_DELTA,
    NANO,
    Charge,
    Limits,
    limits_of,
    nano_charge,
    spent,
)
from dither_client.spending import summary
from dither_client.state import State
from dither_protocol import mechanism, registry_from_document
from dither_protocol.accounting import renyi
from dither_protocol.accounting.loss import MIN_DELTA, PrivacyLoss
from dither_protocol.accounting.renyi import RenyiFilter, renyi_total
from dither_protocol.registry import Privacy
from support.bookings import charged
from support.clients import make_client
from support.groups import Clock
from support.memo import memo_document

DELTA = 1e-6
TODAY = date(2026, 11, 29)
GRR = mechanism("grr", 1.0, 5)
OUE = mechanism("oue", 0.5, 16)
QUEUED, EXHAUSTED = RecordStatus.QUEUED, RecordStatus.BUDGET_EXHAUSTED


class _Refused(Exception):
    """Rolls back."""


def _book(state: State, number: int, epsilon: float, limits: Limits, kind: str | None = None) -> RecordStatus:
    """As the client does it: what is not queued is rolled back."""
    status = QUEUED
    item = Charge("m", 1, str(number), "()", nano_charge(epsilon))
    with suppress(_Refused), state.transaction() as connection:
        status = charged(connection, item, TODAY, limits, kind)
        if status is not QUEUED:
            raise _Refused
    return status


def _most(loss: PrivacyLoss, limit: float, delta: float) -> int:
    """How many reports of one loss a limit takes: by the plain sum or the filter, computed by hand."""
    rule = RenyiFilter(limit, delta)
    count = 0
    while (count + 1) * loss.epsilon <= limit or rule.allows(renyi_total([(loss, count + 1)])):
        count += 1
    return count


def _document(privacy: dict[str, float], period: str = "hour") -> dict[str, Any]:
    metric = {
        "version": 1, "type": "categorical", "description": "A question", "categories": list("abcde"),
        "epsilon": 1.0, "mechanism": "grr", "period": period, "min_reports": 1,
    }  # fmt: skip
    return {"schema": 1, "project": "p", "privacy": privacy, "metrics": {"m": metric}}


@contextmanager
def _client(privacy: dict[str, float], clock: Clock, **options: Any) -> Iterator[Client]:
    given = {"registry": _document(privacy), "clock": clock} | options
    client = make_client(**given)
    yield client
    client.set_consent(False)
    client.set_consent(True)
    client.shutdown(0.0)


def _record_hours(client: Client, clock: Clock, hours: int) -> int:
    """How many of so many hourly reports are queued."""
    queued = 0
    for _ in range(hours):
        queued += client.record("m", "a").status is QUEUED
        clock.now += timedelta(hours=1)
    return queued


def test_the_filter_takes_as_many_reports_as_by_hand() -> None:
    """More than the plain sum allows, exactly as many as the filter does for the mechanism's own loss; then none."""
    limit = 60.0
    expected = _most(PrivacyLoss.of(GRR), limit, DELTA)
    assert expected > 70
    clock = Clock()
    with _client({"max_epsilon_lifetime": limit, "delta": DELTA}, clock) as client:
        assert _record_hours(client, clock, expected + 20) == expected
        found = client.privacy_ledger()
        rule = RenyiFilter(limit, DELTA)
        assert found.spent_lifetime == expected
        (filtered,) = found.filters
        assert (filtered.limit, filtered.delta) == (limit, DELTA)
        assert filtered.spent == pytest.approx(rule.epsilon(renyi_total([(PrivacyLoss.of(GRR), expected)])))
        assert found.left_lifetime == pytest.approx(limit - filtered.spent)
        assert 0 <= found.left_lifetime < 1.0


def test_without_delta_the_plain_sum_holds_and_nothing_is_counted() -> None:
    """Sixty reports of 1.0, and no row of losses."""
    clock = Clock()
    with _client({"max_epsilon_lifetime": 60.0}, clock) as client:
        assert _record_hours(client, clock, 70) == 60
        assert client.privacy_ledger().filters == ()
        with client._state.transaction() as connection:
            assert connection.execute("SELECT count(*) FROM totals WHERE scope LIKE 'loss%'").fetchone() == (
                0,
            )


def test_two_kinds_of_reports_add_up_as_by_hand() -> None:
    """Losses of different mechanisms are kept apart, and their divergences added."""
    limit, state = 40.0, State(None)
    limits = Limits(None, None, ((nano_charge(limit), DELTA),))
    rule, counts = RenyiFilter(limit, DELTA), [0, 0]
    parts = [PrivacyLoss.of(GRR), PrivacyLoss.of(OUE)]
    for step in range(200):
        which = step % 2
        oracle = (GRR, OUE)[which]
        kind = losses.kind_scope(nano_charge(oracle.epsilon), (oracle,))
        after = [count + (place == which) for place, count in enumerate(counts)]
        total = sum(count * part.epsilon for count, part in zip(after, parts, strict=True))
        allowed = total <= limit or rule.allows(
            renyi_total((p, n) for p, n in zip(parts, after, strict=True) if n)
        )
        assert (_book(state, step, oracle.epsilon, limits, kind) is QUEUED) == allowed
        counts = after if allowed else counts
    assert sum(counts) > 60
    state.close()


def test_a_registry_that_gains_a_delta_finds_what_was_spent() -> None:
    """Reports from before count as the worst of their epsilon: by hand, and never as nothing."""
    before, limit = 45, 60.0
    worst, own, rule = PrivacyLoss.pure(1.0), PrivacyLoss.of(GRR), RenyiFilter(limit, DELTA)
    after = 0
    while before + after + 1 <= limit or rule.allows(renyi_total([(worst, before), (own, after + 1)])):
        after += 1
    clock = Clock()
    with _client({"max_epsilon_lifetime": limit}, clock) as client:
        assert _record_hours(client, clock, before) == before
        document = _document({"max_epsilon_lifetime": limit, "delta": DELTA})
        client._source.current = registry_from_document(document)
        assert _record_hours(client, clock, after + 20) == after
    assert before + after < _most(own, limit, DELTA)


def test_a_delta_that_goes_and_comes_back_finds_everything() -> None:
    """Counted, not counted, counted: what is missing is found by its epsilon, and what is known keeps its kind."""
    state, filtered = State(None), Limits(None, None, ((10**15, DELTA),))
    kind = losses.kind_scope(10**9, (GRR,))
    for number in range(30):
        plain = 10 <= number < 20
        _book(state, number, 1.0, Limits(None, None) if plain else filtered, None if plain else kind)
    with state.transaction() as connection:
        found = losses.divergences(connection, spent(connection))
        again = losses.divergences(connection, spent(connection))
    assert found == again == renyi_total([(PrivacyLoss.of(GRR), 20), (PrivacyLoss.pure(1.0), 10)])
    state.close()


def test_another_grid_of_orders_finds_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts belong to no grid: a version with other orders computes from the same ledger."""
    state = State(None)
    for number in range(25):
        _book(
            state, number, 0.5, Limits(None, None, ((10**12, DELTA),)), losses.kind_scope(5 * 10**8, (OUE,))
        )
    orders = (1.5, 3.0, 7.0)
    monkeypatch.setattr(losses, "ORDERS", orders)
    monkeypatch.setattr(renyi, "ORDERS", orders)
    losses._costs.cache_clear()
    with state.transaction() as connection:
        found = losses.divergences(connection, spent(connection))
    losses._costs.cache_clear()
    assert found == pytest.approx(
        [25 * renyi.renyi_divergence(PrivacyLoss.of(OUE), order) for order in orders]
    )
    state.close()


def test_memoised_answers_count_as_one_event_of_pure_epsilon() -> None:
    """All distinct values in advance, at every order at most their epsilon; later reports add nothing."""
    document = memo_document()
    document["privacy"] = {"max_epsilon_lifetime": 100.0, "delta": DELTA}
    clock = Clock()
    client = make_client(registry=document, clock=clock)
    for _ in range(5):
        assert client.record("mood", "red").status is QUEUED
        clock.now += timedelta(days=1)
    with client._state.transaction() as connection:
        total = spent(connection)
        found = losses.divergences(connection, total)
    assert total == 6 * 10**9
    assert found == renyi_total([(PrivacyLoss.pure(6.0), 1)])
    client.set_consent(False)
    client.shutdown(0.0)


def test_an_epsilon_beyond_what_a_loss_may_have_counts_in_full() -> None:
    """A memoised metric of many values may cost hundreds: at every order that epsilon, which nothing exceeds."""
    state = State(None)
    kind = losses.kind_scope(300 * 10**9, (GRR,))
    _book(state, 1, 300.0, Limits(None, None, ((10**15, DELTA),)), kind)
    with state.transaction() as connection:
        assert losses.divergences(connection, spent(connection)) == (300.0,) * len(renyi.ORDERS)
    state.close()


def test_metrics_that_share_a_charge_count_as_the_worst_of_them() -> None:
    """The largest epsilon with the largest r: at no order below any of the metrics."""
    oracles = (mechanism("grr", 0.5, 5), mechanism("oue", 2.0, 16), mechanism("rr", 1.0, 2))
    kind = losses._kind_of(losses.kind_scope(2 * 10**9, oracles))
    together = losses._costs(kind)
    for oracle in oracles:
        own = renyi.renyi_costs(PrivacyLoss.of(oracle))
        assert all(a >= b for a, b in zip(together, own, strict=True))
    assert kind == losses.Kind(2 * 10**9, PrivacyLoss.pure(2.0).probability)
    alike = (mechanism("grr", 1.0, 5), mechanism("grr", 1.0, 9))
    assert (
        losses._kind_of(losses.kind_scope(10**9, alike)).probability == PrivacyLoss.of(alike[0]).probability
    )


def test_a_refused_report_changes_nothing() -> None:
    """Neither sums nor kinds, also where the refusal has counted what had no kind yet."""
    state, limits = State(None), Limits(None, None, ((3 * 10**9, DELTA),))
    for number in range(3):
        assert _book(state, number, 1.0, limits) is QUEUED
    with state.transaction() as connection:
        before = list(connection.iterdump())
    for _ in range(3):
        assert _book(state, 99, 1.0, limits, losses.kind_scope(10**9, (GRR,))) is EXHAUSTED
    with state.transaction() as connection:
        assert list(connection.iterdump()) == before
    state.close()


def test_the_limit_of_a_day_stays_on_the_plain_sum() -> None:
    """Delta loosens the limit for life alone."""
    clock = Clock()
    with _client({"max_epsilon_per_day": 4.0, "max_epsilon_lifetime": 60.0, "delta": DELTA}, clock) as client:
        assert _record_hours(client, clock, 8) == 4


@pytest.mark.parametrize("delta", [DELTA, 0.5, 1 - 1e-9])
def test_a_registry_cannot_loosen_the_limit_of_the_app(delta: float) -> None:
    """The app's limit for life is one on the plain sum, whatever delta a server publishes (P6)."""
    clock = Clock()
    privacy = {"max_epsilon_lifetime": 1000.0, "delta": delta}
    with _client(privacy, clock, max_epsilon_lifetime=30.0) as client:
        assert _record_hours(client, clock, 50) == 30
        found = client.privacy_ledger()
        assert (found.spent_lifetime, found.left_lifetime) == (30.0, 0.0)


def test_the_app_may_set_a_delta_of_its_own() -> None:
    """Then its limit is one on (epsilon, delta), with or without the registry's; and the registry's delta is capped."""
    limit, clock = 60.0, Clock()
    expected = _most(PrivacyLoss.of(GRR), limit, DELTA)
    with _client({}, clock, max_epsilon_lifetime=limit, max_delta=DELTA) as client:
        assert _record_hours(client, clock, expected + 10) == expected
    with _client({"max_epsilon_lifetime": limit, "delta": 0.5}, clock, max_delta=DELTA) as client:
        assert _record_hours(client, clock, expected + 10) == expected
    with _client({"max_epsilon_lifetime": limit}, clock, max_delta=DELTA) as client:
        assert _record_hours(client, clock, expected + 10) == limit


def test_limits_with_and_without_delta_hold_each() -> None:
    """Which limit is a filter, which a plain sum; a delta that is as good as none leaves the plain sum."""
    life = Privacy(max_epsilon_lifetime=20.0, delta=1e-6)
    assert limits_of(life, None, None) == Limits(None, None, ((20 * NANO, 1e-6),))
    assert limits_of(life, 2.0, 30.0) == Limits(2 * NANO, 30 * NANO, ((20 * NANO, 1e-6),))
    assert limits_of(life, None, 30.0, 1e-9) == Limits(None, None, ((30 * NANO, 1e-9), (20 * NANO, 1e-9)))
    assert limits_of(life, None, 20.0, 1e-6).lifetime is None
    assert limits_of(Privacy(max_epsilon_lifetime=20.0, delta=1e-200), None, None) == Limits(None, 20 * NANO)
    assert limits_of(Privacy(max_epsilon_lifetime=1e-12, delta=1e-6), None, None) == Limits(None, 0)
    assert limits_of(Privacy(delta=1e-6), None, None) == limits_of(None, None, None) == Limits(None, None)
    assert LEAST_DELTA == MIN_DELTA


@pytest.mark.parametrize(("app", "registry"), [(45.0, 60.0), (60.0, 45.0)])
def test_of_two_limits_with_a_delta_the_stricter_holds(app: float, registry: float) -> None:
    """Each holds by itself, whichever is the app's."""
    expected = _most(PrivacyLoss.of(GRR), 45.0, DELTA)
    assert 45 < expected < _most(PrivacyLoss.of(GRR), 60.0, DELTA)
    clock, privacy = Clock(), {"max_epsilon_lifetime": registry, "delta": DELTA}
    with _client(privacy, clock, max_epsilon_lifetime=app, max_delta=DELTA) as client:
        assert _record_hours(client, clock, expected + 10) == expected
        assert len(client.privacy_ledger().filters) == 2


@pytest.mark.parametrize("wrong", [0.0, 1.0, -1e-6, math.nan, True, "1e-6"])
def test_max_delta_is_a_probability(wrong: Any) -> None:
    """Anything else is a mistake that shows at the start."""
    with pytest.raises(ValueError, match="max_delta"):
        make_client(max_delta=wrong)


def test_what_is_left_may_be_spent() -> None:
    """A single report of what is left, however it is made, is within the limit: with a filter and a plain limit."""
    limits = Limits(None, 50 * NANO, ((20 * NANO, DELTA),))
    state = State(None)
    for number in range(30):
        if (
            _book(state, number, 0.9, limits, losses.kind_scope(nano_charge(0.9), (mechanism("rr", 0.9, 2),)))
            is not QUEUED
        ):
            break
    with state.transaction() as connection:
        found = summary(connection, TODAY, limits)
    assert found.left_lifetime is not None
    assert 0 < found.left_lifetime < 0.9
    assert _book(state, 100, math.floor(found.left_lifetime * 1e6) / 1e6, limits) is QUEUED
    state.close()


def test_a_device_without_delta_does_not_load_the_accounting() -> None:
    """The first record stays as quick as it was."""
    code = (
        "import sys; from dither_client import Client; from support.clients import make_client;"
        "c = make_client(); assert str(c.record('dark_mode', True).status) == 'queued';"
        "assert not [m for m in sys.modules if 'accounting' in m or m.endswith('client.losses')], 'loaded';"
        "c.set_consent(False)"
    )
    path = [entry for entry in sys.path if entry]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; " + code],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
