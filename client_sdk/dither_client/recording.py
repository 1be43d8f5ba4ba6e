"""Recording: from an answer to a charged, randomised, queued report, in one transaction (invariant P2)."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Final, NamedTuple

from dither_client import ledger, outbox
from dither_client.balance import Balance, add_to_totals, read_balance
from dither_client.consent import Consent
from dither_client.errors import RefusedError
from dither_client.ledger import Charge, Limits
from dither_client.outbox import encode_answer
from dither_client.results import RecordResult, RecordStatus
from dither_client.sampling import randomize
from dither_client.state import State
from dither_protocol.mechanisms import Data
from dither_protocol.registry import Registry
from dither_protocol.registry.metric import FRESH, Dimensions, Metric
from dither_protocol.windows import Window, last_accepted_date


class NoValue(Enum):
    """The answer of an app that gives none, since the device draws it: a calibration metric's."""

    NO_VALUE = "no value"


NO_VALUE: Final = NoValue.NO_VALUE


class AppLimits(NamedTuple):
    """What the app allows in its own code, whatever a registry says (invariant P6).

    Attributes:
        max_epsilon: no metric with a larger epsilon is answered.
        per_day: limit on the sum of epsilons of one UTC day; None for none.
        lifetime: limit on the sum of epsilons of the state directory; None for none.
        queue_reports: how many reports wait at most.
        queue_bytes: the same in bytes.
        max_delta: the delta of ``lifetime``, and the largest of the registry's limit; None for neither.
    """

    max_epsilon: float
    per_day: float | None
    lifetime: float | None
    queue_reports: int
    queue_bytes: int
    max_delta: float | None = None


class Recorder:
    """Takes answers into one state.

    Args:
        state: where charges and reports are kept.
        consent: whether this device may answer.
        limits: those of the app.
        clock: gives the time as an aware datetime.
    """

    def __init__(
        self, state: State, consent: Consent, limits: AppLimits, clock: Callable[[], datetime]
    ) -> None:
        self._state = state
        self._consent = consent
        self._app = limits
        self._clock = clock

    def commit(
        self,
        registry: Registry,
        name: str,
        value: object,
        dimensions: Mapping[str, str] | None,
        *,
        owner: str,
        due_at: float,
    ) -> RecordStatus:
        """Consent, checks, charge, randomised report: in this order, in one transaction (invariant P2).

        Args:
            registry: which metrics there are.
            name: of the metric.
            value: the true answer, which nothing keeps; NO_VALUE for a calibration metric.
            dimensions: as the app gave them.
            owner: token of the sender that will deliver the report.
            due_at: when it should, seconds since the epoch.

        Returns:
            QUEUED, or NOT_DRAWN where another metric of the group is this window's; the draw is kept in either case.

        Raises:
            RefusedError: the answer is not taken, and nothing is changed.
            MetricUsageError: a mistake of the app.
            StateError: the state cannot be used now.
        """
        now = self._clock()
        with self._state.transaction() as connection:
            balance = read_balance(connection, now.astimezone(UTC).date())
            if not self._consent.given(balance.consent):
                raise RefusedError(RecordStatus.NOT_CONSENTED)
            metric = registry.metric(name)
            index = _index(metric, value)
            canonical = metric.check_dimensions(dimensions)
            window = metric.window_at(now)
            problem = self._problem(metric, window, now)
            if problem is not None:
                raise RefusedError(*problem)
            asked: Sequence[Metric] = (metric,)
            if metric.one_of is not None:
                group = registry.groups[metric.one_of]
                asked = self._asked(group, now)
                if not _drawn(connection, metric, (group, asked), window, now):
                    return RecordStatus.NOT_DRAWN
            limits, cost = self.limits(registry), self._cost(connection, asked)
            item = Charge(metric.name, metric.version, window.label, repr(canonical), cost)
            status = ledger.charge(connection, item, balance, limits)
            if status is not RecordStatus.QUEUED:
                raise RefusedError(status)
            body = self._encode(metric, window, canonical, self._randomized(connection, metric, index))
            kind = _kind(asked, cost) if limits.filters and cost else None
            self._add_up(connection, balance, limits, item, kind=kind, body=body)
            last = last_accepted_date(window, metric.late_days)
            last_date = last.isoformat() if last else None
            outbox.add(connection, outbox.OpenReport(owner, due_at, metric.period, last_date, body))
        return RecordStatus.QUEUED

    def _add_up(
        self,
        connection: sqlite3.Connection,
        balance: Balance,
        limits: Limits,
        item: Charge,
        *,
        kind: str | None,
        body: str,
    ) -> None:
        """Add a report to the sums of ledger and queue, in one statement; refuse what they have no room for."""
        size = outbox.size_of(body)
        add_to_totals(connection, *ledger.sums(item, balance, kind), *outbox.sums(size))
        if not ledger.filters_allow(connection, limits, balance.for_life + item.nano_epsilon):
            raise RefusedError(RecordStatus.BUDGET_EXHAUSTED)
        if not outbox.has_room(balance, size, self._app.queue_reports, self._app.queue_bytes):
            raise RefusedError(RecordStatus.DROPPED, "queue_full")

    def limits(self, registry: Registry | None) -> Limits:
        """The stricter of the registry's limits and the app's own."""
        privacy = registry.privacy if registry is not None else None
        return ledger.limits_of(privacy, self._app.per_day, self._app.lifetime, self._app.max_delta)

    def _problem(self, metric: Metric, window: Window, now: datetime) -> RecordResult | None:
        """Why this device does not answer a metric now, whatever the answer is; None where it may."""
        if max(metric.epsilon, metric.epsilon_permanent or 0.0) > self._app.max_epsilon:
            return RecordResult(RecordStatus.DROPPED, "epsilon_above_limit")
        if metric.expired(window) or now >= window.end:
            return RecordResult(RecordStatus.DROPPED, "metric_expired")
        return None

    def _asked(self, group: Sequence[Metric], now: datetime) -> tuple[Metric, ...]:
        """Members of a group that this device may answer now: one that is over, say, must not take windows away."""
        return tuple(metric for metric in group if self._problem(metric, metric.window_at(now), now) is None)

    def _cost(self, connection: sqlite3.Connection, asked: Sequence[Metric]) -> int:
        """Nano-epsilon of the next report.

        The largest of the metrics that might be asked in its place. Of a memoised metric all distinct values at
        the first report, then nothing.
        """
        metric = asked[0]
        permanent, most = metric.epsilon_permanent, metric.max_distinct_values
        if permanent is None or most is None:
            return max(ledger.nano_charge(each.epsilon) for each in asked)
        from dither_client import memo  # noqa: PLC0415  few apps have memoised metrics

        return 0 if memo.begun(connection, metric) else most * ledger.nano_charge(permanent)

    def _randomized(self, connection: sqlite3.Connection, metric: Metric, index: int) -> Data:
        if metric.collection == FRESH:
            return randomize(metric.mechanism, index)
        from dither_client import memo  # noqa: PLC0415

        return memo.report(connection, metric, index)

    def _encode(self, metric: Metric, window: Window, dimensions: Dimensions, data: Data) -> str:
        return encode_answer(metric, window, dimensions, data, metric.params_hash)


def _index(metric: Metric, value: object) -> int:
    """The index of the true answer: the app's, or of a calibration metric one that is drawn here."""
    if metric.calibration is None or value is not NO_VALUE:
        return metric.index_of(value)
    from dither_client import calibration  # noqa: PLC0415  few apps have calibration metrics

    return calibration.draw(metric.calibration)


def _drawn(
    connection: sqlite3.Connection,
    metric: Metric,
    members: tuple[Sequence[Metric], Sequence[Metric]],
    window: Window,
    now: datetime,
) -> bool:
    """Whether the lot fell on this metric; ``members``: all of its group, and those that may be answered now."""
    from dither_client import groups  # noqa: PLC0415  few apps have groups

    return groups.drawn(connection, *members, window.label, now) == metric.name


def _kind(asked: Sequence[Metric], cost: int) -> str:
    """Under which name a charge is counted beside the plain sum; of memoised answers nothing but epsilon is known."""
    from dither_client import losses  # noqa: PLC0415  only where a limit for life has a delta

    return losses.kind_scope(cost, tuple(each.mechanism for each in asked if each.collection == FRESH))
