"""Samplers of the unary encodings ``sue`` and ``oue``."""

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, NamedTuple, cast

from dither_client import entropy
from dither_protocol.mechanisms import Mechanism
from dither_protocol.mechanisms.forms import encode_base64url
from dither_protocol.mechanisms.unary import UnaryEncoding
from dither_protocol.mechanisms.weights import SCALE_BITS

_LITTLE: Literal["little"] = "little"


class _Fold(NamedTuple):
    """How many bits with one threshold come out of uniform bytes; see `bernoulli_bits`.

    Attributes:
        size: bytes that it takes.
        numbers: cuts them into one number for each digit of the threshold, from its lowest 1 up.
        digits: those digits, whether each is 1.
        little: the byte order, once for each digit.
        mask: the bits that are wanted.
    """

    size: int
    numbers: struct.Struct
    digits: tuple[bool, ...]
    little: tuple[Literal["little"], ...]
    mask: int

    def bits(self, pool: bytes, at: int = 0) -> int:
        """The bits that the bytes of ``pool`` from ``at`` on make."""
        verdicts = 0
        # Cut and read by C: half of the time that slices and calls in a loop take.
        drawn: Iterable[int] = map(int.from_bytes, self.numbers.unpack_from(pool, at), self.little)
        for number, is_one in zip(drawn, self.digits, strict=True):
            if is_one:
                verdicts |= number
            else:
                verdicts &= number
        return verdicts & self.mask


@lru_cache(maxsize=256)
def _fold(threshold: int, count: int) -> _Fold:
    digits: tuple[bool, ...] = ()
    if threshold:
        skipped = (threshold & -threshold).bit_length() - 1
        digits = tuple(bool(threshold >> digit & 1) for digit in range(skipped, SCALE_BITS))
    size = (count + 7) // 8
    numbers = struct.Struct(f"{size}s" * len(digits))
    little = tuple(_LITTLE for _ in digits)
    return _Fold(numbers.size, numbers, digits, little, (1 << count) - 1)


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
    fold = _fold(threshold, count)
    return fold.bits((digits or entropy.random_bytes)(fold.size))


def sample(mechanism: Mechanism, index: int) -> str:
    """Every bit of the one-hot vector, each with its own threshold.

    All d bits are drawn with the noise threshold; the bit of the true value is then replaced by one drawn with
    the keep threshold. Nothing depends on the index but the place of that bit.
    """
    unary = cast(UnaryEncoding, mechanism)
    noise, keep = _fold(unary.noise_threshold, unary.d), _fold(unary.keep_threshold, 1)
    pool = entropy.random_bytes(noise.size + keep.size)  # of both: a read more is a system call more
    bits = noise.bits(pool) & ~(1 << index) | keep.bits(pool, noise.size) << index
    return encode_base64url(bits.to_bytes(unary.packed_size, "little"))
