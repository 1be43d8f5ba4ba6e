"""Bounds on what the reports of a device tell together, each with its name and its assumption. Pure, for display.

The plain sum is what a ledger may stop by. The others are those of `dither_protocol.accounting.bounds`, for the fixed
plan of a device that answers everything.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from dither_protocol.accounting import bounds as accounting
from dither_protocol.accounting.bounds import Bound
from dither_protocol.accounting.loss import PrivacyLoss
from dither_protocol.registry.spending import Charge, total

BASIC: Final = "basic"
MAX_KINDS: Final = 30
MAX_COMPOSED: Final = 10_000
"""Different privacy losses, and reports, up to which the law of their sum is computed: it takes some 20 ms."""
WORTH: Final = 0.99
"""Share of the plain sum below which another bound is worth its assumptions."""

Plan = tuple[tuple[PrivacyLoss, int], ...]

_MEMOIZED: Final = (
    " Memoised answers ({metrics}): between histories that change at the same times, and come back to the answers of "
    "the same earlier times."
)


def bounds(charges: Sequence[Charge], delta: float) -> list[Bound]:
    """What is known about so many charges, the plain sum first; nothing where they have no end.

    Args:
        charges: of one span of days.
        delta: probability with which the closer bounds may fail.
    """
    spent = total(charges)
    if spent is None:
        return []
    found = [Bound(BASIC, spent, 0.0, "None: later questions may depend on earlier answers.")]
    plan = tuple((_loss(charge), charge.times) for charge in charges if charge.times)
    # Of a group the dearest metric stands for all: that is right for the plain sum alone.
    if plan and all(charge.alone for charge in charges):
        found += _closer(plan, delta)
    memoized = ", ".join(sorted({charge.metric.name for charge in charges if charge.permanent}))
    if memoized:
        found = [
            replace(each, assumption=each.assumption + _MEMOIZED.format(metrics=memoized)) for each in found
        ]
    return found


def below_the_sum(found: Sequence[Bound]) -> list[Bound]:
    """Those that say more than the plain sum, which is the first."""
    return [each for each in found[1:] if says_more(each.epsilon, found[0].epsilon)]


def says_more(bound: float, plain_sum: float) -> bool:
    """Whether a bound is worth showing beside the plain sum."""
    return bound < WORTH * plain_sum


@lru_cache(maxsize=4096)
def _closer(plan: Plan, delta: float) -> tuple[Bound, ...]:
    rules = [accounting.advanced, accounting.rdp]
    if len(dict(plan)) <= MAX_KINDS and sum(count for _, count in plan) <= MAX_COMPOSED:
        rules = [accounting.advanced, accounting.optimal, accounting.rdp, accounting.exact]
    return tuple(rule(plan, delta) for rule in rules)


def _loss(charge: Charge) -> PrivacyLoss:
    """Of a memoised answer nothing is known but its epsilon."""
    return PrivacyLoss.pure(charge.epsilon) if charge.permanent else PrivacyLoss.of(charge.metric.mechanism)
