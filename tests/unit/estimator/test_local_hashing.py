import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dither_estimator import local_hashing
from dither_estimator.local_hashing import buckets, coefficients, count_support
from dither_protocol import hashing, mechanism
from dither_protocol.hashing import bucket

BUCKETS = (2, 3, 4, 8, 149, 2_981, 485_165_196)
EDGE_SEEDS = (0, 1, 2, 2**16, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
EDGE_VALUES = (0, 1, 2, 255, 256, 32_767, 32_768, 65_534, 65_535)
seeds_of_32_bits = st.integers(0, 2**32 - 1)


def _words(numbers: object) -> NDArray[np.uint64]:
    return np.array(numbers, dtype=np.uint64)


def _fresh(n: int, bound: int) -> NDArray[np.uint64]:
    return np.random.default_rng().integers(0, bound, size=n, dtype=np.uint64)


def test_coefficients_are_those_of_the_protocol() -> None:
    """The numbers of every seed agree with those that a device computes, at the edges and for fresh seeds."""
    seeds = np.concatenate([_words(EDGE_SEEDS), _fresh(2_000, 2**32)])
    a, b = coefficients(seeds)
    assert list(zip(a.tolist(), b.tolist(), strict=True)) == [
        hashing.coefficients(seed) for seed in seeds.tolist()
    ]


@pytest.mark.parametrize("g", BUCKETS)
def test_buckets_are_those_of_the_protocol(g: int) -> None:
    """A device and the estimator hash alike, for fresh seeds and values and for all pairs at the edges."""
    seeds = np.concatenate([np.repeat(_words(EDGE_SEEDS), len(EDGE_VALUES)), _fresh(4_000, 2**32)])
    values = np.concatenate([np.tile(_words(EDGE_VALUES), len(EDGE_SEEDS)), _fresh(4_000, 65_536)])
    expected = [bucket(s, v, g) for s, v in zip(seeds.tolist(), values.tolist(), strict=True)]
    assert buckets(seeds, values, g).tolist() == expected


@given(seeds_of_32_bits, st.integers(0, 65_535), st.sampled_from(BUCKETS))
def test_one_bucket_is_that_of_the_protocol(seed: int, value: int, g: int) -> None:
    """Whatever the seed, the value and the number of buckets."""
    assert buckets(_words([seed]), _words([value]), g).tolist() == [bucket(seed, value, g)]


def _start_exactly(number: int, g: int) -> int:
    """The smallest 64-bit x, a multiple of 2^15, whose bucket is ``number``."""
    return -(-number * 2**49 // g) * 2**15


@pytest.mark.parametrize("g", [*BUCKETS, 5, 6, 7, 1_000, 2**20 + 7, 2**29 - 1])
def test_buckets_begin_where_they_should(g: int) -> None:
    """The interval ends agree with exact integers, at both ends of the range and at fresh numbers between."""
    numbers = sorted({0, 1, g // 2, g - 1, g, *_fresh(50, g + 1).tolist()})
    expected = [_start_exactly(number, g) % 2**64 for number in numbers]
    assert local_hashing._bucket_starts(_words(numbers), g).tolist() == expected


def _count_plainly(pairs: list[tuple[int, int]], g: int, d: int) -> list[int]:
    return [sum(bucket(seed, v, g) == reported for seed, reported in pairs) for v in range(d)]


@settings(deadline=None)  # a busy machine is not a fault
@given(st.data(), st.sampled_from(BUCKETS), st.integers(2, 40))
def test_counting_is_asking_every_report_about_every_value(data: st.DataObject, g: int, d: int) -> None:
    """Support counts are those of a plain loop; reports of true buckets are among them, so that some support."""
    pairs = []
    for seed in data.draw(st.lists(seeds_of_32_bits, max_size=15)):
        held = data.draw(st.integers(0, d - 1))
        pairs.append((seed, bucket(seed, held, g)))
        pairs.append((seed, data.draw(st.integers(0, g - 1))))
    found = count_support(_words([s for s, _ in pairs]), _words([y for _, y in pairs]), g, d)
    assert found.tolist() == _count_plainly(pairs, g, d)
    assert found.dtype == np.int64


@pytest.mark.parametrize("g", [2, 3, 8, 485_165_196])
def test_first_and_last_bucket_are_counted(g: int) -> None:
    """The bucket that ends where 64 bits wrap round is one like the others."""
    seeds = _fresh(300, 2**32)
    for reported in (0, g - 1):
        pairs = [(seed, reported) for seed in seeds.tolist()]
        found = count_support(seeds, np.full(300, reported, dtype=np.uint64), g, 30)
        assert found.tolist() == _count_plainly(pairs, g, 30)


@pytest.mark.parametrize("n", [0, 1, 4_095, 4_096, 4_097, 9_000])
def test_blocks_add_up(n: int) -> None:
    """Counting goes block by block, and every report is in one."""
    seeds, reported = _fresh(n, 2**32), _fresh(n, 4)
    expected = sum(
        (buckets(seeds, np.full(n, v, dtype=np.uint64), 4) == reported).astype(np.int64) << 8 * v
        for v in range(5)
    )
    packed = int(expected.astype(object).sum()) if n else 0
    found = count_support(seeds, reported, 4, 5).tolist()
    assert sum(one << 8 * v for v, one in enumerate(found)) == packed


@pytest.mark.parametrize("n", [1, 2, 15, 16, 700, 1_023, 1_024, 4_096 + 1_023])
@pytest.mark.parametrize("d", [2, 15, 16, 17, 1_000])
def test_few_reports_are_counted_as_many_are(n: int, d: int) -> None:
    """However many values are taken at once, and whatever is left of the last of them."""
    g = 3
    seeds, reported = _fresh(n, 2**32), _fresh(n, g)
    columns = (int(np.count_nonzero(buckets(seeds, _words([v]), g) == reported)) for v in range(d))
    assert count_support(seeds, reported, g, d).tolist() == list(columns)


def test_all_values_of_the_largest_domain() -> None:
    """Walking over 65,536 values ends at the right sums: each is asked about with no drift."""
    made = mechanism("olh", 3.0, 65_536)
    seeds = _words([0, 12_345, 2**32 - 1])
    values = np.arange(65_536, dtype=np.uint64)
    reported = _words([bucket(int(seed), 65_535, made.g) for seed in seeds])  # type: ignore[attr-defined]
    found = count_support(seeds, reported, made.g, made.d)  # type: ignore[attr-defined]
    expected = sum(
        (buckets(np.full(65_536, seed), values, made.g) == y).astype(np.int64)  # type: ignore[attr-defined]
        for seed, y in zip(seeds, reported, strict=True)
    )
    assert found.tolist() == expected.tolist()
    assert found[65_535] == 3


def test_the_reports_are_left_as_they_were() -> None:
    """Counting changes none of the arrays that it is given."""
    seeds, reported = _fresh(100, 2**32), _fresh(100, 4)
    before = (seeds.copy(), reported.copy())
    count_support(seeds, reported, 4, 10)
    assert (seeds == before[0]).all()
    assert (reported == before[1]).all()
