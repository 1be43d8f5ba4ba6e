"""Sampler of ``hadamard``."""

from typing import cast

from dither_client import entropy
from dither_protocol.mechanisms import HadamardResponse, Mechanism


def sample(mechanism: Mechanism, index: int) -> int:
    """A uniform index of the half that supports the value, or of the other half.

    Flipping one bit that the value's row has set moves an index from one half to the other, one to one. So a
    uniform index is moved exactly if it is not in the half that was drawn.
    """
    hadamard = cast(HadamardResponse, mechanism)
    row = index + 1
    total = hadamard.truth_weight + hadamard.lie_weight
    outside = int(entropy.below(total) >= hadamard.truth_weight)
    column = entropy.below(hadamard.order)
    move = ((row & column).bit_count() & 1) ^ outside
    return column ^ (row & -row) * move
