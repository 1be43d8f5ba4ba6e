import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_estimator.geometry import coordinates, digits, inverses, ranks
from dither_protocol import geometry
from dither_protocol.mechanisms.projective import points

SPACES = [(2, 1), (2, 2), (2, 5), (3, 2), (3, 4), (5, 3), (7, 3), (11, 2), (31, 2)]
LARGE = [(2, 20), (3, 12), (5, 9), (1_021, 3), (65_537, 2), (1_048_573, 2)]


@pytest.mark.parametrize(("r", "t"), SPACES)
def test_points_are_those_of_the_protocol(r: int, t: int) -> None:
    """All points of a small space have the protocol's coordinates, and the numbers come back."""
    numbers = np.arange(points(r, t))
    vectors = coordinates(numbers, r, t)
    assert vectors.tolist() == [geometry.point(number, r, t) for number in range(points(r, t))]
    assert ranks(vectors, r, inverses(r)).tolist() == numbers.tolist()


@pytest.mark.parametrize(("r", "t"), LARGE)
def test_points_of_large_spaces_are_those_of_the_protocol(r: int, t: int) -> None:
    """Fresh numbers of the largest spaces, and the first and last of each block, agree as well."""
    fresh = np.random.default_rng().integers(0, points(r, t), size=200).tolist()
    borders = [
        points(r, k) + step for k in range(1, t + 1) for step in (-1, 0) if points(r, k) + step < points(r, t)
    ]
    numbers = [0, *borders, *fresh]
    vectors = coordinates(np.array(numbers), r, t)
    assert vectors.tolist() == [geometry.point(number, r, t) for number in numbers]
    assert ranks(vectors, r, inverses(r)).tolist() == numbers


@given(st.sampled_from([2, 3, 5, 7, 13, 251]), st.integers(1, 6), st.data())
def test_every_multiple_has_the_rank_of_its_point(r: int, t: int, data: st.DataObject) -> None:
    """A vector stands for the point in its direction, as in the protocol."""
    vector = data.draw(st.lists(st.integers(0, r - 1), min_size=t, max_size=t).filter(any))
    expected = geometry.rank(geometry.normalized(vector, r), r)
    assert ranks(np.array([vector]), r, inverses(r)).tolist() == [expected]


@given(st.integers(2, 70), st.integers(1, 6), st.data())
def test_digits_are_those_of_the_number(r: int, length: int, data: st.DataObject) -> None:
    """Most significant first, they add up to the number again."""
    numbers = data.draw(st.lists(st.integers(0, r**length - 1), max_size=10))
    rows = digits(np.array(numbers, dtype=np.int64), r, length)
    assert rows.shape == (len(numbers), length)
    assert ((rows >= 0) & (rows < r)).all()
    powers = [r**k for k in reversed(range(length))]
    assert [sum(x * y for x, y in zip(row, powers, strict=True)) for row in rows.tolist()] == numbers


@pytest.mark.parametrize("r", [2, 3, 5, 7, 101, 65_537])
def test_inverses_are_inverse(r: int) -> None:
    """Each residue but 0 times its inverse is 1."""
    table = inverses(r)
    assert table[0] == 0
    assert (table[1:] * np.arange(1, r) % r == 1).all()
