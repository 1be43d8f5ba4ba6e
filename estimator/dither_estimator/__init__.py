"""From counts to estimates: unbiased frequencies with honest intervals.

`count` and `estimate` are what most callers need; the worker that reads and publishes stands in its own modules,
which this package does not import. The names here are imported when they are first used, so that the worker's
entry point can say what is not installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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

_HOME: Final = {
    "Estimates": "estimation",
    "EstimationError": "errors",
    "count": "counting",
    "count_packed": "counting",
    "estimate": "estimation",
    "norm_sub": "postprocess",
    "support": "counting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return found
