"""A privacy budget that several analysts draw on: granted or refused, and every request on record."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from threading import Lock
from typing import Final

from dither_protocol.accounting.bounds import Bound, advanced, best, optimal
from dither_protocol.accounting.loss import MAX_LOSS, MIN_DELTA, PrivacyLoss, check_delta, check_epsilon
from dither_protocol.accounting.renyi import ORDERS, RenyiFilter, renyi_costs
from dither_protocol.errors import AccountingError

COMPOSITIONS: Final = {
    "basic": "None: later requests may depend on earlier answers.",
    "advanced": "All requests are fixed before the first answer is seen.",
    "optimal": "All requests are fixed before the first answer is seen.",
    "rdp": "None: later requests may depend on earlier answers. Half of delta is kept for the conversion.",
    "best": "All requests are fixed before the first answer is seen; the least of several bounds.",
}
"""The rules of composition, each with what it assumes."""

ADAPTIVE: Final = frozenset({"basic", "rdp"})
"""The rules that stay valid where later requests depend on earlier answers."""

_MARGIN: Final = 1e-9  # computed epsilons count as larger by this share: rounding never grants anything


@dataclass(frozen=True)
class BudgetRequest:
    """One line of the audit trail.

    Attributes:
        query_id: its name, for people and for the trail.
        epsilon: asked for, nats.
        delta: asked for.
        description: what for.
        analyst: who asked.
        granted: whether it was allowed.
        at: when, UTC.
    """

    query_id: str
    epsilon: float
    delta: float
    description: str
    analyst: str
    granted: bool
    at: datetime


@dataclass(frozen=True)
class RemainingBudget:
    """What is left: one more request of this much is granted, where both are above 0.

    Attributes:
        epsilon: nats; under another rule than "basic" more may be granted, since epsilons do not simply add up there.
        delta: for requests that carry one.
    """

    epsilon: float
    delta: float


@dataclass(frozen=True)
class UsageReport:
    """What was granted and refused so far, and what it adds up to.

    Attributes:
        composition: the rule.
        adaptive: whether it stays valid where later requests depend on earlier answers.
        assumption: what the rule needs, for people.
        total_epsilon: the budget, nats.
        total_delta: the budget of delta.
        spent_epsilon: what all granted requests are together, by the rule.
        spent_delta: sum of what they carry; what the rule itself needs is not in it.
        remaining: what is left.
        spent_by_analyst: plain sum of granted epsilons of each, nats.
        requests: all of them, refusals too, in order.
    """

    composition: str
    adaptive: bool
    assumption: str
    total_epsilon: float
    total_delta: float
    spent_epsilon: float
    spent_delta: float
    remaining: RemainingBudget
    spent_by_analyst: dict[str, float]
    requests: tuple[BudgetRequest, ...]


@dataclass(frozen=True)
class _Spent:
    """What the granted requests add up to: sums exact in what was typed, Renyi costs at each order."""

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    counts: tuple[tuple[float, int], ...] = ()
    renyi: tuple[float, ...] = (0.0,) * len(ORDERS)

    def plus(self, epsilon: float, delta: float) -> "_Spent":
        counts = Counter(dict(self.counts))
        counts[epsilon] += 1
        costs = renyi_costs(PrivacyLoss.pure(epsilon))
        renyi = tuple(total + cost for total, cost in zip(self.renyi, costs, strict=True))
        return _Spent(
            self.epsilon + _typed(epsilon), self.delta + _typed(delta), tuple(sorted(counts.items())), renyi
        )


class PrivacyBudgetManager:
    """Grants requests while together they stay (total_epsilon, total_delta)-differentially private.

    "basic" and "rdp" are filters: valid also where later requests are chosen after earlier answers are seen. The others
    are valid only where every request, granted or not, is fixed before the first answer; with "best" this is for
    looking at a plan, not for serving analysts. What each needs stands in COMPOSITIONS.

    A request whose plain sum is within the budget is granted under every rule, so none is stricter than "basic" in
    epsilon. Each request counts as the worst that its epsilon allows. Deltas of requests add up; what they leave of
    total_delta is the slack of the rule (of "rdp" half of the total, reserved from the start).

    Sums are exact in the decimals as typed: ten requests of 0.1 fit into 1.0, and rounding never grants anything.
    Safe to use from several threads; the budget lives in this object alone.

    Args:
        total_epsilon: nats, above 0.
        total_delta: from 0 and below 1; every rule but "basic" needs it above 0.
        composition: a key of COMPOSITIONS.
        clock: the time of the audit trail.

    Raises:
        AccountingError: an argument is out of its range.
    """

    def __init__(
        self,
        total_epsilon: float,
        total_delta: float = 0.0,
        composition: str = "basic",
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._total_epsilon = check_epsilon(total_epsilon, "total_epsilon")
        self._total_delta = check_delta(total_delta, "total_delta", zero=True)
        if composition not in COMPOSITIONS:
            raise AccountingError("unknown composition; known are " + ", ".join(COMPOSITIONS))
        if composition != "basic" and not self._total_delta:
            raise AccountingError(f"total_delta must be above 0 for composition {composition}")
        self._composition = composition
        self._clock = clock
        self._lock = Lock()
        self._spent = _Spent()
        self._trail: list[BudgetRequest] = []
        self._granted: set[str] = set()
        # Of "rdp" the share of delta must not depend on what is asked for: half of it, whatever comes.
        self._request_delta = _typed(self._total_delta) / (2 if composition == "rdp" else 1)
        self._filter = (
            RenyiFilter(self._total_epsilon, self._total_delta / 2) if composition == "rdp" else None
        )

    def request_budget(
        self, query_id: str, epsilon: float, delta: float = 0.0, description: str = "", analyst: str = ""
    ) -> bool:
        """Grant a request and charge it, or refuse it and change nothing but the audit trail.

        A granted id stands for one answer with one draw of noise, so it cannot be asked for again: whoever wants a
        second answer pays under another id. A refused id may be tried again.

        Args:
            query_id: not empty, not granted before.
            epsilon: of this answer, nats, above 0 and at most MAX_LOSS.
            delta: of this answer.
            description: what for.
            analyst: who asks.

        Returns:
            Whether it is granted.

        Raises:
            AccountingError: an argument is out of its range, or the id was granted before. Nothing is recorded.
        """
        _check_words(query_id, description, analyst)
        epsilon, delta = check_epsilon(epsilon), check_delta(delta, zero=True)
        if epsilon > MAX_LOSS:
            raise AccountingError(f"epsilon must be at most {MAX_LOSS:g}")
        with self._lock:
            if query_id in self._granted:
                raise AccountingError("query_id was granted before; a second answer needs another one")
            after = self._spent.plus(epsilon, delta)
            granted = self._fits(after)
            # Everything that can fail comes before the first change.
            entry = BudgetRequest(query_id, epsilon, delta, description, analyst, granted, self._clock())
            self._trail.append(entry)
            if granted:
                self._granted.add(query_id)
                self._spent = after
            return granted

    def remaining_budget(self) -> RemainingBudget:
        """The total less what the granted requests add up to by the rule; never negative."""
        with self._lock:
            return self._remaining(self._spent)

    def usage_report(self) -> UsageReport:
        """Everything as of now, consistent even while other threads ask."""
        with self._lock:
            spent, trail = self._spent, tuple(self._trail)
            by_analyst: dict[str, Fraction] = {}
            for entry in trail:
                if entry.granted:
                    by_analyst[entry.analyst] = by_analyst.get(entry.analyst, Fraction(0)) + _typed(
                        entry.epsilon
                    )
            return UsageReport(
                self._composition,
                self._composition in ADAPTIVE,
                COMPOSITIONS[self._composition],
                self._total_epsilon,
                self._total_delta,
                self._epsilon(spent),
                float(spent.delta),
                self._remaining(spent),
                {analyst: float(total) for analyst, total in by_analyst.items()},
                trail,
            )

    def _fits(self, after: _Spent) -> bool:
        if after.delta > self._request_delta:
            return False
        if after.epsilon <= _typed(self._total_epsilon):
            return True
        if self._filter is not None:
            return self._filter.allows(after.renyi)
        return self._bound(after) * (1 + _MARGIN) <= self._total_epsilon

    def _epsilon(self, spent: _Spent) -> float:
        """What the granted requests are together, by the rule; never above the plain sum."""
        if not spent.counts:
            return 0.0
        if self._filter is not None:
            return min(float(spent.epsilon), self._filter.epsilon(spent.renyi))
        return self._bound(spent)

    def _bound(self, spent: _Spent) -> float:
        """The plain sum or what the rule makes of it with the delta that is left; for rules without a filter."""
        plain = float(spent.epsilon)
        slack = float(_typed(self._total_delta) - spent.delta)
        rules: dict[str, Callable[..., Bound]] = {"advanced": advanced, "optimal": optimal, "best": best}
        rule = rules.get(self._composition)
        if rule is None or slack < MIN_DELTA:
            return plain
        plan = [(PrivacyLoss.pure(epsilon), count) for epsilon, count in spent.counts]
        return min(plain, rule(plan, slack).epsilon)

    def _remaining(self, spent: _Spent) -> RemainingBudget:
        if self._composition == "basic":
            left = _typed(self._total_epsilon) - spent.epsilon
        else:
            left = Fraction(self._total_epsilon - self._epsilon(spent) * (1 + 2 * _MARGIN))
        return RemainingBudget(_downward(left), _downward(self._request_delta - spent.delta))


def _check_words(query_id: object, description: object, analyst: object) -> None:
    if type(query_id) is not str or not query_id:
        raise AccountingError("query_id must be a text that is not empty")
    if type(description) is not str or type(analyst) is not str:
        raise AccountingError("description and analyst must be texts")


def _typed(number: float) -> Fraction:
    """The number as it was typed, exactly: the shortest decimal of the double."""
    return Fraction(repr(number))


def _downward(exact: Fraction) -> float:
    """The greatest float from 0 on whose decimal is not above this."""
    found = max(0.0, float(exact))
    while found > 0 and _typed(found) > exact:
        found = math.nextafter(found, 0.0)
    return found
