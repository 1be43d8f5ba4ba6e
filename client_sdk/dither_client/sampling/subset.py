"""Sampler of ``subset``."""

from typing import cast

from dither_client import entropy
from dither_protocol.mechanisms import Mechanism, SubsetSelection
from dither_protocol.mechanisms.forms import encode_base64url

_WORD_BYTES = 4
_WORDS = 1 << 32


class _Words:
    """Uniform integers from a pool of 32-bit words that the operating system fills in large reads."""

    def __init__(self, expected: int) -> None:
        self._size = _WORD_BYTES * (expected + 16)  # a few more, for words that are rejected
        self._pool = memoryview(b"")

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound), bound <= 2^32: words beyond the last whole multiple are rejected."""
        limit = _WORDS - _WORDS % bound
        while True:
            if not self._pool:
                self._pool = memoryview(entropy.random_bytes(self._size))
            word = int.from_bytes(self._pool[:_WORD_BYTES], "little")
            self._pool = self._pool[_WORD_BYTES:]
            if word < limit:
                return word % bound


def uniform_subset(population: int, size: int) -> int:
    """A uniform subset of [0, population) with ``size`` elements, as an integer with one bit per element.

    Floyd's algorithm (Bentley and Floyd, Communications of the ACM 30(9), 1987): each step draws among one more
    element, and takes the newest one where the draw is taken already.
    """
    words = _Words(size)
    taken = bytearray(population)
    for newest in range(population - size, population):
        draw = words.below(newest + 1)
        taken[newest if taken[draw] else draw] = 1
    # "0" and "1" characters, last element first, are the integer in binary.
    return int(taken[::-1].translate(_DIGITS) or b"0", 2)


_DIGITS = bytes([48, 49]) + bytes(254)


def sample(mechanism: Mechanism, index: int) -> str:
    """The truth is in or out by weight; the other places go to a uniform subset of the other values.

    The bit of the truth is then put in its place among the others. Every subset of a kind is equally likely, and
    a string of bits has no order that could tell the truth from the rest.
    """
    subset = cast(SubsetSelection, mechanism)
    with_truth = subset.w * subset.truth_weight
    draw = entropy.below(with_truth + (subset.d - subset.w) * subset.lie_weight)
    inside = int(draw < with_truth)
    others = uniform_subset(subset.d - 1, subset.w - inside)
    low = others & ((1 << index) - 1)
    bits = low | inside << index | others >> index << (index + 1)
    return encode_base64url(bits.to_bytes(subset.packed_size, "little"))
