"""The laws of reports, written from design section 6 and the integer weights: a second way to p, q and support.

Nothing here uses a mechanism's p or q, the estimator's transforms or its hashing on arrays.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from math import prod
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dither_protocol import Mechanism
from dither_protocol.hashing import bucket
from dither_protocol.mechanisms import (
    Data,
    GeneralizedRandomizedResponse,
    HadamardResponse,
    LocalHashing,
    ProjectiveGeometryResponse,
    SubsetSelection,
    UnaryEncoding,
)

SCALE = 1 << 32
IndexMechanism = GeneralizedRandomizedResponse | HadamardResponse | ProjectiveGeometryResponse


@cache
def projective_points(r: int, t: int) -> list[tuple[int, ...]]:
    """All vectors over F_r whose first nonzero coordinate is 1, in lexicographic order."""
    vectors = product(range(r), repeat=t)
    return [vector for vector in vectors if next((x for x in vector if x), 0) == 1]


def support_matrix(made: Mechanism) -> NDArray[np.bool_]:
    """Whether value v (row) supports index y (column), of a mechanism that reports an index."""
    if isinstance(made, GeneralizedRandomizedResponse):
        return np.eye(made.d, dtype=np.bool_)
    if isinstance(made, HadamardResponse):
        common = np.arange(1, made.d + 1)[:, None] & np.arange(made.order)[None, :]
        even: NDArray[np.bool_] = np.bitwise_count(common) & 1 == 0
        return even
    space = cast(ProjectiveGeometryResponse, made)
    vectors = np.array(projective_points(space.r, space.t))
    orthogonal: NDArray[np.bool_] = vectors[: made.d] @ vectors.T % space.r == 0
    return orthogonal


def index_law(made: Mechanism, held: int) -> NDArray[np.float64]:
    """The probability of every index: each supporting one is e^epsilon times as likely as each other one."""
    weighted = cast(IndexMechanism, made)
    weights = np.where(support_matrix(made)[held], weighted.truth_weight / weighted.lie_weight, 1.0)
    law: NDArray[np.float64] = weights / weights.sum()
    return law


def _bit_text(bits: int, d: int) -> str:
    raw = bits.to_bytes((d + 7) // 8, "little")
    return urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def bits_of(text: str) -> int:
    """A bit report as an integer, item v at bit v."""
    return int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "little")


def supports(made: Mechanism, data: Data, v: int) -> bool:
    """Whether value v supports the report."""
    if isinstance(data, str):
        return bool(bits_of(data) >> v & 1)
    if isinstance(data, list):
        return bucket(data[0], v, cast(LocalHashing, made).g) == data[1]
    if isinstance(made, HadamardResponse):
        return (v + 1 & data).bit_count() % 2 == 0
    if isinstance(made, ProjectiveGeometryResponse):
        points = projective_points(made.r, made.t)
        return sum(x * y for x, y in zip(points[v], points[data], strict=True)) % made.r == 0
    return data == v


def report_law(made: Mechanism, held: int, seed: int = 0) -> dict[Data, Fraction]:
    """The exact probability of every report of a small domain, from the sampler's integers.

    Of local hashing: given the seed; keys are the buckets.
    """
    if isinstance(made, UnaryEncoding):
        chance = [made.keep_threshold if v == held else made.noise_threshold for v in range(made.d)]
        return {
            _bit_text(bits, made.d): Fraction(
                prod(t if bits >> v & 1 else SCALE - t for v, t in enumerate(chance)), SCALE**made.d
            )
            for bits in range(1 << made.d)
        }
    weights: dict[Data, int]
    if isinstance(made, SubsetSelection):
        weights = {
            _bit_text(sum(1 << v for v in chosen), made.d): (
                made.truth_weight if held in chosen else made.lie_weight
            )
            for chosen in combinations(range(made.d), made.w)
        }
    elif isinstance(made, LocalHashing):
        true = bucket(seed, held, made.g)
        weights = {y: made.truth_weight if y == true else made.lie_weight for y in range(made.g)}
    else:
        weighted = cast(IndexMechanism, made)
        row = support_matrix(made)[held]
        weights = {y: weighted.truth_weight if row[y] else weighted.lie_weight for y in range(row.size)}
    total = sum(weights.values())
    return {data: Fraction(weight, total) for data, weight in weights.items()}
