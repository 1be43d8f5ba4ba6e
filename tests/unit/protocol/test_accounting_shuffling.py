import math
from collections.abc import Iterator
from itertools import combinations_with_replacement, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither_protocol import AccountingError, shuffled_epsilon
from dither_protocol.accounting.shuffling import ASSUMPTION, MAX_REPORTS, _clones

Counts = tuple[int, ...]


@pytest.mark.parametrize(
    ("n", "delta", "epsilon", "expected"),
    [
        (10_000, 1e-6, 1.0, 0.053), (10_000, 1e-6, 2.0, 0.155), (10_000, 1e-6, 4.0, 0.601), (100_000, 1e-7, 1.0, 0.018),
        (100_000, 1e-7, 4.0, 0.193), (1_000_000, 1e-8, 1.0, 0.0061), (1_000, 1e-6, 4.0, 3.99),
    ],
)  # fmt: skip
def test_the_numerical_bound_is_that_found_elsewhere(
    n: int, delta: float, epsilon: float, expected: float
) -> None:
    """Values computed independently by the numerical form of the theorem, the last where its closed formula fails."""
    assert shuffled_epsilon(epsilon, n, delta).epsilon == pytest.approx(expected, rel=0.01)


def _histograms(k: int, epsilon: float, held: Counts) -> dict[Counts, float]:
    """The law of how often each value is reported, by k-ary randomised response of all holders."""
    grown = math.exp(epsilon)
    law: dict[Counts, float] = {(0,) * k: 1.0}
    for value in held:
        after: dict[Counts, float] = {}
        for counts, probability in law.items():
            for y in range(k):
                more = (*counts[:y], counts[y] + 1, *counts[y + 1 :])
                chance = (grown if y == value else 1.0) / (grown + k - 1)
                after[more] = after.get(more, 0.0) + probability * chance
        law = after
    return law


def _neighbours(k: int, n: int) -> Iterator[tuple[Counts, Counts]]:
    """Every pair of fleets that differ in one answer; the order of the others is lost in the shuffle."""
    for others in combinations_with_replacement(range(k), n - 1):
        for one, other in permutations(range(k), 2):
            yield (one, *others), (other, *others)


def _worst(k: int, n: int, epsilon: float, levels: list[float]) -> list[float]:
    """The greatest divergence of shuffled reports at each level."""
    worst = [0.0] * len(levels)
    for one, other in _neighbours(k, n):
        first, second = _histograms(k, epsilon, one), _histograms(k, epsilon, other)
        for i, level in enumerate(levels):
            found = math.fsum(max(0.0, p - math.exp(level) * second[c]) for c, p in first.items())
            worst[i] = max(worst[i], found)
    return worst


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("n", [3, 4, 5, 6])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_brute_force_never_exceeds_the_bound(k: int, n: int, epsilon: float) -> None:
    """Over all fleets and all shuffles of them, delta at the bound's epsilon is at most the one that was asked for."""
    deltas = [1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3]
    levels = [shuffled_epsilon(epsilon, n, delta).epsilon for delta in deltas]
    for real, delta in zip(_worst(k, n, epsilon, levels), deltas, strict=True):
        assert real <= delta
    # No idle bound: at a small share of that epsilon delta would be exceeded.
    far_below = _worst(k, n, epsilon, [0.2 * level for level in levels[:4]])
    assert any(real > delta for real, delta in zip(far_below, deltas, strict=False))


@settings(max_examples=40, deadline=None)
@given(st.floats(0.001, 20), st.integers(1, 3_000), st.floats(1e-12, 0.5))
def test_what_always_holds_of_the_bound(epsilon: float, n: int, delta: float) -> None:
    """It is never above epsilon, and more reports or a larger delta never raise it."""
    bound = shuffled_epsilon(epsilon, n, delta)
    assert 0 <= bound.epsilon <= epsilon
    step = 1 + 1e-2  # blocks of clones
    assert shuffled_epsilon(epsilon, 2 * n, delta).epsilon <= bound.epsilon * step
    assert shuffled_epsilon(epsilon, n, min(0.9, 2 * delta)).epsilon <= bound.epsilon * step
    assert (bound.name, bound.delta, bound.assumption) == ("shuffled", delta, ASSUMPTION)


@pytest.mark.parametrize("chance", [0.02, 0.37, 0.95])
@pytest.mark.parametrize("cut", [1e-9, 0.05])
def test_blocks_never_have_more_clones_than_the_truth(chance: float, cut: float) -> None:
    """At every number of clones the blocks are at least as often below it as the binomial, give or take the cut."""
    trials = 300
    blocks = _clones(trials, chance, cut)
    below = 0.0
    for c in range(trials):
        below += math.comb(trials, c) * chance**c * (1 - chance) ** (trials - c)
        assert math.fsum(b.probability for b in blocks if b.clones <= c) >= below * (1 - 1e-9)
    assert 1 <= math.fsum(b.probability for b in blocks) <= 1 + 2 * cut + 1e-9


def test_one_report_alone_gains_nothing_from_a_shuffle() -> None:
    """With n = 1 there is nobody to be mistaken for: what is left is what delta alone forgives."""
    delta = 1e-3
    alone = math.log(math.e - delta * (math.e + 1))  # where (E - e^t)/(E + 1) = delta
    assert shuffled_epsilon(1.0, 1, delta).epsilon == pytest.approx(alone, rel=1e-5)


def test_a_large_delta_forgives_everything() -> None:
    """Where delta is above the total variation distance, epsilon is 0."""
    assert shuffled_epsilon(0.1, 100, 0.5).epsilon == 0.0


def test_more_reports_than_are_computed_count_as_so_many() -> None:
    """A greater n is safe to cut, and the bound is that of the limit."""
    assert shuffled_epsilon(20.0, 10 * MAX_REPORTS, 1e-9) == shuffled_epsilon(20.0, MAX_REPORTS, 1e-9)


def test_the_result_says_what_the_channel_must_be() -> None:
    """Nobody reads the number without the channel that it needs."""
    for word in ("anonymous channel", "no id, token, address", "colluders", "one of them"):
        assert word in shuffled_epsilon(1.0, 100, 1e-6).assumption


@pytest.mark.parametrize(
    ("epsilon", "n", "delta"),
    [
        *((epsilon, 10, 0.1) for epsilon in (0.0, 0.0005, 101.0, math.nan)),
        *((1.0, n, 0.1) for n in (0, 2.0, True)),
        *((1.0, 10, delta) for delta in (0.0, 1.0, math.nan)),
    ],
)
def test_impossible_shuffles_are_refused(epsilon: float, n: int, delta: float) -> None:
    """Epsilon, n and delta have their ranges."""
    with pytest.raises(AccountingError, match=r"must be"):
        shuffled_epsilon(epsilon, n, delta)
