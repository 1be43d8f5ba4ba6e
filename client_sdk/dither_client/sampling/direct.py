"""Sampler of ``grr`` and ``rr``."""

from typing import cast

from dither_client import entropy
from dither_protocol.mechanisms import GeneralizedRandomizedResponse, Mechanism


def sample(mechanism: Mechanism, index: int) -> int:
    """The truth with weight ``truth_weight``, each other value with weight ``lie_weight``.

    One uniform draw over all weights decides. The weights are laid out as an excess of the truth, then one
    equal share for every shift: shift s means the value index + s mod d, and shift 0 is the truth again.
    """
    grr = cast(GeneralizedRandomizedResponse, mechanism)
    excess = grr.truth_weight - grr.lie_weight
    draw = entropy.below(grr.total_weight)
    shift = max(0, draw - excess) // grr.lie_weight
    return (index + shift) % grr.d
