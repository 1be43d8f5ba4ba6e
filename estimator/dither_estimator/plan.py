"""Planning: how exact an estimate will be before anybody has reported, and how many reports a margin takes.

Everything is computed from the same intervals that will be published, at the count that is expected for the
share: what the plan promises is what the operator will see. Beside it stands what central differential privacy
would give for the same epsilon, where a trusted server adds the noise once.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from scipy.special import betainc, ndtri

from dither_estimator.errors import EstimationError
from dither_estimator.intervals import debiased, default_interval
from dither_estimator.longitudinal import std_error_floor
from dither_protocol import Mechanism
from dither_protocol.mechanisms import Memoized

SHARES: Final = (0.0, 0.01, 0.1)
"""True shares at which a plan states its errors: absent, rare, common."""

MAX_REPORTS: Final = 10**12
DETECTION_POWER: Final = 0.9


@dataclass(frozen=True)
class Precision:
    """What n reports say about a value of one true share, target "population".

    Attributes:
        share: the true share.
        std_error: of the estimate.
        half_width: half the width of the published interval at the expected count.
        central_std_error: of an estimate with central differential privacy at the same epsilon.
    """

    share: float
    std_error: float
    half_width: float
    central_std_error: float


@dataclass(frozen=True)
class Plan:
    """What to expect of one mechanism with n reports.

    Attributes:
        mechanism: the oracle; has epsilon, d, report_bits and counters.
        n: number of reports.
        level: of the intervals.
        precision: one row per share.
        detectable_share: the least share that is marked "present" nine times out of ten; None where even a share
            of one is not.
    """

    mechanism: Mechanism
    n: int
    level: float
    precision: tuple[Precision, ...]
    detectable_share: float | None


def std_error(mechanism: Mechanism, n: float, share: float) -> float:
    """Standard error of the estimate, target "population": sqrt(pi(1-pi)/n)/(p-q), pi = q + share (p-q)."""
    pi = mechanism.q + share * mechanism.gap
    return math.sqrt(pi * (1 - pi) / n) / mechanism.gap


def half_width(mechanism: Mechanism, n: int, share: float, level: float) -> float:
    """Half the width of the published interval, where the count is the expected one (rounded)."""
    expected = round(n * (mechanism.q + share * mechanism.gap))
    interval = debiased(mechanism, default_interval(np.array([expected]), n, level))
    return float(interval.upper[0] - interval.lower[0]) / 2


def central_std_error(epsilon: float, n: float, share: float) -> float:
    """Standard error of a share with central differential privacy: sampling, and the Laplace mechanism's noise.

    Dwork, McSherry, Nissim, Smith, TCC 2006. Neighbouring data sets replace one device's answer, as local
    privacy does: that moves two counts of the histogram by one each, so the noise has scale 2/epsilon.
    """
    laplace_variance = 2 * (2 / epsilon) ** 2
    return math.sqrt(share * (1 - share) / n + laplace_variance / n**2)


def detectable_share(mechanism: Mechanism, n: int, level: float) -> float | None:
    """The least share that n reports mark "present" with probability DETECTION_POWER; None where none is.

    Exact: the mark asks for a count that absence reaches with probability (1-level)/d at most, and the share is
    found by bisection on the binomial probability of such a count.
    """
    threshold = _present_from(mechanism, n, (1 - level) / mechanism.d)
    if threshold > n or _tail(threshold, n, mechanism.p) < DETECTION_POWER:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        seen = _tail(threshold, n, mechanism.q + middle * mechanism.gap) >= DETECTION_POWER
        low, high = (low, middle) if seen else (middle, high)
    return high


def _tail(count: int, n: int, chance: float) -> float:
    """Pr[Binomial(n, chance) >= count], for 1 <= count <= n."""
    return float(betainc(count, n - count + 1, chance))


def _present_from(mechanism: Mechanism, n: int, alpha: float) -> int:
    """The least count that noise alone reaches with probability ``alpha`` at most; n + 1 where there is none."""
    low, high = 0, n + 1  # noise alone reaches `low` too often; `high` never
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _tail(middle, n, mechanism.q) <= alpha else (middle, high)
    return high


def plan(mechanism: Mechanism, n: int, level: float = 0.95, shares: Sequence[float] = SHARES) -> Plan:
    """What to expect of ``n`` reports.

    Args:
        mechanism: from `dither_protocol.mechanism`, ``auto`` included.
        n: number of reports, 1 to MAX_REPORTS.
        level: of the intervals, in (0, 1).
        shares: true shares at which to state the errors, each in [0, 1].

    Raises:
        EstimationError: an argument is outside its range.
    """
    if type(n) is not int or not 1 <= n <= MAX_REPORTS:
        raise EstimationError(f"n must be a whole number from 1 to {MAX_REPORTS}")
    _check_shares(shares)
    rows = tuple(
        Precision(
            share,
            std_error(mechanism, n, share),
            half_width(mechanism, n, share, level),
            central_std_error(mechanism.epsilon, n, share),
        )
        for share in shares
    )
    return Plan(mechanism, n, level, rows, detectable_share(mechanism, n, level))


def reports_for(mechanism: Mechanism, margin: float, share: float = 0.1, level: float = 0.95) -> int:
    """How many reports it takes until the interval of a value of this share is at most +- ``margin``.

    Args:
        mechanism: the oracle.
        margin: half width of the interval, in (0, 1).
        share: true share of the value, in [0, 1].
        level: of the interval, in (0, 1).

    Raises:
        EstimationError: an argument is outside its range, or even MAX_REPORTS reports are too few.
    """
    if not 0 < margin < 1:
        raise EstimationError("the margin must be between 0 and 1, both excluded")
    _check_shares([share])
    if half_width(mechanism, MAX_REPORTS, share, level) > margin:
        raise EstimationError(f"this margin takes more than {MAX_REPORTS:,} reports")
    low, high = 0, 1
    while half_width(mechanism, high, share, level) > margin:
        low, high = high, 2 * high
    while high - low > 1:  # the rounding of the count moves the half width by a thousandth either way
        middle = (low + high) // 2
        low, high = (low, middle) if half_width(mechanism, middle, share, level) <= margin else (middle, high)
    return high


def central_reports_for(epsilon: float, margin: float, share: float = 0.1, level: float = 0.95) -> int:
    """The same for central differential privacy: sampling by its normal quantile, the noise by Laplace's own.

    Both are added as independent errors are; where one of them dominates, that is its exact interval.
    """
    z = -float(ndtri((1 - level) / 2))
    tail = -math.log(1 - level) * 2 / epsilon  # Pr[|Laplace(2/epsilon)| > tail] = 1 - level

    def half(n: int) -> float:
        return math.hypot(z * math.sqrt(share * (1 - share) / n), tail / n)

    low, high = 0, 1
    while half(high) > margin:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if half(middle) <= margin else (middle, high)
    return high


def plan_document(
    mechanism: Mechanism,
    reports: Sequence[int],
    margin: float | None,
    level: float,
    *,
    group: Sequence[float] = (),
) -> dict[str, Any]:
    """A plan for each number of reports, and how many a margin takes, as plain objects.

    Of a memoised metric also the floors: the standard error that stays, however often so many devices report. Of one
    of several metrics of which a device answers one per window: what its share of so many devices' reports tells, an
    equal part of them, which makes intervals wider by the square root of the number of metrics.

    Args:
        mechanism: the oracle.
        reports: numbers of reports; with a ``group`` of devices, each with one report in the window.
        margin: half width of the interval to reach; None where none is asked for.
        level: of the intervals, in (0, 1).
        group: epsilons of the metrics of which a device answers one per window, this one's included.

    Raises:
        EstimationError: an argument is outside its range, or the margin takes more than MAX_REPORTS reports.
    """
    members = max(1, len(group))
    answer: dict[str, Any] = {
        "mechanism": mechanism.name,
        "epsilon": mechanism.epsilon,
        "values": mechanism.d,
        "report_bits": mechanism.report_bits,
        "counters": mechanism.counters,
        "target": "population",
        "level": level,
        "plans": [_plan_document(plan(mechanism, _share(n, members), level)) for n in reports],
    }
    if members > 1:
        answer["one_of"] = {
            "members": members,
            "interval_factor": math.sqrt(members),
            "epsilon_charged": max(group),
            "epsilon_otherwise": math.fsum(group),
        }
        for entry, devices in zip(answer["plans"], reports, strict=True):
            entry["devices"] = devices
    if isinstance(mechanism, Memoized):
        answer["memoized"] = {
            "epsilon_permanent": mechanism.epsilon_permanent,
            "epsilon_second_round": mechanism.second_epsilon,
            "floors": [
                {"devices": n, "share": share, "std_error": std_error_floor(mechanism, n, share)}
                for n in reports
                for share in SHARES
            ],
        }
    if margin is not None:
        answer["margin"] = margin
        answer["reports_for_margin"] = [
            {
                "share": share,
                "reports": reports_for(mechanism, margin, share, level),
                "central_reports": central_reports_for(mechanism.epsilon, margin, share, level),
            }
            for share in SHARES
        ]
        for row in answer["reports_for_margin"] if members > 1 else ():
            row["devices"] = row["reports"] * members
    return answer


def _share(devices: int, members: int) -> int:
    """Reports about one of so many metrics, where each device answers one of them: the expected number, cut."""
    if devices < members:
        raise EstimationError(f"{devices} devices are too few for a group of {members} metrics")
    return devices // members


def _plan_document(result: Plan) -> dict[str, Any]:
    return {
        "n": result.n,
        "detectable_share": result.detectable_share,
        "precision": [asdict(row) for row in result.precision],
    }


def _check_shares(shares: Sequence[float]) -> None:
    if not all(0 <= share <= 1 for share in shares):
        raise EstimationError("a share must be in [0, 1]")
