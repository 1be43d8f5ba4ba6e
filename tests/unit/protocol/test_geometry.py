from fractions import Fraction
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol import MechanismError, mechanism
from dither_protocol.geometry import normalized, point, rank
from dither_protocol.mechanisms import ProjectiveGeometryResponse, candidates, projective
from dither_protocol.mechanisms.projective import points, primes_from
from support.laws import projective_points

SPACES = [(2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (5, 2), (5, 3), (7, 3)]
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)
SMALL = [
    (epsilon, d) for epsilon in (0.01, 0.5, 1.0, 2.0, 4.0, 20.0) for d in (2, 3, 4, 5, 7, 12, 13, 21, 31, 60)
]


def _orthogonal(u: tuple[int, ...], v: tuple[int, ...], r: int) -> bool:
    return sum(x * y for x, y in zip(u, v, strict=True)) % r == 0


@pytest.mark.parametrize(("r", "t"), SPACES)
def test_points_are_numbered_in_lexicographic_order(r: int, t: int) -> None:
    """Point number i is the i-th vector whose first nonzero coordinate is 1, and `rank` is the way back."""
    listed = projective_points(r, t)
    assert len(listed) == points(r, t)
    assert all(first < second for first, second in pairwise(listed))
    for number, coordinates in enumerate(listed):
        assert point(number, r, t) == list(coordinates)
        assert rank(coordinates, r) == number


@given(st.sampled_from([*PRIMES, 1_021, 65_537]), st.integers(1, 12), st.data())
def test_rank_is_the_inverse_of_point(r: int, t: int, data: st.DataObject) -> None:
    """Whatever the space, a number survives the way to coordinates and back."""
    number = data.draw(st.integers(0, points(r, t) - 1))
    coordinates = point(number, r, t)
    assert len(coordinates) == t
    assert all(0 <= value < r for value in coordinates)
    assert next(value for value in coordinates if value) == 1
    assert rank(coordinates, r) == number


@given(st.sampled_from(PRIMES), st.data())
def test_every_multiple_of_a_point_is_normalized_to_it(r: int, data: st.DataObject) -> None:
    """The first nonzero coordinate becomes 1, and the direction stays."""
    t = data.draw(st.integers(1, 6))
    coordinates = point(data.draw(st.integers(0, points(r, t) - 1)), r, t)
    factor = data.draw(st.integers(1, r - 1))
    assert normalized([factor * value % r for value in coordinates], r) == coordinates


@pytest.mark.parametrize(("r", "t"), SPACES)
def test_incidence(r: int, t: int) -> None:
    """Every point is orthogonal to a = points(r, t-1) points, and two points together to b = points(r, t-2)."""
    listed = projective_points(r, t)
    around = [{i for i, v in enumerate(listed) if _orthogonal(u, v, r)} for u in listed]
    assert {len(near) for near in around} == {points(r, t - 1)}
    assert {len(one & other) for one, other in combinations(around, 2)} == {points(r, t - 2)}


@pytest.mark.parametrize(("epsilon", "d"), SMALL)
def test_p_and_q_are_those_of_counting_points(epsilon: float, d: int) -> None:
    """Both are the weights of the orthogonal points, counted one by one, as exact fractions."""
    made = mechanism("projective", epsilon, d)
    assert isinstance(made, ProjectiveGeometryResponse)
    listed = projective_points(made.r, made.t)
    assert made.counters == len(listed) >= d

    def weight(held: int, asked: int) -> int:
        return sum(
            made.truth_weight if _orthogonal(listed[held], y, made.r) else made.lie_weight
            for y in listed
            if _orthogonal(listed[asked], y, made.r)
        )

    total = sum(made.truth_weight if _orthogonal(listed[0], y, made.r) else made.lie_weight for y in listed)
    assert made.total_weight == total
    for held, asked in ((0, 0), (d - 1, d - 1), (d // 2, d // 2)):
        assert made.p_exact == Fraction(weight(held, asked), total)
    for held, asked in ((0, 1), (1, 0), (d - 1, 0), (0, d - 1), (d - 1, d - 2)):
        assert made.q_exact == Fraction(weight(held, asked), total)


@pytest.mark.parametrize(
    ("epsilon", "d"), [*SMALL, (1.0, 1_000), (4.0, 3_000), (0.1, 65_536), (20.0, 65_536)]
)
def test_the_space_is_the_best_of_all_within_the_limits(epsilon: float, d: int) -> None:
    """No prime gives less variance at f = 1/d, each with its smallest space, up to 16 d and 2^20 points."""
    made = mechanism("projective", epsilon, d)
    assert isinstance(made, ProjectiveGeometryResponse)
    limit = min(16 * d, 2**20)
    spaces = []
    for r in primes_from(2):
        t = next(t for t in range(2, 30) if (r**t - 1) // (r - 1) >= d)
        size = (r**t - 1) // (r - 1)
        if r + 1 > limit or r > 4 * d:  # beyond, every space is a line, and lines only get worse
            break
        if size <= limit:
            a, b = (r ** (t - 1) - 1) // (r - 1), (r ** (t - 2) - 1) // (r - 1)
            total = made.truth_weight * a + made.lie_weight * (size - a)
            p = Fraction(made.truth_weight * a, total)
            q = Fraction(made.truth_weight * b + made.lie_weight * (a - b), total)
            f = Fraction(1, d)
            spaces.append((float((f * p * (1 - p) + (1 - f) * q * (1 - q)) / (p - q) ** 2), r, t))
    least = min(spaces)[0]
    assert made.n_variance(1 / d) == pytest.approx(least, rel=1e-9)
    assert (made.r, made.t) in [(r, t) for variance, r, t in spaces if variance <= least * (1 + 1e-12)]


def test_primes() -> None:
    """The primes from a number on, itself included."""
    for start, expected in (
        (0, [2, 3, 5]),
        (8, [11, 13, 17]),
        (13, [13, 17, 19]),
        (65_535, [65_537, 65_539]),
    ):
        source = primes_from(start)
        assert [next(source) for _ in expected] == expected


@pytest.mark.parametrize("d", [2, 3, 100, 32_768, 65_535, 65_536])
def test_every_domain_has_a_space(d: int) -> None:
    """The binary space has at most 2 d - 1 points, so that there is always one within 16 d and 2^20."""
    made = mechanism("projective", 1.0, d)
    assert d <= made.counters <= min(16 * d, 2**20)


def test_without_a_space_there_is_no_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the limits tighter than the smallest space, the mechanism would be refused, and nothing else."""
    monkeypatch.setattr(projective, "MAX_POINTS", 10)
    with pytest.raises(MechanismError, match="no projective space fits these parameters"):
        mechanism("projective", 1.0, 100)
    names = [made.name for made in candidates(1.0, 100)]
    assert names == ["grr", "sue", "oue", "subset", "olh", "blh", "hadamard"]
