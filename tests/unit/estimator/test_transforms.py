import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from dither_estimator import support
from dither_estimator.transforms import orthogonal_sums, walsh_hadamard
from dither_protocol import mechanism
from dither_protocol.mechanisms.projective import points
from support.laws import projective_points, support_matrix

SPACES = [(2, 2), (2, 3), (2, 5), (3, 2), (3, 4), (5, 2), (5, 3), (7, 2), (7, 3), (11, 3), (2, 8), (13, 2)]
Ints = NDArray[np.int64]


def _signs(order: int) -> Ints:
    rows = np.arange(order)
    return 1 - 2 * (np.bitwise_count(rows[:, None] & rows[None, :]).astype(np.int64) & 1)


@pytest.mark.parametrize("order", [1, 2, 4, 8, 64, 512])
def test_the_fast_transform_is_the_matrix(order: int) -> None:
    """Multiplying with the signs (-1)^popcount(x & y) gives the same, also where sums need 62 bits."""
    top = 2**62 // order
    for bound in (2, 1_000, top):
        values = np.random.default_rng().integers(-bound, bound, size=order, dtype=np.int64)
        before = values.copy()
        found = walsh_hadamard(values)
        assert found.tolist() == (_signs(order) @ values).tolist()
        assert found.dtype == np.int64
        assert (values == before).all()


def _histograms(size: int) -> st.SearchStrategy[Ints]:
    """Few or many reports at every point, with at most 2^60 in all."""
    largest = st.sampled_from([1, 100, 2**24 - 1, 2**24, 2**25, 2**48, 2**60 // size])
    return largest.flatmap(lambda top: arrays.arrays(np.int64, size, elements=st.integers(0, top)))


def _incidence(r: int, t: int) -> NDArray[np.bool_]:
    vectors = np.array(projective_points(r, t))
    return vectors @ vectors.T % r == 0


@pytest.mark.parametrize(("r", "t"), SPACES)
@settings(deadline=None, max_examples=20)  # a busy machine is not a fault
@given(st.data())
def test_sums_over_orthogonal_points_are_exact(r: int, t: int, data: st.DataObject) -> None:
    """The Fourier way gives the very integers of adding up point by point, for any number of first points."""
    size = points(r, t)
    histogram = data.draw(_histograms(size))
    d = data.draw(st.integers(1, size))
    found = orthogonal_sums(histogram, r, t, d)
    rows = _incidence(r, t)[:d]
    assert found.tolist() == [int(histogram[row].sum()) for row in rows]
    assert found.dtype == np.int64


@pytest.mark.parametrize(("r", "t"), SPACES)
def test_sums_hold_for_fewer_values_than_points(r: int, t: int) -> None:
    """The first d sums do not depend on how many are asked for, on either side of each border of the numbering."""
    size = points(r, t)
    histogram = np.random.default_rng().integers(0, 2**60 // size, size=size, dtype=np.int64)
    everything = orthogonal_sums(histogram, r, t, size).tolist()
    for k in range(1, t + 1):
        for d in (points(r, k) - 1, points(r, k), points(r, k) + 1):
            if 1 <= d <= size:
                assert orthogonal_sums(histogram, r, t, d).tolist() == everything[:d]


@pytest.mark.parametrize(("r", "t"), [(2, 5), (5, 3), (11, 3)])
def test_the_largest_histogram_loses_no_digit(r: int, t: int) -> None:
    """2^60 reports, all at one point or spread with every low bit set, are added up without rounding."""
    size = points(r, t)
    rows = _incidence(r, t)
    for histogram in (np.eye(size, dtype=np.int64)[size // 2] * 2**60, np.full(size, 2**60 // size | 1)):
        assert orthogonal_sums(histogram, r, t, size).tolist() == [int(histogram[row].sum()) for row in rows]


def test_an_empty_histogram_gives_zeros() -> None:
    """Without reports nobody supports anything."""
    assert orthogonal_sums(np.zeros(13, dtype=np.int64), 3, 3, 9).tolist() == [0] * 9


def test_the_histogram_is_left_as_it_was() -> None:
    """Decoding changes nothing of what it is given."""
    histogram = np.arange(13)
    orthogonal_sums(histogram, 3, 3, 13)
    assert histogram.tolist() == list(range(13))


@pytest.mark.parametrize("name", ["hadamard", "projective"])
@pytest.mark.parametrize(
    ("epsilon", "d"),
    [(1.0, 2), (0.5, 3), (1.0, 7), (2.0, 8), (1.0, 14), (2.0, 15), (4.0, 100), (0.1, 130), (1.0, 500)],
)
def test_support_of_numbers_with_a_meaning_is_the_definition(name: str, epsilon: float, d: int) -> None:
    """Every value gets the counters of the indices that it supports by the rule of design section 6."""
    made = mechanism(name, epsilon, d)
    counters = np.random.default_rng().integers(0, 2**60 // made.counters, size=made.counters, dtype=np.int64)
    found = support(made, counters)
    assert found.tolist() == [int(counters[row].sum()) for row in support_matrix(made)]
    assert found.dtype == np.int64


@pytest.mark.parametrize("name", ["hadamard", "projective"])
def test_the_largest_domain_is_decoded(name: str) -> None:
    """At 65,536 values a single report supports the values that the plain rule names, and no other."""
    made = mechanism(name, 1.0, 65_536)
    report = made.counters - 2
    counters = np.zeros(made.counters, dtype=np.int64)
    counters[report] = 3
    found = support(made, counters)
    assert set(found.tolist()) == {0, 3}
    few = [0, 1, 2, 77, 4_095, 32_768, 65_534, 65_535]
    assert found[few].tolist() == [3 * _supports(made, report, v) for v in few]


def _supports(made: object, report: int, v: int) -> bool:
    if hasattr(made, "order"):
        return (v + 1 & report).bit_count() % 2 == 0
    r, t = made.r, made.t  # type: ignore[attr-defined]
    return sum(x * y for x, y in zip(_point(v, r, t), _point(report, r, t), strict=True)) % r == 0


def _point(number: int, r: int, t: int) -> list[int]:
    """By counting: blocks with 0, 1, 2, ... free coordinates, r^k points each, their digits behind the leading 1."""
    free = 0
    while number >= r**free:
        number -= r**free
        free += 1
    digits = [number // r**k % r for k in reversed(range(free))]
    return [0] * (t - 1 - free) + [1] + digits
