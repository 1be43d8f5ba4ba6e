"""Sampler of ``projective``."""

from typing import cast

from dither_client import entropy
from dither_protocol.geometry import normalized, point, rank
from dither_protocol.mechanisms import Mechanism, ProjectiveGeometryResponse


def sample(mechanism: Mechanism, index: int) -> int:
    """A uniform point orthogonal to the value's point, or a uniform other point, by one draw over all weights.

    All coordinates but the one where the value's point has its first 1 are free; that one is solved for. Points
    of a space of one dimension less give each orthogonal point once (product 0); all vectors of that dimension
    give each other point once (product 1).
    """
    space = cast(ProjectiveGeometryResponse, mechanism)
    r, t = space.r, space.t
    draw = entropy.below(space.total_weight)
    orthogonal_weight = space.truth_weight * space.orthogonal
    if draw < orthogonal_weight:
        free, product = point(draw // space.truth_weight, r, t - 1), 0
    else:
        free, product = _vector((draw - orthogonal_weight) // space.lie_weight, r, t - 1), 1
    true = point(index, r, t)
    pivot = true.index(1)
    rest = true[:pivot] + true[pivot + 1 :]
    solved = (product - sum(x * y for x, y in zip(rest, free, strict=True))) % r
    return rank(normalized([*free[:pivot], solved, *free[pivot:]], r), r)


def _vector(number: int, r: int, length: int) -> list[int]:
    """The digits of ``number`` to the base r, most significant first."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, r)
        digits.append(digit)
    return digits[::-1]
