"""From counters to published numbers: estimate, standard error, interval, and the consistent column beside them.

All formulas are those of the pure-protocol interface (Wang et al., USENIX Security 2017, section 3), so they hold
for every mechanism; p, q and p - q come from the mechanism and nowhere else (invariant C5).
"""

from dataclasses import dataclass
from operator import index
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc

from dither_estimator import intervals
from dither_estimator.counting import support
from dither_estimator.errors import EstimationError
from dither_estimator.postprocess import norm_sub
from dither_protocol import Mechanism

Floats: TypeAlias = NDArray[np.float64]
Target: TypeAlias = Literal["population", "reporters"]

_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth value to compare by
class Estimates:
    """What n reports say about every value of a domain.

    Attributes:
        estimate: unbiased frequencies, float64 of shape (d,); may be below 0 or above 1.
        std_error: square root of the target's variance at C/n, same shape and unit.
        lower: lower ends of the raw intervals, not cut to [0, 1].
        upper: upper ends of the raw intervals.
        norm_sub: the nearest distribution: in [0, 1], sum 1, biased. It has no interval of its own.
        present: whether the value is there at all: more supporting reports than noise alone reaches, for any
            absent value of the domain, with probability 1 - level. bool of shape (d,).
        supporters: C, the number of reports that support each value, int64 of shape (d,).
        method: kind of each interval, "clopper-pearson" or "wilson".
        n: number of reports.
        level: confidence level, of each interval or (``simultaneous``) of all of them together.
        target: "population" or "reporters".
        simultaneous: whether the intervals cover all values at once.
        mechanism: what made the reports; has epsilon and d.
    """

    estimate: Floats
    std_error: Floats
    lower: Floats
    upper: Floats
    norm_sub: Floats
    present: NDArray[np.bool_]
    supporters: NDArray[np.int64]
    method: NDArray[np.str_]
    n: int
    level: float
    target: Target
    simultaneous: bool
    mechanism: Mechanism


def estimate(
    mechanism: Mechanism,
    counters: ArrayLike,
    n: int,
    level: float = 0.95,
    target: Target = "population",
    *,
    simultaneous: bool = False,
) -> Estimates:
    """Estimate the frequency of every value.

    Without reports (n = 0) nothing is known, and the numbers say so: the uniform estimate 1/d, the intervals
    that the debias makes of [0, 1], and half their width as standard error.

    Args:
        mechanism: the one that made the reports.
        counters: whole numbers of shape (mechanism.counters,), from `count` or from the store.
        n: number of reports counted, in [0, 2^63).
        level: confidence level, in (0, 1).
        target: "population", the share among all devices that the reporters are a sample of, or "reporters",
            the share among these n devices.
        simultaneous: widen the intervals (Bonferroni, Clopper-Pearson) to cover all values at once.

    Raises:
        EstimationError: counters or n that cannot be counts of these reports, a level outside (0, 1), or an
            unknown target.
        MechanismError: reports of this mechanism cannot be counted.
    """
    supporters = support(mechanism, counters)
    n = _checked_n(n, max(int(supporters.max()), int(np.max(counters))))
    return estimate_of_support(mechanism, supporters, n, level, target, simultaneous=simultaneous)


def estimate_of_support(
    mechanism: Mechanism,
    supporters: NDArray[np.int64],
    n: int,
    level: float,
    target: Target,
    *,
    simultaneous: bool,
) -> Estimates:
    """The same as `estimate` from C: the number of reports that support each value, int64 of shape (d,), each <= n.

    Raises:
        EstimationError: a level outside (0, 1), or an unknown target.
    """
    if target not in ("population", "reporters"):
        raise EstimationError('the target must be "population" or "reporters"')
    kind = intervals.simultaneous_interval if simultaneous else intervals.default_interval
    interval = intervals.debiased(mechanism, kind(supporters, n, level))
    if n == 0:
        shares = np.full(mechanism.d, 1 / mechanism.d)
        std_error = (interval.upper - interval.lower) / 2
    else:
        shares = (supporters / n - mechanism.q) / mechanism.gap
        std_error = _std_error(mechanism, supporters, n, target)
    return Estimates(
        estimate=shares,
        std_error=std_error,
        lower=interval.lower,
        upper=interval.upper,
        norm_sub=norm_sub(shares),
        present=_above_noise(mechanism, supporters, n, (1 - level) / mechanism.d),
        supporters=supporters,
        method=interval.method,
        n=n,
        level=level,
        target=target,
        simultaneous=simultaneous,
        mechanism=mechanism,
    )


def present(result: Estimates, shared_by: int = 1) -> NDArray[np.bool_]:
    """Whether each value is there at all: its count is above what noise alone reaches, over the whole domain.

    The supporting reports of a value that nobody holds are Binomial(n, q) for either target. A value is present
    where Pr[Binomial(n, q) >= C] <= (1 - level)/(d shared_by), by Bonferroni's inequality.

    Args:
        result: from `estimate`.
        shared_by: how many such judgements share the probability of any false one.
    """
    alpha = (1 - result.level) / (result.mechanism.d * shared_by)
    return _above_noise(result.mechanism, result.supporters, result.n, alpha)


def _above_noise(
    mechanism: Mechanism, supporters: NDArray[np.int64], n: int, alpha: float
) -> NDArray[np.bool_]:
    """Whether noise alone supports a value so often with probability ``alpha`` at most.

    The binomial tail is the regularised incomplete beta function.
    """
    tail = betainc(np.maximum(supporters, 1), n - supporters + 1, mechanism.q)
    found: NDArray[np.bool_] = (supporters > 0) & (tail <= alpha)
    return found


def _checked_n(n: int, most: int) -> int:
    """``n`` as an int; ``most`` is the largest count, as it came or decoded."""
    try:
        number = -1 if isinstance(n, bool) else index(n)
    except TypeError:
        number = -1
    if not 0 <= number <= _INT64_MAX:
        raise EstimationError("n must be a whole number in [0, 2^63)")
    if most > number:
        raise EstimationError("n is less than the number of reports that support a value")
    return number


def _std_error(mechanism: Mechanism, supporters: NDArray[np.int64], n: int, target: Target) -> Floats:
    """Square root of the target's variance at pi = C/n (design section 6), n > 0.

    population: pi(1-pi) / (n (p-q)^2). reporters: [f p(1-p) + (1-f) q(1-q)] / (n (p-q)^2) at the raw estimate f.
    With f = (pi-q)/(p-q) that bracket is (1-pi) p q + pi (1-p)(1-q): the same line, but no term of it is
    negative, so that rounding cannot bring a negative variance about.
    """
    p, q = mechanism.p, mechanism.q
    present, absent = supporters / n, (n - supporters) / n
    spread = present * absent if target == "population" else absent * p * q + present * (1 - p) * (1 - q)
    return np.sqrt(spread / n) / mechanism.gap
