"""Local hashing: the law of [seed, value] by the SDK and by the fleet, and the hash family behind it."""

from collections.abc import Callable
from itertools import combinations
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dither_estimator.local_hashing import buckets
from dither_protocol import mechanism
from dither_protocol.hashing import bucket
from dither_protocol.mechanisms import LocalHashing
from support.reports import SOURCES, Source
from support.statistics import SHIFT, follow_chances, follows_law, sample_size, shifted

CASES = [("olh", 0.5, 10, 3), ("olh", 1.0, 65_536, 65_535), ("olh", 2.0, 40, 0), ("blh", 1.0, 10, 9)]
SEED_GROUPS = 4
SEEDS_TRIED = 1_000_000
SMALL_DOMAIN = tuple(range(24))
SPREAD = (0, 1, 2, 3, 127, 128, 255, 256, 257, 4_095, 21_845, 32_767, 32_768, 43_690, 65_534, 65_535)
Words = NDArray[np.uint64]
Hash = Callable[[Words, int, int], Words]


def _rotation_law(made: LocalHashing, shift: float = 0.0) -> NDArray[np.float64]:
    """The chances that the reported bucket is 0, 1, ... g-1 steps beyond the true one, by groups of seeds."""
    truth = shifted(made.truth_weight / made.total_weight, shift)
    steps = np.array([truth, *[(1 - truth) / (made.g - 1)] * (made.g - 1)])
    return np.tile(steps / SEED_GROUPS, SEED_GROUPS)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("name", "epsilon", "d", "held"), CASES)
def test_the_bucket_is_randomised_by_its_weights_whatever_the_seed(
    source: Source, name: str, epsilon: float, d: int, held: int
) -> None:
    """The true bucket with E/(E+g-1), the others evenly, for every kind of seed; not 30 % more or less."""
    made = cast(LocalHashing, mechanism(name, epsilon, d))
    law = _rotation_law(made)
    n = sample_size(law.min(), law.size)
    pairs = cast(list[list[int]], source(made, held, n))
    steps = np.array([(value - bucket(seed, held, made.g)) % made.g for seed, value in pairs])
    seeds = np.array([seed for seed, _ in pairs])
    for group in (seeds % SEED_GROUPS, seeds >> 30, (seeds >> 15) % SEED_GROUPS):
        counts = np.bincount(group * made.g + steps, minlength=law.size)
        assert follows_law(counts, law, cases=3)
        for shift in (-SHIFT, SHIFT):
            assert not follows_law(counts, _rotation_law(made, shift))
        assert not follows_law(counts, np.roll(law, 1))
        spoiled = np.where(group == 0, (steps + 1) % made.g, steps)  # one kind of seed lies
        assert not follows_law(np.bincount(group * made.g + spoiled, minlength=law.size), law)


def _seed_bits(seeds: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each of the 32 bits is 1, then each of the 31 neighbouring pairs together."""
    bits = seeds[:, None] >> np.arange(32) & 1
    return np.concatenate([bits.sum(axis=0), (bits[:, 1:] & bits[:, :-1]).sum(axis=0)])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["olh", "blh"])
@pytest.mark.parametrize("held", [0, 7])
def test_seeds_are_uniform_and_do_not_depend_on_the_value(source: Source, name: str, held: int) -> None:
    """Each bit of the seed is a fair coin beside the next; a value's bucket is uniform over the seeds."""
    made = cast(LocalHashing, mechanism(name, 1.0, 8))
    n = sample_size(0.1)
    seeds = np.array([data[0] for data in cast(list[list[int]], source(made, held, n))])
    law = np.array([1 / 2] * 32 + [1 / 4] * 31)
    assert follow_chances(_seed_bits(seeds), n, law, cases=2)
    for spoiled in (
        seeds | 1,
        seeds & ~(1 << 31),
        np.where(np.arange(n) % 10 < 3, seeds & ~(3 << 16), seeds),
    ):
        assert not follow_chances(_seed_bits(spoiled), n, law)
    even = np.full(made.g, 1 / made.g)
    true = np.array([bucket(int(seed), held, made.g) for seed in seeds])
    assert follows_law(np.bincount(true, minlength=made.g), even, cases=2)
    chosen = np.where(np.arange(n) % 10 < 3, 0, true)  # as if seeds were drawn until the bucket is 0
    assert not follows_law(np.bincount(chosen, minlength=made.g), even)


def _family(seeds: Words, value: int, g: int) -> Words:
    return buckets(seeds, np.uint64(value), g)  # type: ignore[arg-type]


def _even_stride(seeds: Words, value: int, g: int) -> Words:
    """A line a v + b with an even a, and its remainder in place of its upper digits."""
    return (np.uint64(2 * value) * seeds + seeds) % np.uint64(g)


def _product(seeds: Words, value: int, g: int) -> Words:
    return seeds * np.uint64(value) % np.uint64(g)


def _collisions(hashed: Hash, values: tuple[int, ...], g: int) -> NDArray[np.int64]:
    """How many fresh seeds send each pair of values to one bucket."""
    seeds = np.random.default_rng().integers(0, 1 << 32, size=SEEDS_TRIED, dtype=np.uint64)
    rows = [hashed(seeds, value, g).astype(np.uint8) for value in values]
    return np.array([np.count_nonzero(a == b) for a, b in combinations(rows, 2)])


@pytest.mark.parametrize("values", [SMALL_DOMAIN, SPREAD], ids=["small", "spread"])
@pytest.mark.parametrize("g", [2, 3, 4, 8, 55])
def test_any_two_values_share_a_bucket_with_chance_one_in_g(values: tuple[int, ...], g: int) -> None:
    """Over a million seeds every pair collides as often as it should; a rate 30 % beside it is noticed."""
    counts = _collisions(_family, values, g)
    law = np.full(counts.size, 1 / g)
    assert follow_chances(counts, SEEDS_TRIED, law)
    for shift in (-SHIFT, SHIFT):
        wrong = law.copy()
        wrong[7] = shifted(1 / g, shift)
        assert not follow_chances(counts, SEEDS_TRIED, wrong)


@pytest.mark.parametrize("bad", [_even_stride, _product])
@pytest.mark.parametrize("g", [2, 3, 4, 8, 55])
def test_a_bad_hash_family_is_noticed(bad: Hash, g: int) -> None:
    """Lines over the integers modulo g collide far too often, or too seldom, somewhere."""
    counts = _collisions(bad, SMALL_DOMAIN, g)
    assert not follow_chances(counts, SEEDS_TRIED, np.full(counts.size, 1 / g))


@pytest.mark.parametrize("g", [2, 3, 4, 8, 55])
def test_two_hashes_are_uniform_together(g: int) -> None:
    """Each pair of buckets is as likely as any other for two values; a diagonal 30 % beside it is noticed."""
    seeds = np.random.default_rng().integers(0, 1 << 32, size=3 * SEEDS_TRIED, dtype=np.uint64)
    law = np.full(g * g, 1 / (g * g))
    for first, second in ((0, 1), (3, 4), (0, 65_535), (32_767, 32_768)):
        joint = (_family(seeds, first, g) * np.uint64(g) + _family(seeds, second, g)).astype(np.int64)
        counts = np.bincount(joint, minlength=g * g)
        assert follows_law(counts, law, cases=4)
        diagonal = law.copy()
        diagonal[:: g + 1] *= 1 + SHIFT
        assert not follows_law(counts, diagonal / diagonal.sum())
