"""The samplers by exhaustion: every border of every draw, and every path where there are few."""

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, product
from math import comb

import pytest

from dither_client import entropy, randomize
from dither_client.sampling import subset
from dither_client.sampling.subset import _Words, uniform_subset
from dither_protocol import Mechanism, mechanism
from dither_protocol.hashing import bucket
from support.laws import bits_of, report_law

Patch = pytest.MonkeyPatch


def _draws(patch: Patch, *draws: int) -> list[int]:
    """The next results of `entropy.below`, and the bounds that were asked for, as they come."""
    coming: Iterator[int] = iter(draws)
    bounds: list[int] = []

    def below(bound: int) -> int:
        bounds.append(bound)
        draw = next(coming)
        assert 0 <= draw < bound
        return draw

    patch.setattr(entropy, "below", below)
    return bounds


def _intervals(total: int, sizes: list[int]) -> list[tuple[int, int, int]]:
    """First and last draw of consecutive intervals of these sizes, and the size."""
    found, start = [], 0
    for size in sizes:
        found.append((start, start + size - 1, size))
        start += size
    assert start == total
    return found


@pytest.mark.parametrize(("epsilon", "d"), [(0.01, 3), (1.0, 4), (1.0, 8), (4.0, 9), (20.0, 2)])
def test_hadamard_owns_its_draws(epsilon: float, d: int, monkeypatch: Patch) -> None:
    """Truth_weight draws lead to each supporting index, lie_weight to each other one: the exact law."""
    made = mechanism("hadamard", epsilon, d)
    truth, lie = made.truth_weight, made.lie_weight  # type: ignore[attr-defined]
    for held in range(d):
        weights: Counter[object] = Counter()
        for first, last, size in _intervals(truth + lie, [truth, lie]):
            for column in range(made.counters):
                bounds = _draws(monkeypatch, first, column)
                data = randomize(made, held)
                assert bounds == [truth + lie, made.counters]
                _draws(monkeypatch, last, column)
                assert randomize(made, held) == data
                weights[data] += size
        total = (truth + lie) * made.counters
        assert {data: Fraction(n, total) for data, n in weights.items()} == report_law(made, held)


@pytest.mark.parametrize(
    ("epsilon", "d"), [(1.0, 2), (1.0, 4), (0.5, 7), (1.0, 10), (0.01, 14), (2.0, 15), (20.0, 12)]
)
def test_projective_owns_its_draws(epsilon: float, d: int, monkeypatch: Patch) -> None:
    """Each orthogonal point owns truth_weight draws, each other point lie_weight, first to last: the exact law."""
    made = mechanism("projective", epsilon, d)
    a = made.orthogonal  # type: ignore[attr-defined]
    truth, lie = made.truth_weight, made.lie_weight  # type: ignore[attr-defined]
    total = made.total_weight  # type: ignore[attr-defined]
    for held in range(d):
        law: dict[object, Fraction] = {}
        for first, last, size in _intervals(total, [truth] * a + [lie] * (made.counters - a)):
            assert _draws(monkeypatch, first) == []
            data = randomize(made, held)
            bounds = _draws(monkeypatch, last)
            assert randomize(made, held) == data
            assert bounds == [total]
            assert data not in law
            law[data] = Fraction(size, total)
        assert law == report_law(made, held)


@pytest.mark.parametrize(
    ("name", "epsilon"), [("olh", 0.01), ("olh", 1.0), ("olh", 3.0), ("blh", 1.0), ("blh", 20.0)]
)
def test_local_hashing_owns_its_draws(name: str, epsilon: float, monkeypatch: Patch) -> None:
    """The true bucket owns truth_weight draws, each other one lie_weight, under the seed drawn: the exact law."""
    made = mechanism(name, epsilon, 40)
    truth, lie = made.truth_weight, made.lie_weight  # type: ignore[attr-defined]
    g, total = made.g, made.total_weight  # type: ignore[attr-defined]
    for seed, held in product((0, 1, 77, 2**32 - 1), (0, 1, 39)):
        law: dict[object, Fraction] = {}
        for first, last, size in _intervals(total, [truth] + [lie] * (g - 1)):
            bounds = _draws(monkeypatch, seed, first)
            data = randomize(made, held)
            assert bounds == [2**32, total]
            _draws(monkeypatch, seed, last)
            assert randomize(made, held) == data
            assert isinstance(data, list)
            assert data[0] == seed
            assert data[1] not in law
            law[data[1]] = Fraction(size, total)
        assert law == report_law(made, held, seed)
        assert law[bucket(seed, held, g)] == made.p_exact


def _paths(population: int, size: int, patch: Patch) -> Iterator[int]:
    """The result of `uniform_subset` for every sequence of draws; all sequences are equally likely."""
    newest = range(population - size, population)
    for draws in product(*(range(one + 1) for one in newest)):
        coming = iter(draws)
        asked: list[int] = []

        def below(_: _Words, bound: int, coming: Iterator[int] = coming, asked: list[int] = asked) -> int:
            asked.append(bound)
            return next(coming)

        patch.setattr(_Words, "below", below)
        yield uniform_subset(population, size)
        assert asked == [one + 1 for one in newest]


@pytest.mark.parametrize(
    ("population", "size"), [(1, 0), (1, 1), (3, 0), (5, 1), (5, 2), (6, 3), (6, 5), (7, 4), (5, 5)]
)
def test_subsets_are_uniform(population: int, size: int, monkeypatch: Patch) -> None:
    """Over all draws, every subset of the size comes up equally often, and nothing else does."""
    found = Counter(_paths(population, size, monkeypatch))
    assert set(found) == {sum(1 << v for v in chosen) for chosen in combinations(range(population), size)}
    assert len(found) == comb(population, size)
    assert len(set(found.values())) == 1


@pytest.mark.parametrize(("epsilon", "d"), [(0.01, 2), (1.0, 5), (0.5, 7), (0.01, 9), (1.0, 12), (20.0, 6)])
def test_the_truth_is_put_in_its_place(epsilon: float, d: int, monkeypatch: Patch) -> None:
    """Whatever value is held, all reports have their weights, in or out, with the others around it: the exact law."""
    made = mechanism("subset", epsilon, d)
    w = made.w  # type: ignore[attr-defined]
    truth, lie = made.truth_weight, made.lie_weight  # type: ignore[attr-defined]
    total = w * truth + (d - w) * lie
    for held in range(d):
        others = [v for v in range(d) if v != held]
        law: dict[object, Fraction] = {}
        for inside, (first, last, size) in zip(
            (1, 0), _intervals(total, [w * truth, (d - w) * lie]), strict=True
        ):
            ways = comb(d - 1, w - inside)
            for chosen in combinations(range(d - 1), w - inside):
                monkeypatch.setattr(
                    subset, "uniform_subset", _picks(sum(1 << place for place in chosen), d - 1, w - inside)
                )
                _draws(monkeypatch, first)
                data = randomize(made, held)
                bounds = _draws(monkeypatch, last)
                assert randomize(made, held) == data
                assert bounds == [total]
                assert isinstance(data, str)
                expected = sum(1 << others[place] for place in chosen) | inside << held
                assert bits_of(data) == expected
                law[data] = Fraction(size, total * ways)
        assert law == report_law(made, held)


def _picks(bits: int, population: int, size: int) -> Callable[[int, int], int]:
    def picked(asked_population: int, asked_size: int) -> int:
        assert (asked_population, asked_size) == (population, size)
        return bits

    return picked


def _words(*words: int) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


def test_words_beyond_the_last_whole_multiple_are_rejected(monkeypatch: Patch) -> None:
    """Of the 2^32 words as many lead to each number: the odd ones at the end are drawn again."""
    limit = 2**32 - 2**32 % 7
    pool = _words(limit, 2**32 - 1, limit - 1, 5, limit + 1, 13)
    monkeypatch.setattr(entropy, "random_bytes", lambda count: pool)
    words = _Words(1)
    assert [words.below(7) for _ in range(3)] == [6, 5, 6]


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 2**16, 65_537, 2**32])
def test_words_at_the_borders(bound: int, monkeypatch: Patch) -> None:
    """A power of two rejects nothing; any other bound exactly the rest of the division."""
    limit = 2**32 - 2**32 % bound
    pool = _words(0, bound - 1, limit - 1, *([limit] if limit < 2**32 else []), 0)
    monkeypatch.setattr(entropy, "random_bytes", lambda count: pool)
    words = _Words(1)
    assert [words.below(bound) for _ in range(4)] == [0, bound - 1, bound - 1, 0]
    assert not words._pool


def test_words_come_from_the_operating_system_when_the_pool_is_empty(monkeypatch: Patch) -> None:
    """Each read is for all words that are expected, and it is repeated only when all of them are used up."""
    reads: list[int] = []

    def random_bytes(count: int) -> bytes:
        reads.append(count)
        return _words(*range(count // 4))

    monkeypatch.setattr(entropy, "random_bytes", random_bytes)
    words = _Words(4)
    drawn = [words.below(2**32) for _ in range(45)]
    assert reads == [80, 80, 80]
    assert drawn == [*range(20), *range(20), *range(5)]


@pytest.mark.parametrize("name", ["subset", "olh", "blh", "hadamard", "projective"])
def test_the_largest_mechanisms_have_reports(name: str) -> None:
    """At 65,536 values and either end of epsilon a report is made and accepted, for the first and last value."""
    for epsilon in (0.001, 20.0):
        made: Mechanism = mechanism(name, epsilon, 65_536)
        for held in (0, 65_535):
            data = randomize(made, held)
            assert made.unpack(made.pack(data)) == data
