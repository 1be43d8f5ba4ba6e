"""``projective``: report a point of a finite projective space, one orthogonal to the value's point more often.

Feldman, Nelson, Nguyen, Talwar, ICML 2022 (arXiv:2203.00194), projective geometry response.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms.shapes import IndexReports, TwoWeights

MAX_POINTS: Final = 1 << 20
MAX_POINTS_PER_VALUE: Final = 16


def points(r: int, t: int) -> int:
    """Number of points of PG(t-1, F_r): (r^t - 1)/(r - 1); none for t = 0."""
    return int((r**t - 1) // (r - 1))


def primes_from(start: int) -> Iterator[int]:
    """The primes from ``start`` on, by trial division: they are small."""
    candidate = max(2, start)
    while True:
        divisor = 2
        while divisor * divisor <= candidate and candidate % divisor:
            divisor += 1
        if divisor * divisor > candidate:
            yield candidate
        candidate += 1


class ProjectiveGeometryResponse(IndexReports, TwoWeights):
    """Points orthogonal to the true value's point weigh ``truth_weight`` each, the others ``lie_weight``.

    Value v is point v of PG(t-1, F_r), points written with first nonzero coordinate 1 and taken in lexicographic
    order; v supports the points orthogonal to it. Each point is orthogonal to a others, two points together to b.

    Raises:
        MechanismError: no prime gives a space of at least d points within the limits.
    """

    name: ClassVar[str] = "projective"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._space is None:
            raise MechanismError("no projective space fits these parameters")

    @cached_property
    def _space(self) -> tuple[int, int] | None:
        """(r, t) of least variance at f = 1/d; ties go to the smaller r."""
        limit = min(MAX_POINTS_PER_VALUE * self.d, MAX_POINTS)
        return min(self._spaces(limit), key=lambda space: (self._variance(*space), space), default=None)

    def _spaces(self, limit: int) -> Iterator[tuple[int, int]]:
        """Every (r, t) with t the smallest that gives d points, and at most ``limit`` points.

        For t = 2 a report is a permuted grr over r + 1 values, worse the larger r is: the first prime is enough.
        """
        for r in primes_from(2):
            t = 3
            while points(r, t) < self.d:
                t += 1
            if r + 1 >= self.d or points(r, 3) > limit:
                break
            if points(r, t) <= limit:
                yield r, t
        plane = next(primes_from(self.d - 1))
        if points(plane, 2) <= limit:
            yield plane, 2

    def _variance(self, r: int, t: int) -> float:
        p, q = (float(share) for share in self._shares(r, t))
        f = 1 / self.d
        return (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (p - q) ** 2

    def _shares(self, r: int, t: int) -> tuple[Fraction, Fraction]:
        """P and q in PG(t-1, F_r)."""
        a, b = points(r, t - 1), points(r, t - 2)
        total = self.truth_weight * a + self.lie_weight * (points(r, t) - a)
        return (
            Fraction(self.truth_weight * a, total),
            Fraction(self.truth_weight * b + self.lie_weight * (a - b), total),
        )

    @property
    def r(self) -> int:
        """The prime: coordinates are integers modulo r."""
        return self._space[0] if self._space else 0

    @property
    def t(self) -> int:
        """Number of coordinates of a point."""
        return self._space[1] if self._space else 0

    @cached_property
    def orthogonal(self) -> int:
        """a, the number of points that support a value."""
        return points(self.r, self.t - 1)

    @cached_property
    def total_weight(self) -> int:
        """Sum of the weights of all points."""
        return self.truth_weight * self.orthogonal + self.lie_weight * (self.counters - self.orthogonal)

    @cached_property
    def p_exact(self) -> Fraction:
        return self._shares(self.r, self.t)[0]

    @cached_property
    def q_exact(self) -> Fraction:
        return self._shares(self.r, self.t)[1]

    @cached_property
    def loss_probability_exact(self) -> Fraction:
        # -epsilon is a point orthogonal to the other answer's point and not to the true one's: there are a - b.
        apart = self.orthogonal - points(self.r, self.t - 2)
        return Fraction(apart * self.lie_weight, self.total_weight)

    @cached_property
    def counters(self) -> int:
        return points(self.r, self.t)
