"""Calibration metrics: questions whose true answer is known by construction, so that estimates can be held against it.

The registry gives the true share of every label, and each device draws its answer by these shares itself, whoever sits
before it. What is counted and estimated then runs the whole way of any other metric, and the truth beside it is exact.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from dither_protocol.errors import RegistryError

TOLERANCE: Final = 1e-9
"""How far from one the shares may sum: decimals of thirds do not sum to it. They count in relation to each other."""


MAX_LABELS: Final = 1_024
"""So that what a server reads again and again to judge it stays small."""


def read_calibration(path: str, given: Mapping[str, Any], d: int, *, fresh: bool) -> tuple[int, ...] | None:
    """The whole weights of the true answers, in the order of the labels; None of a metric that asks a person.

    A share counts as the shortest decimal number that its double stands for, exactly: 0.1 is one tenth. So the weights
    are whole, and the same on every device.

    Args:
        path: of the metric's table.
        given: the table.
        d: number of labels.
        fresh: whether its collection is fresh: a memoised answer would not be drawn anew for each report.

    Raises:
        RegistryError: not one number >= 0 per label, or they do not sum to one.
    """
    if "calibration" not in given:
        return None
    where = f"{path}.calibration"
    if not fresh:
        raise RegistryError(where, "belongs to collection = 'fresh'")
    shares = given["calibration"]
    if not isinstance(shares, list | tuple) or len(shares) != d:
        raise RegistryError(where, f"must be a list of {d} shares, one for each label in their order")
    if d > MAX_LABELS:
        raise RegistryError(where, f"a calibration metric has at most {MAX_LABELS} labels")
    exact = [_share(f"{where}[{position}]", share) for position, share in enumerate(shares)]
    if abs(float(sum(exact) - 1)) > TOLERANCE:
        raise RegistryError(where, "the shares must sum to 1")
    scale = math.lcm(*(share.denominator for share in exact))
    weights = [int(share * scale) for share in exact]
    common = math.gcd(*weights)
    return tuple(weight // common for weight in weights)


def _share(path: str, value: object) -> Fraction:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return Fraction(repr(value))
    raise RegistryError(path, "must be a number from 0 to 1")
