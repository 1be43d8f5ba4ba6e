"""The law of whole reports, by the SDK and by the fleet: accepted as it is, rejected 30 % beside it."""

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from dither_client import randomize
from dither_estimator import count, support
from dither_protocol import Mechanism, mechanism
from support.laws import report_law, supports
from support.reports import SOURCES, Source
from support.statistics import SHIFT, follow_chances, follows_law, sample_size, shifted

# Small domains, whose reports can all be listed. Spaces of `projective`: lines, planes and a solid; sizes of
# `subset`: 1, 2 and 3.
LISTED = [
    ("rr", 0.5, 2, 0), ("rr", 4.0, 2, 1),
    ("grr", 0.5, 5, 4), ("grr", 1.0, 16, 3), ("grr", 4.0, 8, 0),
    ("sue", 1.0, 3, 1), ("oue", 1.0, 3, 2), ("oue", 2.0, 2, 0),
    ("subset", 2.0, 4, 0), ("subset", 1.0, 6, 5), ("subset", 0.5, 5, 2), ("subset", 0.5, 7, 3),
    ("hadamard", 0.5, 2, 1), ("hadamard", 4.0, 3, 2), ("hadamard", 1.0, 7, 6), ("hadamard", 2.0, 8, 3),
    ("projective", 0.5, 2, 1), ("projective", 1.0, 4, 3), ("projective", 0.5, 7, 6), ("projective", 1.0, 10, 9),
    ("projective", 0.5, 15, 4), ("projective", 2.0, 15, 14),
]  # fmt: skip

SUPPORTED = [
    ("rr", 1.0, 2, 1),
    *((name, 1.0, 24, held) for name in ("grr", "sue", "oue", "subset", "olh") for held in (0, 23)),
    *((name, 0.5, 21, held) for name in ("blh", "hadamard", "projective") for held in (0, 20)),
    ("subset", 0.5, 40, 17), ("olh", 2.0, 9, 3), ("hadamard", 2.0, 31, 30), ("projective", 2.0, 100, 99),
]  # fmt: skip


def _moved(law: NDArray[np.float64], part: NDArray[np.bool_], shift: float) -> NDArray[np.float64]:
    """The chance of a part of the reports moved, the others sharing the rest as before."""
    share = law[part].sum()
    goal = shifted(float(share), shift)
    moved: NDArray[np.float64] = np.where(part, law * goal / share, law * (1 - goal) / (1 - share))
    return moved


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("name", "epsilon", "d", "held"), LISTED)
def test_reports_follow_their_law(source: Source, name: str, epsilon: float, d: int, held: int) -> None:
    """Every report as often as its weight says; the truth's reports, or any single one, not 30 % more or less."""
    made = mechanism(name, epsilon, d)
    exact = report_law(made, held)
    law = np.array([float(chance) for chance in exact.values()])
    found = Counter(source(made, held, sample_size(law.min(), law.size)))
    assert found.keys() <= exact.keys()
    counts = np.array([found[data] for data in exact])
    assert follows_law(counts, law)
    truthful = np.array([supports(made, data, held) for data in exact])
    assert not follows_law(counts, np.array([float(x) for x in report_law(made, (held + 1) % d).values()]))
    for shift in (-SHIFT, SHIFT):
        assert not follows_law(counts, _moved(law, truthful, shift))
        for rarest in (int(law.argmin()), int(np.where(truthful, law, 2).argmin())):
            assert not follows_law(counts, _moved(law, np.arange(law.size) == rarest, shift))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("name", "epsilon", "d", "held"), SUPPORTED)
def test_every_value_is_supported_as_often_as_it_should(
    source: Source, name: str, epsilon: float, d: int, held: int
) -> None:
    """The true value by p of the reports, every other by q; none of these 30 % more or less."""
    made = mechanism(name, epsilon, d)
    law = np.where(np.arange(d) == held, made.p, made.q)
    counters, n = count(made, source(made, held, sample_size(np.minimum(law, 1 - law).min())))
    counts = support(made, counters)
    assert follow_chances(counts, n, law)
    for v in range(d):
        for shift in (-SHIFT, SHIFT):
            wrong = law.copy()
            wrong[v] = shifted(law[v], shift)
            assert not follow_chances(counts, n, wrong)
    assert not follow_chances(counts, n, np.roll(law, 1))


def _pairs(made: Mechanism) -> NDArray[np.int64]:
    """Two consecutive reports, not overlapping, as one number each."""
    listed = {data: number for number, data in enumerate(report_law(made, 2))}
    return np.array([listed[randomize(made, 2)] for _ in range(2 * 60_000)]).reshape(-1, 2)


@pytest.mark.parametrize(("name", "d"), [("grr", 4), ("subset", 4), ("hadamard", 3), ("projective", 4)])
def test_consecutive_reports_are_independent(name: str, d: int) -> None:
    """Pairs of reports, one after the other, follow the product of the laws; repeated reports do not."""
    made = mechanism(name, 1.0, d)
    law = np.array([float(chance) for chance in report_law(made, 2).values()])
    product = np.outer(law, law).ravel()
    pairs = _pairs(made)
    assert sample_size(product.min()) <= 4 * len(pairs)
    assert follows_law(np.bincount(pairs @ [law.size, 1], minlength=product.size), product)
    some = np.arange(len(pairs)) % 10 < 3  # three in ten repeat the one before
    pairs[some, 1] = pairs[some, 0]
    assert not follows_law(np.bincount(pairs @ [law.size, 1], minlength=product.size), product)
