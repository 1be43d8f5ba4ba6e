"""From counts to estimates: unbiased frequencies with honest intervals.

`count` and `estimate` are what most callers need; the worker that reads and publishes stands in its own modules,
which this package does not import.
"""

from dither_estimator.counting import count, count_packed, support
from dither_estimator.errors import EstimationError
from dither_estimator.estimation import Estimates, estimate
from dither_estimator.postprocess import norm_sub

__all__ = [
    "Estimates",
    "EstimationError",
    "count",
    "count_packed",
    "estimate",
    "norm_sub",
    "support",
]
