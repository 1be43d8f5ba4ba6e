"""How a cost grows with a size: the exponent where the sizes are large, and the knee. Pure.

An exponent is the slope of a straight line through the logarithms, by least squares: 0 for a cost that does not
depend on the size, 1 for one in proportion to it, 2 for its square. n log n has about 1.1 over a decade of large n.

The knee is where a cost turns from constant to proportional: of a + b x, fitted so that relative errors count alike
over all sizes, it is a/b, the size at which the part that grows is as large as the part that does not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MOST_EXPONENT: Final = 1.15
"""A larger exponent over the largest sizes is faster than linear growth; n log n stays below it."""

DECADE: Final = 10.0
_FEWEST_POINTS: Final = 3
_LITTLE: Final = 0.25
"""A part that grows, and is less than this of the cost at the largest size, makes no knee."""

Points = Sequence[tuple[float, float]]
"""(size, cost), by rising size; both positive."""


@dataclass(frozen=True)
class Line:
    """A cost of ``fixed`` + ``each`` * size, neither of them negative.

    Attributes:
        fixed: what any size costs, in the unit of the cost.
        each: what one more costs.
        error: root of the mean squared relative error of the fit.
    """

    fixed: float
    each: float
    error: float

    @property
    def knee(self) -> float:
        """The size from which on the size is most of the cost; infinite where it never is."""
        return self.fixed / self.each if self.each else math.inf


def exponent(points: Points) -> float:
    """The slope of log cost over log size, by least squares.

    Raises:
        ValueError: there are fewer than two sizes.
    """
    if len({size for size, _ in points}) < 2:
        raise ValueError("an exponent needs two sizes")
    xs = [math.log(size) for size, _ in points]
    ys = [math.log(cost) for _, cost in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread


def upper(points: Points) -> Points:
    """The points whose law is judged: the upper half of the sizes' logarithms, at least a decade and three points."""
    sizes = [size for size, _ in points]
    least = min(math.sqrt(sizes[0] * sizes[-1]), sizes[-1] / DECADE)
    found = [point for point in points if point[0] >= least * (1 - 1e-9)]
    return found if len(found) >= _FEWEST_POINTS else points[-_FEWEST_POINTS:]


def line(points: Points) -> Line:
    """The line of least squared relative error with no negative part.

    Minimises the sum of ((a + b x - y) / y)^2, which is linear least squares of 1 on 1/y and x/y.

    Raises:
        ValueError: there is no point, or a cost is not positive.
    """
    if not points or any(cost <= 0 for _, cost in points):
        raise ValueError("a line needs positive costs")
    us = [1 / cost for _, cost in points]
    vs = [size / cost for size, cost in points]
    uu, vv = sum(u * u for u in us), sum(v * v for v in vs)
    uv = sum(u * v for u, v in zip(us, vs, strict=True))
    u1, v1 = sum(us), sum(vs)
    fixed, each = max(0.0, u1 / uu), 0.0
    determinant = uu * vv - uv * uv
    if determinant > 1e-12 * uu * vv:
        fixed = (u1 * vv - v1 * uv) / determinant
        each = (v1 * uu - u1 * uv) / determinant
        if each < 0:
            fixed, each = u1 / uu, 0.0
        elif fixed < 0:
            fixed, each = 0.0, v1 / vv
    squares = sum((fixed * u + each * v - 1) ** 2 for u, v in zip(us, vs, strict=True))
    return Line(fixed, each, math.sqrt(squares / len(points)))


def faster_than_linear(points: Points) -> bool:
    """Whether a cost grows faster than its size where that is large."""
    return exponent(upper(points)) > MOST_EXPONENT


def knee_words(points: Points, what: str) -> str:
    """The size from which on the cost is in proportion to it, in words.

    Args:
        points: of the curve.
        what: the name of the size, in the plural.
    """
    fitted = line(points)
    least, most = points[0][0], points[-1][0]
    if fitted.each * most < _LITTLE * (fitted.fixed + fitted.each * most):
        return f"none up to {_number(most)} {what}"
    if fitted.knee < 2 * least:
        return "in proportion from the start"
    if fitted.knee >= most:
        return f"beyond {_number(most)} {what}"
    return f"about {_number(fitted.knee)} {what}"


def _number(size: float) -> str:
    """Two digits are all that a knee has."""
    if size < 10:
        return f"{size:.2g}"
    return f"{round(size, 1 - math.floor(math.log10(size))):,.0f}"
