"""The hash family of local hashing: identical on devices and in the estimator, pinned by test vectors.

A 32-bit seed gives two 64-bit numbers a and b, outputs 2 seed + 1 and 2 seed + 2 of the generator SplitMix64
(Steele, Lea, Flood, OOPSLA 2014) started at 0. The hash of v < 2^16 is

    x = (a v + b) mod 2^64,    H(v) = floor((x >> 15) g / 2^49)

For uniform a and b the upper 49 bits of x are pairwise independent over 16-bit v (Dietzfelbinger, STACS 1996,
theorem 3; Thorup, arXiv:1504.06804, section 3.3: 64 >= 16 + 49 - 1), so two values share one of g <= 2^30
buckets with probability 1/g up to (g / 2^49)^2. The privacy of a report does not rest on the hash at all, since
the seed is drawn without regard to the value.

x is linear in v: counting walks over all values with one addition and one comparison each.
"""

from typing import Final

MASK: Final = (1 << 64) - 1
GOLDEN: Final = 0x9E3779B97F4A7C15
MIX_1: Final = 0xBF58476D1CE4E5B9
MIX_2: Final = 0x94D049BB133111EB
HASH_BITS: Final = 49
DROPPED_BITS: Final = 15


def _mix(z: int) -> int:
    z = (z ^ z >> 30) * MIX_1 & MASK
    z = (z ^ z >> 27) * MIX_2 & MASK
    return z ^ z >> 31


def coefficients(seed: int) -> tuple[int, int]:
    """The numbers (a, b) of one seed, each in [0, 2^64)."""
    return _mix((2 * seed + 1) * GOLDEN & MASK), _mix((2 * seed + 2) * GOLDEN & MASK)


def bucket(seed: int, value: int, g: int) -> int:
    """H_seed(value) in [0, g).

    Args:
        seed: 32 bits.
        value: index of a value, below 2^16.
        g: number of buckets, at most 2^30.
    """
    a, b = coefficients(seed)
    return ((a * value + b & MASK) >> DROPPED_BITS) * g >> HASH_BITS
