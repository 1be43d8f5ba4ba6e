from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol.hashing import bucket, coefficients

WORD = 2**64

# The first outputs of SplitMix64 started at 0, as the test vectors of its reference implementation give them.
SPLITMIX64_FROM_ZERO = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC)

# seed, value, number of buckets, bucket: what every device and every estimator must agree on for ever.
VECTORS = [
    (0, 0, 2, 0),
    (0, 1, 2, 0),
    (1, 0, 4, 3),
    (1, 3, 4, 0),
    (2, 65_535, 3, 2),
    (7, 100, 8, 2),
    (12_345, 6_789, 55, 32),
    (65_536, 32_768, 56, 20),
    (2_147_483_647, 40_000, 149, 147),
    (2_147_483_648, 5, 2_981, 817),
    (4_294_967_295, 0, 2, 0),
    (4_294_967_295, 65_535, 4, 0),
    (4_294_967_295, 65_535, 485_165_196, 37_933_556),
    (4_711, 17, 485_165_196, 120_751_239),
]


def _splitmix64(steps: int) -> int:
    """Output number ``steps`` (from 1) of SplitMix64 with state 0, written from its definition.

    Steele, Lea, Flood, OOPSLA 2014, figure 16: the state goes on by the golden ratio and is mixed by Stafford's
    variant 13.
    """
    state = 0
    for _ in range(steps):
        state = (state + 0x9E3779B97F4A7C15) % WORD
    mixed = state
    mixed = (mixed ^ (mixed // 2**30)) * 0xBF58476D1CE4E5B9 % WORD
    mixed = (mixed ^ (mixed // 2**27)) * 0x94D049BB133111EB % WORD
    return mixed ^ (mixed // 2**31)


def _line_bucket(a: int, b: int, value: int, g: int) -> int:
    """The bucket by exact fractions: the upper 49 bits of the line, as a share of their range, times g."""
    upper = (a * value + b) % WORD // 2**15
    return int(Fraction(upper, 2**49) * g)


def test_the_generator_here_is_splitmix64() -> None:
    """The plain generator of this test gives the published outputs."""
    assert tuple(_splitmix64(step) for step in (1, 2, 3, 4)) == SPLITMIX64_FROM_ZERO


def test_coefficients_are_two_outputs_of_splitmix64() -> None:
    """Seed s gives outputs 2s + 1 and 2s + 2."""
    for seed in (0, 1, 2, 7, 4_000):
        assert coefficients(seed) == (_splitmix64(2 * seed + 1), _splitmix64(2 * seed + 2))
    assert coefficients(0) == SPLITMIX64_FROM_ZERO[:2]
    assert coefficients(1) == SPLITMIX64_FROM_ZERO[2:]


@pytest.mark.parametrize(("seed", "a", "b"), [
    (0, 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4),
    (1, 0x06C45D188009454F, 0xF88BB8A8724C81EC),
    (2, 0x1B39896A51A8749B, 0x53CB9F0C747EA2EA),
    (12_345, 0x08C1C32F65690004, 0x5C77153405C39953),
    (2_147_483_648, 0x46093CF9861EC2E4, 0xE7FF814E1D99A40B),
    (4_294_967_295, 0x97BF2DEC6C5D5368, 0x7DD6CFD7E3F8BCC2),
])  # fmt: skip
def test_coefficients_are_pinned(seed: int, a: int, b: int) -> None:
    """The numbers of these seeds never change: reports on their way would be misread."""
    assert coefficients(seed) == (a, b)


@pytest.mark.parametrize(("seed", "value", "g", "expected"), VECTORS)
def test_buckets_are_pinned(seed: int, value: int, g: int, expected: int) -> None:
    """The buckets of these seeds and values never change."""
    assert bucket(seed, value, g) == expected


@given(st.integers(0, 2**32 - 1), st.integers(0, 65_535), st.integers(2, 2**30))
def test_the_bucket_is_that_of_a_line(seed: int, value: int, g: int) -> None:
    """Every bucket is the share of the upper 49 bits of a v + b, and one of the g."""
    found = bucket(seed, value, g)
    assert found == _line_bucket(*coefficients(seed), value, g)
    assert 0 <= found < g


def test_different_seeds_have_different_coefficients() -> None:
    """Some thousand neighbouring seeds share no number: the generator is a bijection of its state."""
    numbers = [number for seed in range(5_000) for number in coefficients(seed)]
    assert len(set(numbers)) == len(numbers)
