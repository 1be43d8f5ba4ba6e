"""Exact tests of what reports should be on average, by the p and q that their counts are debiased with. Pure.

A sampler that adds more noise than declared breaks no promise of privacy, but every estimate from it is wrong; one that
adds too little breaks both. Every test here is exact (binomial, or Poisson for coincidences), with no approximation
of the tails that false alarms live in.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, pdtrc

from dither_estimator.audit_events import Bools, seeds_of, supporters
from dither_estimator.counting import count_packed, support
from dither_protocol import Mechanism
from dither_protocol.mechanisms import Form
from dither_protocol.mechanisms.forms import SEEDS

MAX_LISTED = 4_096
"""Index reports are counted one by one up to so many different ones."""

_SEED_BITS = 32
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Deviation:
    """One count that is not as the law says.

    Attributes:
        what: what was counted.
        count: how often it happened.
        n: among how many.
        expected: how often it should, on average.
        p_value: chance of such a count under the law, corrected for the number of tests.
    """

    what: str
    count: int
    n: int
    expected: float
    p_value: float


@dataclass(frozen=True)
class _Counted:
    """Counts that should be binomial: arrays of one length, names made only where one of them is off."""

    what: str
    counts: NDArray[np.int64]
    n: int
    chances: Floats


def deviations(
    mechanism: Mechanism, packed: bytes, pair: tuple[int, int], is_first: Bools, alpha: float
) -> list[Deviation]:
    """What is not as the law says, the most unlikely count of each kind; empty for right reports but with chance alpha.

    Args:
        mechanism: the declared one.
        packed: reports in the order they were made.
        pair: the two values that devices held.
        is_first: whether the device held the first of them.
        alpha: chance of a false alarm, shared among all tests.
    """
    kinds = [*_pooled(mechanism, packed, pair, is_first)]
    for value, mask in zip(pair, (is_first, ~is_first), strict=True):
        kinds += _by_value(mechanism, _rows(mechanism, packed)[mask].tobytes(), value)
    found = [_worst(kind, len(kinds) + 1, alpha) for kind in kinds if kind.n]
    if mechanism.form is Form.HASH:
        found.append(_repeated_seeds(packed, len(kinds) + 1, alpha))
    return [one for one in found if one is not None]


def two_sided(counts: NDArray[np.int64], n: int, chances: Floats) -> Floats:
    """Twice the smaller tail of Binomial(n, chance) at each count, at most 1."""
    tails = np.minimum(bdtr(counts, n, chances), bdtrc(counts - 1, n, chances))
    doubled: Floats = np.minimum(1.0, 2 * tails)
    return doubled


def _rows(mechanism: Mechanism, packed: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(packed, dtype=np.uint8).reshape(-1, mechanism.packed_size)


def _worst(kind: _Counted, kinds: int, alpha: float) -> Deviation | None:
    p_values = two_sided(kind.counts, kind.n, kind.chances)
    at = int(p_values.argmin())
    corrected = float(p_values[at]) * p_values.size * kinds
    if corrected > alpha:
        return None
    what = kind.what.format(at)
    return Deviation(what, int(kind.counts[at]), kind.n, kind.n * float(kind.chances[at]), corrected)


def _pooled(mechanism: Mechanism, packed: bytes, pair: tuple[int, int], is_first: Bools) -> list[_Counted]:
    """Over all reports: the held value, the other one, both, and the held one in pairs of consecutive reports."""
    first, second = (supporters(mechanism, packed, value) for value in pair)
    own, other = np.where(is_first, first, second), np.where(is_first, second, first)
    pairs = own[: own.size // 2 * 2].reshape(-1, 2)
    p, n = mechanism.p, own.size
    alike = p * p + (1 - p) * (1 - p)
    return [
        _single("reports that support the held value", own, n, p),
        _single("reports that support the other value", other, n, mechanism.q),
        _single("reports that support both values", own & other, n, both_share(mechanism)),
        _single(
            "neighbouring reports alike in supporting the held value",
            pairs[:, 0] == pairs[:, 1],
            len(pairs),
            alike,
        ),
    ]


def both_share(mechanism: Mechanism) -> float:
    """Share of the reports that support a held value and a certain other one: q - (p-q)/(E-1).

    The other value alone is supported (p-q)/(E-1) of the time, as in `auditing.decided_share`.
    """
    share = mechanism.q - mechanism.gap / math.expm1(float(mechanism.realized_epsilon()))
    return share if share > 1e-9 else 0.0  # no such report, up to rounding


def _single(what: str, happened: Bools, n: int, chance: float) -> _Counted:
    return _Counted(what, np.array([int(happened.sum())]), n, np.array([chance]))


def _by_value(mechanism: Mechanism, packed: bytes, held: int) -> list[_Counted]:
    """Reports about one value: how often each value is supported, each report came, each bit of a seed is set."""
    counters, n = count_packed(mechanism, packed)
    chances = np.full(mechanism.d, mechanism.q)
    chances[held] = mechanism.p
    about = f"reports about value {held}"
    kinds = [_Counted(f"{about} that support value {{}}", support(mechanism, counters), n, chances)]
    if mechanism.form is Form.INDEX and mechanism.counters <= MAX_LISTED:
        kinds.append(_Counted(f"{about} that are {{}}", counters, n, index_law(mechanism, held)))
    if mechanism.form is Form.HASH:
        bits = (seeds_of(packed)[:, None] >> np.arange(_SEED_BITS) & 1).sum(axis=0)
        kinds.append(
            _Counted(f"seeds about value {held} with bit {{}} set", bits, n, np.full(_SEED_BITS, 0.5))
        )
    return kinds


def index_law(mechanism: Mechanism, held: int) -> Floats:
    """The chance of each index: those that support the value share p evenly, the others the rest."""
    every = np.arange(mechanism.counters, dtype="<u4").tobytes()
    inside = supporters(mechanism, every, held)
    law: Floats = np.where(inside, mechanism.p / inside.sum(), (1 - mechanism.p) / (~inside).sum())
    return law


def _repeated_seeds(packed: bytes, kinds: int, alpha: float) -> Deviation | None:
    """Coincidences among n uniform 32-bit seeds are as good as Poisson with mean n (n-1)/2 / 2^32."""
    seeds = seeds_of(packed)
    repeated = seeds.size - np.unique(seeds).size
    mean = seeds.size * (seeds.size - 1) / 2 / SEEDS
    corrected = float(pdtrc(repeated - 1, mean)) * kinds if repeated else 1.0
    if corrected > alpha:
        return None
    return Deviation("seeds that repeat an earlier one", repeated, seeds.size, mean, corrected)
