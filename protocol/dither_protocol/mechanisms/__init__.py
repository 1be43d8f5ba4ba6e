"""Frequency oracles: how an answer is randomised, and what that does to its counts.

One file per family; `mechanism` finds them by name. README.md lists the places that a new one touches.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms.auto import best
from dither_protocol.mechanisms.base import MAX_D, MAX_EPSILON, MIN_EPSILON, Data, Form, Mechanism
from dither_protocol.mechanisms.direct import GeneralizedRandomizedResponse, RandomizedResponse
from dither_protocol.mechanisms.hadamard import HadamardResponse
from dither_protocol.mechanisms.local_hashing import BinaryLocalHashing, LocalHashing, OptimizedLocalHashing
from dither_protocol.mechanisms.projective import ProjectiveGeometryResponse
from dither_protocol.mechanisms.subset import SubsetSelection
from dither_protocol.mechanisms.unary import OptimizedUnaryEncoding, SymmetricUnaryEncoding, UnaryEncoding

if TYPE_CHECKING:
    from dither_protocol.mechanisms.chains import (
        Memoized,
        MemoizedBinaryResponse,
        MemoizedOptimizedUnaryEncoding,
        MemoizedResponse,
        MemoizedSymmetricUnaryEncoding,
        MemoizedUnaryEncoding,
        memoized,
    )

__all__ = [
    "AUTO",
    "MAX_D",
    "MAX_EPSILON",
    "MECHANISMS",
    "MIN_EPSILON",
    "BinaryLocalHashing",
    "Data",
    "Form",
    "GeneralizedRandomizedResponse",
    "HadamardResponse",
    "LocalHashing",
    "Mechanism",
    "Memoized",
    "MemoizedBinaryResponse",
    "MemoizedOptimizedUnaryEncoding",
    "MemoizedResponse",
    "MemoizedSymmetricUnaryEncoding",
    "MemoizedUnaryEncoding",
    "OptimizedLocalHashing",
    "OptimizedUnaryEncoding",
    "ProjectiveGeometryResponse",
    "RandomizedResponse",
    "SubsetSelection",
    "SymmetricUnaryEncoding",
    "UnaryEncoding",
    "candidates",
    "mechanism",
    "memoized",
]

AUTO = "auto"

_OF_CHAINS = frozenset(
    {
        "Memoized",
        "MemoizedBinaryResponse",
        "MemoizedOptimizedUnaryEncoding",
        "MemoizedResponse",
        "MemoizedSymmetricUnaryEncoding",
        "MemoizedUnaryEncoding",
        "memoized",
    }
)


def __getattr__(name: str) -> Any:
    """Chains are loaded when they are first used (PEP 562): most apps have no memoised metric."""
    if name not in _OF_CHAINS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dither_protocol.mechanisms import chains  # noqa: PLC0415

    return getattr(chains, name)


MECHANISMS: dict[str, type[Mechanism]] = {
    cls.name: cls
    for cls in (
        RandomizedResponse,
        GeneralizedRandomizedResponse,
        SymmetricUnaryEncoding,
        OptimizedUnaryEncoding,
        SubsetSelection,
        OptimizedLocalHashing,
        BinaryLocalHashing,
        HadamardResponse,
        ProjectiveGeometryResponse,
    )
}
"""Every mechanism by its name, in the order of the table in design section 6."""


def mechanism(name: str, epsilon: float, d: int) -> Mechanism:
    """The frozen mechanism of this name.

    Args:
        name: a key of MECHANISMS, or ``auto`` for the best by the rule of design section 6. ``rr`` is ``grr`` at
            d = 2.
        epsilon: declared privacy loss of one report, MIN_EPSILON to MAX_EPSILON.
        d: number of values in the domain, 2 to MAX_D.

    Raises:
        MechanismError: unknown name, or parameters outside their range.
    """
    if name == AUTO:
        GeneralizedRandomizedResponse(epsilon, d)  # refuses what no mechanism takes, before the cache sees it
        return _auto(float(epsilon), d)
    if name not in MECHANISMS:
        raise MechanismError("unknown mechanism; known are " + ", ".join([AUTO, *MECHANISMS]))
    return MECHANISMS[name](epsilon, d)


@lru_cache(maxsize=256)
def _auto(epsilon: float, d: int) -> Mechanism:
    return best(candidates(epsilon, d))


def candidates(epsilon: float, d: int) -> list[Mechanism]:
    """Every mechanism that exists for (epsilon, d), in the order of the table; `rr` goes by its name `grr`.

    Raises:
        MechanismError: epsilon or d is outside its range.
    """
    GeneralizedRandomizedResponse(epsilon, d)  # refuses what no mechanism takes
    found = []
    for cls in MECHANISMS.values():
        if cls is RandomizedResponse:
            continue
        try:
            found.append(cls(epsilon, d))
        except MechanismError:
            continue  # a projective space need not exist for every d
    return found
