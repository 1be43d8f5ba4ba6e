"""The law of the SDK's real randomiser: accepted as it is, rejected 30 % beside it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dither_client import randomize
from dither_protocol import Mechanism, mechanism
from support.statistics import SHIFT, bit_rows, follow_chances, follows_law, sample_size, shifted

DIRECT = [("rr", 0.5, 2, 0), ("rr", 4.0, 2, 1), ("grr", 0.5, 5, 4), ("grr", 1.0, 16, 3), ("grr", 4.0, 8, 0)]
UNARY = [
    (name, epsilon, d, held)
    for name in ("sue", "oue")
    for epsilon, d, held in ((0.5, 2, 0), (1.0, 9, 8), (4.0, 12, 5))
]


def _direct_law(made: Mechanism, held: int) -> NDArray[np.float64]:
    return np.array([made.p if v == held else made.q for v in range(made.d)])


def _truth_moved(law: NDArray[np.float64], held: int, shift: float) -> NDArray[np.float64]:
    """The chance of the truth moved, the lies sharing the rest as before."""
    moved: NDArray[np.float64] = law * (1 - shifted(law[held], shift)) / (1 - law[held])
    moved[held] = shifted(law[held], shift)
    return moved


def _lie_moved(law: NDArray[np.float64], lie: int, held: int, shift: float) -> NDArray[np.float64]:
    """One lie more or less probable than the others, at the expense of the truth."""
    moved = law.copy()
    moved[held] -= law[lie] * shift
    moved[lie] += law[lie] * shift
    return moved


@pytest.mark.parametrize(("name", "epsilon", "d", "held"), DIRECT)
def test_direct_reports_follow_their_law(name: str, epsilon: float, d: int, held: int) -> None:
    """The truth with p, each lie with q; not with any of these 30 % more or less."""
    made = mechanism(name, epsilon, d)
    law = _direct_law(made, held)
    n = sample_size(law.min())
    counts = np.bincount([int(randomize(made, held)) for _ in range(n)], minlength=d)
    assert follows_law(counts, law)
    for shift in (-SHIFT, SHIFT):
        assert not follows_law(counts, _truth_moved(law, held, shift))
        assert not follows_law(counts, _lie_moved(law, (held + 1) % d, held, shift))
    if d > 2:
        assert not follows_law(counts, np.roll(law, 1))


def test_consecutive_direct_reports_are_independent() -> None:
    """Pairs of reports, one after the other, follow the product of the laws; repeated reports do not."""
    made = mechanism("grr", 1.0, 4)
    law = _direct_law(made, 2)
    pairs = np.outer(law, law).ravel()
    draws = np.array([int(randomize(made, 2)) for _ in range(2 * sample_size(pairs.min()))])
    first, second = draws[::2], draws[1::2]
    assert follows_law(np.bincount(4 * first + second, minlength=16), pairs)
    again = np.where(np.arange(first.size) % 10 < 3, first, second)  # three in ten repeat the one before
    assert not follows_law(np.bincount(4 * first + again, minlength=16), pairs)


def _bits(made: Mechanism, held: int, n: int) -> NDArray[np.int64]:
    return bit_rows([made.pack(randomize(made, held)) for _ in range(n)], made.d)


def _bit_law(made: Mechanism, held: int) -> NDArray[np.float64]:
    return np.array([made.p if v == held else made.q for v in range(made.d)])


@pytest.mark.parametrize(("name", "epsilon", "d", "held"), UNARY)
def test_unary_bits_follow_their_law(name: str, epsilon: float, d: int, held: int) -> None:
    """The bit of the truth is 1 with p, every other with q; not with either of these 30 % more or less."""
    made = mechanism(name, epsilon, d)
    law = _bit_law(made, held)
    n = sample_size(np.minimum(law, 1 - law).min())
    counts = _bits(made, held, n).sum(axis=0)
    assert follow_chances(counts, n, law)
    for v in range(d):
        for shift in (-SHIFT, SHIFT):
            wrong = law.copy()
            wrong[v] = shifted(law[v], shift)
            assert not follow_chances(counts, n, wrong)
    assert not follow_chances(counts, n, np.roll(law, 1))


def _pairs_agree(rows: NDArray[np.int64], law: NDArray[np.float64]) -> bool:
    """Whether every pair of different bits is 1 together as often as independent bits are."""
    i, j = np.triu_indices(law.size, k=1)
    return follow_chances((rows.T @ rows)[i, j], len(rows), law[i] * law[j])


def _neighbours_agree(rows: NDArray[np.int64], law: NDArray[np.float64]) -> bool:
    """Whether each bit is 1 in two consecutive reports as often as in independent ones (pairs not overlapping)."""
    first, second = rows[0 : len(rows) // 2 * 2 : 2], rows[1::2]
    return follow_chances((first * second).sum(axis=0), len(first), law * law)


def _share_noise(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Three reports in ten with one noise bit copied to another: the chance of each bit alone stays."""
    rows = rows.copy()
    some = np.arange(len(rows)) % 10 < 3
    rows[some, 2] = rows[some, 1]
    return rows


def _repeat_reports(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Three reports in ten repeated: the chance of each bit alone stays."""
    rows = rows.copy()
    some = np.flatnonzero(np.arange(len(rows) // 2) % 10 < 3)
    rows[2 * some + 1] = rows[2 * some]
    return rows


@pytest.mark.parametrize("name", ["sue", "oue"])
@pytest.mark.parametrize(
    ("agree", "spoil"), [(_pairs_agree, _share_noise), (_neighbours_agree, _repeat_reports)]
)
def test_bits_are_independent_of_each_other_and_of_the_report_before(
    name: str, agree: Callable[[Any, Any], bool], spoil: Callable[[Any], Any]
) -> None:
    """Any two bits of a report, and the same bit of two reports, share no noise; shared noise is noticed."""
    made = mechanism(name, 1.0, 11)
    law = _bit_law(made, 0)
    rows = _bits(made, 0, 2 * sample_size(made.q**2))
    assert agree(rows, law)
    assert not agree(spoil(rows), law)
