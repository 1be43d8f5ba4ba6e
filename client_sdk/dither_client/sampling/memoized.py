"""Both rounds of memoised collection: a permanent answer from given digits, and a fresh round over it.

A permanent answer has the form of a report's bits: the index of `grr`, or all bits of a unary encoding as one
integer. No branch and no number of steps depends on the value or on the digits.
"""

from collections.abc import Callable
from typing import Final, cast

from dither_client import entropy
from dither_client.sampling.unary import bernoulli_bits
from dither_protocol.mechanisms import (
    Data,
    Form,
    Mechanism,
    Memoized,
    MemoizedResponse,
    MemoizedUnaryEncoding,
)
from dither_protocol.mechanisms.chains import PERMANENT_BITS
from dither_protocol.mechanisms.forms import encode_base64url

Digits = Callable[[int], bytes]
"""Gives so many uniform bytes."""

_BYTES: Final = PERMANENT_BITS // 8


def permanent_answer(chain: Memoized, index: int, digits: Digits) -> int:
    """The permanent answer to a value: a function of the value and the digits.

    Args:
        chain: both rounds.
        index: the true answer, 0 <= index < chain.d.
        digits: where the randomness comes from; asked for the same numbers of bytes whatever the value.
    """
    if chain.form is Form.INDEX:
        return _permanent_index(cast(MemoizedResponse, chain), index, digits)
    return _permanent_bits(cast(MemoizedUnaryEncoding, chain), index, digits)


def _permanent_index(chain: MemoizedResponse, index: int, digits: Digits) -> int:
    """By one draw below 2^56, laid out as in `sampling.direct`."""
    excess = chain.permanent_truth_weight - chain.permanent_lie_weight
    draw = int.from_bytes(digits(_BYTES), "little")
    shift = max(0, draw - excess) // chain.permanent_lie_weight
    return (index + shift) % chain.d


def _permanent_bits(chain: MemoizedUnaryEncoding, index: int, digits: Digits) -> int:
    noise = bernoulli_bits(chain.permanent.noise_threshold, chain.d, digits)
    kept = bernoulli_bits(chain.permanent.keep_threshold, 1, digits)
    return noise & ~(1 << index) | kept << index


def second_round(chain: Memoized, answer: int) -> Data:
    """A fresh report over a permanent answer, with randomness of the operating system."""
    if chain.form is Form.INDEX:
        direct = cast(MemoizedResponse, chain)
        excess = direct.second_truth_weight - direct.second_lie_weight
        draw = entropy.below(direct.second_total_weight)
        shift = max(0, draw - excess) // direct.second_lie_weight
        return (answer + shift) % direct.d
    unary = cast(MemoizedUnaryEncoding, chain)
    bits = answer ^ bernoulli_bits(unary.flip_threshold, unary.d)
    return encode_base64url(bits.to_bytes(unary.packed_size, "little"))


def sample(mechanism: Mechanism, index: int) -> Data:
    """The first report of a new device: a permanent answer that nobody keeps, and one round over it."""
    chain = cast(Memoized, mechanism)
    return second_round(chain, permanent_answer(chain, index, entropy.random_bytes))
