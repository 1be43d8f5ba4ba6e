"""What one report of an estimate would reveal had all of them been shuffled: information beside it, never a promise.

The bound costs about a tenth of a second, so it is computed for a number of reports cut to one digit and remembered. It
only falls as reports become more, so the cut errs to the safe side.
"""

from functools import lru_cache
from typing import Final

from dither_protocol import Bound, shuffled_epsilon
from dither_protocol.accounting.shuffling import MAX_REPORTS
from dither_server.documents import Estimate

LEAST_REPORTS: Final = 100
"""Below it a shuffle hides next to nothing."""


def amplified(estimate: Estimate) -> Bound | None:
    """The epsilon of one report against whoever sees only the shuffled reports of this estimate.

    None where the bound says nothing about it: several windows or mechanisms, too few reports, or nothing gained.
    """
    if estimate.rollup or len(estimate.mechanisms) != 1 or estimate.n < LEAST_REPORTS:
        return None
    epsilon = estimate.epsilons[0]
    digits = len(str(estimate.n)) - 1
    bound = _bound(
        epsilon, min(estimate.n // 10**digits * 10**digits, MAX_REPORTS), 10.0 ** -(2 * digits + 2)
    )
    return bound if bound.epsilon < epsilon else None


@lru_cache(maxsize=1_024)
def _bound(epsilon: float, n: int, delta: float) -> Bound:
    """The delta is below 1/n^2: what may fail must be rarer than that anybody of the n is picked out."""
    return shuffled_epsilon(epsilon, n, delta)
