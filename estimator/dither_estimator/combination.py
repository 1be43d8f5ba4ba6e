"""Several versions of a metric over one range: their estimates combined, weighted by n (design section 5).

Versions may differ in mechanism and epsilon, so their counters cannot be added; their estimates can. The rule
holds for versions with the same domain only; others are shown side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither_estimator.errors import EstimationError
from dither_estimator.estimation import Estimates, present
from dither_estimator.postprocess import norm_sub

Floats: TypeAlias = NDArray[np.float64]

MOVER: Final = "mover"


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth value to compare by
class Combined:
    """What several independent sets of reports say together about every value of one domain.

    Attributes:
        estimate: sum of n_i/n estimate_i, float64 of shape (d,); unbiased for the mixture of the reporters.
        std_error: square root of the sum of (n_i/n)^2 variance_i.
        lower: lower ends of the raw intervals.
        upper: upper ends of the raw intervals.
        norm_sub: the nearest distribution.
        present: whether any part alone shows the value to be there, simultaneously over parts and domain.
        method: "mover" for each value.
        n: reports in all parts.
        level: confidence level.
        parts: what was combined.
    """

    estimate: Floats
    std_error: Floats
    lower: Floats
    upper: Floats
    norm_sub: Floats
    present: NDArray[np.bool_]
    method: NDArray[np.str_]
    n: int
    level: float
    parts: tuple[Estimates, ...]


def combine(parts: Sequence[Estimates]) -> Combined:
    """Combine estimates of one domain from independent sets of reports.

    The intervals are by the method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27,
    2008): each part's own interval gives its variance near its lower and near its upper end, so that the result
    is as lopsided as the parts are, where a normal interval would not be.

    Args:
        parts: at least one, each with n > 0, of one d, level and target; none simultaneous.

    Raises:
        EstimationError: the parts do not fit together.
    """
    if not parts or any(part.n == 0 for part in parts):
        raise EstimationError("combining takes at least one part, and reports in each")
    if len({(part.mechanism.d, part.level, part.target, part.simultaneous) for part in parts}) > 1:
        raise EstimationError("the parts must agree in domain size, level, target and kind of interval")
    n = sum(part.n for part in parts)
    weights = [part.n / n for part in parts]
    pairs = list(zip(weights, parts, strict=True))
    shares = sum((w * part.estimate for w, part in pairs), np.zeros(parts[0].mechanism.d))
    below = [w * (part.estimate - part.lower) for w, part in pairs]
    above = [w * (part.upper - part.estimate) for w, part in pairs]
    return Combined(
        estimate=shares,
        std_error=_root_of_squares([w * part.std_error for w, part in pairs]),
        lower=shares - _root_of_squares(below),
        upper=shares + _root_of_squares(above),
        norm_sub=norm_sub(shares),
        present=_present(parts),
        method=np.full(shares.shape, MOVER),
        n=n,
        level=parts[0].level,
        parts=tuple(parts),
    )


def _root_of_squares(terms: Sequence[Floats]) -> Floats:
    total: Floats = np.sqrt(np.square(np.stack(terms)).sum(axis=0))
    return total


def _present(parts: Sequence[Estimates]) -> NDArray[np.bool_]:
    """Whether any part alone shows a value to be there, at a level that all parts and values share (Bonferroni).

    Exact, whatever the counts: a value that nobody holds is marked in any part with probability at most 1 - level.
    A normal limit on the weighted estimate would be far off where a part expects few supporting reports by chance.
    """
    found: NDArray[np.bool_] = np.any([present(part, shared_by=len(parts)) for part in parts], axis=0)
    return found
