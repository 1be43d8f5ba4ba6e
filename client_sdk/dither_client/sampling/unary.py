"""Samplers of the unary encodings ``sue`` and ``oue``."""

from collections.abc import Callable
from functools import lru_cache
from typing import cast

from dither_client import entropy
from dither_protocol.mechanisms import Mechanism
from dither_protocol.mechanisms.forms import encode_base64url
from dither_protocol.mechanisms.unary import UnaryEncoding
from dither_protocol.mechanisms.weights import SCALE_BITS


def bernoulli_bits(threshold: int, count: int, digits: Callable[[int], bytes] | None = None) -> int:
    """``count`` independent bits as one integer, each 1 with probability exactly threshold / 2^32.

    A bit is 1 where a uniform 32-bit number lies below the threshold. Comparing from the lowest digit up, a 1
    in the threshold turns the verdict "below" into (digit 0 or below so far), a 0 into (digit 0 and below so
    far); all ``count`` comparisons run at once on big integers. Random digits are symmetric, so "digit 0" may
    be read as "digit 1". The zeros at the low end leave the verdict at "not below" and are skipped. Which
    steps are taken depends on the threshold, never on a value.

    Args:
        threshold: in [0, 2^32).
        count: number of bits, at least 1.
        digits: gives so many uniform bytes; the operating system's unless told otherwise.
    """
    steps = _steps(threshold)
    size = (count + 7) // 8
    pool = (digits or entropy.random_bytes)(size * len(steps))
    verdicts = 0
    at = 0
    for is_one in steps:
        drawn = int.from_bytes(pool[at : at + size], "little")
        at += size
        verdicts = verdicts | drawn if is_one else verdicts & drawn
    return verdicts & ((1 << count) - 1)


@lru_cache(maxsize=256)
def _steps(threshold: int) -> tuple[bool, ...]:
    """The binary digits of a threshold from its lowest 1 up; none for 0."""
    if threshold == 0:
        return ()
    skipped = (threshold & -threshold).bit_length() - 1
    return tuple(bool(threshold >> digit & 1) for digit in range(skipped, SCALE_BITS))


def sample(mechanism: Mechanism, index: int) -> str:
    """Every bit of the one-hot vector, each with its own threshold.

    All d bits are drawn with the noise threshold; the bit of the true value is then replaced by one drawn with
    the keep threshold. Nothing depends on the index but the place of that bit.
    """
    unary = cast(UnaryEncoding, mechanism)
    bits = bernoulli_bits(unary.noise_threshold, unary.d)
    kept = bernoulli_bits(unary.keep_threshold, 1)
    bits = bits & ~(1 << index) | kept << index
    return encode_base64url(bits.to_bytes(unary.packed_size, "little"))
