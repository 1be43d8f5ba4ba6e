"""Frequency oracles: how an answer is randomised, and what that does to its counts.

One file per family; `mechanism` finds them by name. README.md lists the places that a new one touches.
"""

from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms.base import MAX_D, MAX_EPSILON, MIN_EPSILON, Form, Mechanism
from dither_protocol.mechanisms.direct import GeneralizedRandomizedResponse, RandomizedResponse
from dither_protocol.mechanisms.unary import OptimizedUnaryEncoding, SymmetricUnaryEncoding

__all__ = [
    "MAX_D",
    "MAX_EPSILON",
    "MECHANISMS",
    "MIN_EPSILON",
    "Form",
    "GeneralizedRandomizedResponse",
    "Mechanism",
    "OptimizedUnaryEncoding",
    "RandomizedResponse",
    "SymmetricUnaryEncoding",
    "mechanism",
]

MECHANISMS: dict[str, type[Mechanism]] = {
    cls.name: cls
    for cls in (
        RandomizedResponse,
        GeneralizedRandomizedResponse,
        SymmetricUnaryEncoding,
        OptimizedUnaryEncoding,
    )
}
"""Every mechanism by its name, in the order of the table in design section 6."""


def mechanism(name: str, epsilon: float, d: int) -> Mechanism:
    """The frozen mechanism of this name.

    Args:
        name: a key of MECHANISMS. ``rr`` is ``grr`` at d = 2.
        epsilon: declared privacy loss of one report, MIN_EPSILON to MAX_EPSILON.
        d: number of values in the domain, 2 to MAX_D.

    Raises:
        MechanismError: unknown name, or parameters outside their range.
    """
    if name not in MECHANISMS:
        raise MechanismError("unknown mechanism; known are " + ", ".join(MECHANISMS))
    return MECHANISMS[name](epsilon, d)
