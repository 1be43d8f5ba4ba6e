"""Calibration metrics: the device draws the answer itself, by shares that the registry makes known.

The answer has nothing to do with the person or the app. It is randomised, charged and sent like any other, so that
what comes out at the end can be held against the truth.
"""

from collections.abc import Sequence
from itertools import accumulate

from dither_client import entropy


def draw(weights: Sequence[int]) -> int:
    """An index with probability exactly its weight over the sum of all; every weight is looked at, whatever is drawn.

    Args:
        weights: whole numbers >= 0, not all 0.
    """
    below = list(accumulate(weights))
    drawn = entropy.below(below[-1])
    return sum(drawn >= end for end in below)
