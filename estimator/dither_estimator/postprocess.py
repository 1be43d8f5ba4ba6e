"""Post-processing: estimates made consistent, beside the unbiased ones and never in their place."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dither_estimator.errors import EstimationError


def norm_sub(estimate: ArrayLike) -> NDArray[np.float64]:
    """The nearest distribution: the exact Euclidean projection on the probability simplex.

    "Norm-Sub" of Wang et al., NDSS 2020, subtracts one constant and cuts at zero, with the constant that makes
    the sum one. That is the projection, and sorting finds it (Duchi et al., ICML 2008, figure 1).

    Args:
        estimate: real numbers of shape (d,), d >= 1; any sum.

    Returns:
        float64 of shape (d,), each in [0, 1], the sum 1 within rounding.

    Raises:
        EstimationError: another shape, or a number that is not finite.
    """
    values = np.asarray(estimate, dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise EstimationError("norm_sub takes one row of at least one finite number")
    # The projection does not change with a constant added to all values; with the greatest at zero, large
    # values lose no digits of the sum.
    values = values - values.max()
    descending = np.sort(values)[::-1]
    excess = np.cumsum(descending) - 1
    sizes = np.arange(1, values.size + 1)
    kept = int(np.flatnonzero(descending * sizes > excess)[-1]) + 1
    projected: NDArray[np.float64] = np.maximum(values - excess[kept - 1] / kept, 0.0)
    return projected
