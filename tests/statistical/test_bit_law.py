"""The law of bit reports of larger domains: every bit, every pair of bits, and a report and the next."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dither_protocol import Mechanism, mechanism
from dither_protocol.mechanisms import SubsetSelection
from support.reports import SOURCES, Source
from support.statistics import SHIFT, bit_rows, follow_chances, sample_size, shifted

UNARY = [
    (name, epsilon, d, held)
    for name in ("sue", "oue")
    for epsilon, d, held in ((0.5, 2, 0), (1.0, 9, 8), (4.0, 12, 5))
]
SUBSETS = [(1.0, 12, 0), (1.0, 12, 11), (0.5, 17, 9)]
Rows = NDArray[np.int64]


def _bits(source: Source, made: Mechanism, held: int, n: int) -> Rows:
    return bit_rows([made.pack(data) for data in source(made, held, n)], made.d)


def _bit_law(made: Mechanism, held: int) -> NDArray[np.float64]:
    return np.array([made.p if v == held else made.q for v in range(made.d)])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("name", "epsilon", "d", "held"), UNARY)
def test_unary_bits_follow_their_law(source: Source, name: str, epsilon: float, d: int, held: int) -> None:
    """The bit of the truth is 1 with p, every other with q; not with either of these 30 % more or less."""
    made = mechanism(name, epsilon, d)
    law = _bit_law(made, held)
    n = sample_size(np.minimum(law, 1 - law).min())
    counts = _bits(source, made, held, n).sum(axis=0)
    assert follow_chances(counts, n, law)
    for v in range(d):
        for shift in (-SHIFT, SHIFT):
            wrong = law.copy()
            wrong[v] = shifted(law[v], shift)
            assert not follow_chances(counts, n, wrong)
    assert not follow_chances(counts, n, np.roll(law, 1))


def _pairs_agree(rows: Rows, law: NDArray[np.float64]) -> bool:
    """Whether every pair of different bits is 1 together as often as independent bits are."""
    i, j = np.triu_indices(law.size, k=1)
    return follow_chances((rows.T @ rows)[i, j], len(rows), law[i] * law[j], cases=2)


def _neighbours_agree(rows: Rows, law: NDArray[np.float64]) -> bool:
    """Whether each bit is 1 in two consecutive reports as often as in independent ones (pairs not overlapping)."""
    first, second = rows[0 : len(rows) // 2 * 2 : 2], rows[1::2]
    return follow_chances((first * second).sum(axis=0), len(first), law * law, cases=2)


def _share_noise(rows: Rows) -> Rows:
    """Three reports in ten with one noise bit copied to another: the chance of each bit alone stays."""
    rows = rows.copy()
    some = np.arange(len(rows)) % 10 < 3
    rows[some, 2] = rows[some, 1]
    return rows


def _repeat_reports(rows: Rows) -> Rows:
    """Three reports in ten repeated: the chance of each bit alone stays."""
    rows = rows.copy()
    some = np.flatnonzero(np.arange(len(rows) // 2) % 10 < 3)
    rows[2 * some + 1] = rows[2 * some]
    return rows


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["sue", "oue"])
def test_bits_are_independent_of_each_other_and_of_the_report_before(source: Source, name: str) -> None:
    """Any two bits of a report, and the same bit of two reports, share no noise; shared noise is noticed."""
    made = mechanism(name, 1.0, 11)
    law = _bit_law(made, 0)
    rows = _bits(source, made, 0, 2 * sample_size(made.q**2))
    checks: tuple[tuple[Callable[[Any, Any], bool], Callable[[Any], Any]], ...] = (
        (_pairs_agree, _share_noise),
        (_neighbours_agree, _repeat_reports),
    )
    for agree, spoil in checks:
        assert agree(rows, law)
        assert not agree(spoil(rows), law)


def _subset_pair_law(made: SubsetSelection, held: int) -> NDArray[np.float64]:
    """Chance that two values, in the order of triu_indices, are in the subset together."""
    w, d, p = made.w, made.d, made.p
    with_truth = p * (w - 1) / (d - 1)
    without = (p * (w - 1) * (w - 2) + (1 - p) * w * (w - 1)) / ((d - 1) * (d - 2))
    i, j = np.triu_indices(d, k=1)
    return np.where((i == held) | (j == held), with_truth, without)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("epsilon", "d", "held"), SUBSETS)
def test_subsets_hold_pairs_as_often_as_they_should(
    source: Source, epsilon: float, d: int, held: int
) -> None:
    """Any two values are in a subset together as often as in uniform subsets with and without the truth."""
    made = cast(SubsetSelection, mechanism("subset", epsilon, d))
    law = _subset_pair_law(made, held)
    n = sample_size(law.min())
    rows = _bits(source, made, held, n)
    assert (rows.sum(axis=1) == made.w).all()
    i, j = np.triu_indices(d, k=1)
    counts = (rows.T @ rows)[i, j]
    assert follow_chances(counts, n, law)
    for pair in range(law.size):
        for shift in (-SHIFT, SHIFT):
            wrong = law.copy()
            wrong[pair] = shifted(law[pair], shift)
            assert not follow_chances(counts, n, wrong)


@pytest.mark.parametrize("source", SOURCES)
def test_consecutive_subsets_share_no_noise(source: Source) -> None:
    """A value is in two consecutive subsets as often as in independent ones; repeated subsets are noticed."""
    made = mechanism("subset", 1.0, 12)
    law = _bit_law(made, 4)
    rows = _bits(source, made, 4, 2 * sample_size(float(law.min()) ** 2))
    assert _neighbours_agree(rows, law)
    assert not _neighbours_agree(_repeat_reports(rows), law)
