"""Sampler of ``olh`` and ``blh``."""

from typing import cast

from dither_client import entropy
from dither_protocol.hashing import bucket
from dither_protocol.mechanisms import LocalHashing, Mechanism
from dither_protocol.mechanisms.forms import SEEDS


def sample(mechanism: Mechanism, index: int) -> list[int]:
    """A fresh seed, and the value's bucket under it: kept with weight ``truth_weight``, or any other one."""
    hashing = cast(LocalHashing, mechanism)
    seed = entropy.below(SEEDS)
    excess = hashing.truth_weight - hashing.lie_weight
    draw = entropy.below(hashing.total_weight)
    shift = max(0, draw - excess) // hashing.lie_weight
    return [seed, (bucket(seed, index, hashing.g) + shift) % hashing.g]
