"""What the supports of honest reports add up to, and totals that they could not (design section 10).

A report y supports |S(y)| values; over n honest reports that is n (p + (d-1) q) on average, whatever they hold. Who
makes up reports chooses those that support many values, such as seeds of local hashing, and raises the total. Pure.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from dither_estimator import transforms
from dither_estimator.counting import support
from dither_protocol import Mechanism
from dither_protocol.mechanisms import ProjectiveGeometryResponse

FLAGGED_FROM: Final = 6.0
"""Standard deviations: of honest totals one in 10^9 lies so far out."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SupportTotal:
    """The sum of the supports of n reports beside what honest ones give.

    Attributes:
        total: sum of C_v over all values.
        expected: its mean for honest reports.
        std_dev: its standard deviation for them, at most: it may depend on their answers, so the largest is taken. 0
            where every report supports equally many values.
        flagged: whether honest reports do not give such a total.
    """

    total: int
    expected: float
    std_dev: float
    flagged: bool


def support_total(mechanism: Mechanism, supporters: Ints, n: int) -> SupportTotal:
    """Compare the total of C, int64 of shape (d,), with that of ``n`` honest reports."""
    total = int(supporters.sum(dtype=object))
    exact = n * (mechanism.p_exact + (mechanism.d - 1) * mechanism.q_exact)
    std_dev = math.sqrt(n) * _size_std_dev(mechanism)
    # One report more or less than the mean is nothing, however small the deviation is.
    flagged = abs(total - exact) > max(FLAGGED_FROM * std_dev, 1.0 if std_dev else 0.0)
    return SupportTotal(total, float(exact), std_dev, flagged)


@lru_cache(maxsize=64)
def _size_std_dev(mechanism: Mechanism) -> float:
    """Standard deviation of |S(y)| of one honest report; the largest over the values that it may hold."""
    p, q, d = mechanism.p, mechanism.q, mechanism.d
    match mechanism.name:
        case "rr" | "grr" | "subset":
            return 0.0  # one value, or exactly w of them
        case "hadamard" | "projective":
            return _std_dev_of_sizes(mechanism, _sizes(mechanism))
    # Bits are drawn each by itself; the hashes of different values are independent.
    return math.sqrt(p * (1 - p) + (d - 1) * q * (1 - q))


def _sizes(mechanism: Mechanism) -> Ints:
    """|S(y)| for every report y: both geometries are symmetric, so it is a transform of the domain's indicator."""
    domain = np.zeros(mechanism.counters, dtype=np.int64)
    if mechanism.name == "hadamard":
        domain[1 : mechanism.d + 1] = 1
        return (mechanism.d + transforms.walsh_hadamard(domain)) // 2
    domain[: mechanism.d] = 1
    space = cast(ProjectiveGeometryResponse, mechanism)
    return transforms.orthogonal_sums(domain, space.r, space.t, mechanism.counters)


def _std_dev_of_sizes(mechanism: Mechanism, sizes: Ints) -> float:
    """A report is uniform among those that support its value with probability p, else among the others."""
    deviation = sizes - round(float(sizes.mean()))  # small numbers: their squares are summed exactly
    squares = deviation * deviation
    within, supporting = support(mechanism, squares), support(mechanism, np.ones_like(sizes))
    outside, others = int(squares.sum()) - within, sizes.size - supporting
    second = mechanism.p * within / supporting + (1 - mechanism.p) * outside / others
    mean = mechanism.p + (mechanism.d - 1) * mechanism.q - round(float(sizes.mean()))
    return math.sqrt(max(0.0, float(second.max()) - mean**2))
