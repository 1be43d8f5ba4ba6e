"""Populations: known true shares, and devices drawn from them with a seed.

Seeds are for populations only; the noise of an answer is always the operating system's.
"""

import csv
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from dither_protocol.errors import DitherError


class DistributionError(DitherError, ValueError):
    """A distribution file that is none: its message names the line."""


def read_distribution(lines: Iterable[str]) -> dict[str, float]:
    """Read ``value,share`` rows below one header row; lines that begin with ``#`` are remarks.

    Returns:
        Share by value, in the order of the file, scaled to sum to one.

    Raises:
        DistributionError: a row that is not (value, positive share), a value twice, or no row at all.
    """
    rows = csv.reader(line for line in lines if not line.startswith("#"))
    next(rows, None)
    shares: dict[str, float] = {}
    for number, row in enumerate(rows, start=2):
        try:
            value, share = row[0], float(row[1])
        except (IndexError, ValueError):
            raise DistributionError(f"row {number} is not value,share") from None
        if value in shares or not 0 < share < float("inf"):
            raise DistributionError(f"row {number} repeats a value or has no positive share")
        shares[value] = share
    if not shares:
        raise DistributionError("the file has no rows")
    total = sum(shares.values())
    return {value: share / total for value, share in shares.items()}


def draw(shares: Sequence[float], count: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """True values of ``count`` devices as an int64 array of indexes, each by itself with these shares."""
    return generator.choice(len(shares), size=count, p=np.asarray(shares)).astype(np.int64)
