"""Empirical epsilon of the data that leave the SDK: a lower bound of every likelihood ratio, for all pairs of inputs.

The method is that of Ding, Wang, Wang, Zhang, Kifer, CCS 2018: choose events beforehand, count them under both inputs,
and bound the ratio of their chances from below with Clopper and Pearson.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv

from dither_client import entropy, randomize
from dither_client.sampling.subset import uniform_subset
from dither_protocol import MECHANISMS, Mechanism, mechanism
from dither_protocol.hashing import bucket
from dither_protocol.mechanisms import Data, LocalHashing, SubsetSelection
from dither_protocol.mechanisms.forms import SEEDS, encode_base64url
from support.laws import report_law, supports
from support.statistics import FALSE_ALARM

EPSILON = 1.0
TOO_MUCH = 1.3 * EPSILON
REPORTS = 30_000
"""Of each input. At 1.3 epsilon the ratio of the most telling events is 35 % above e^epsilon; the bounds take off some
12 %, and what is left between is more than five times the spread of the ratio."""

DOMAIN = {"rr": 2, "sue": 3, "oue": 3, "subset": 6}
CASES = [(name, DOMAIN.get(name, 4)) for name in MECHANISMS]
Sampler = Callable[[Mechanism, int], Data]


def _outcomes(made: Mechanism, data: list[Data]) -> NDArray[np.int64]:
    """How often each event of the family happened.

    Where all reports can be listed: each one. Always: "v supports the report and u does not", for every pair. Of
    local hashing: "the seed sends v to bucket 0" and its opposite, which must tell nothing at all.
    """
    support: Counter[tuple[bool, ...]] = Counter()
    if isinstance(made, LocalHashing):
        zeros = np.zeros(made.d, dtype=np.int64)
        for seed, value in cast(list[list[int]], data):
            hashed = [bucket(seed, v, made.g) for v in range(made.d)]
            support[tuple(one == value for one in hashed)] += 1
            zeros += [one == 0 for one in hashed]
        events = [*zeros, *(len(data) - zeros)]
    else:
        counts = Counter(data)
        listed = report_law(made, 0)
        assert counts.keys() <= listed.keys()
        events = [counts[one] for one in listed]
        for one, n in counts.items():
            support[tuple(supports(made, one, v) for v in range(made.d))] += n
    pairs = permutations(range(made.d), 2)
    return np.array(
        [*events, *(sum(n for key, n in support.items() if key[v] and not key[u]) for v, u in pairs)]
    )


def _proven_epsilon(made: Mechanism, sampler: Sampler) -> float:
    """The largest privacy loss that these reports prove, wrongly with a chance of one in a million."""
    counts = np.array([_outcomes(made, [sampler(made, v) for _ in range(REPORTS)]) for v in range(made.d)])
    bounds = 2 * made.d * (made.d - 1) * counts.shape[1]
    alpha = FALSE_ALARM / bounds
    # One bound of each kind for every input and event, at the alarm's share of one comparison.
    low = np.where(counts == 0, 0.0, betaincinv(np.maximum(counts, 1), REPORTS - counts + 1.0, alpha))
    high = np.where(counts == REPORTS, 1.0, betainccinv(counts + 1.0, np.maximum(REPORTS - counts, 1), alpha))
    ratios = [(low[v] / high[u]).max() for v, u in permutations(range(made.d), 2)]
    return math.log(max(ratios))


@pytest.mark.parametrize(("name", "d"), CASES)
def test_reports_prove_no_more_than_the_declared_epsilon(name: str, d: int) -> None:
    """No pair of inputs is told apart by more than e^epsilon, and the audit comes near to that bound."""
    proven = _proven_epsilon(mechanism(name, EPSILON, d), randomize)
    assert 0.75 * EPSILON < proven <= EPSILON


@pytest.mark.parametrize(("name", "d"), CASES)
def test_a_sampler_that_spends_a_third_more_is_caught(name: str, d: int) -> None:
    """Reports of 1.3 epsilon prove more than epsilon."""
    assert _proven_epsilon(mechanism(name, TOO_MUCH, d), randomize) > EPSILON


def _always_inside(made: Mechanism, index: int) -> Data:
    """A subset of the right size that never leaves the truth out."""
    subset = cast(SubsetSelection, made)
    others = uniform_subset(subset.d - 1, subset.w - 1)
    bits = others & ((1 << index) - 1) | 1 << index | others >> index << (index + 1)
    return encode_base64url(bits.to_bytes(subset.packed_size, "little"))


@cache
def _favourite(made: Mechanism, index: int) -> Data:
    """The first listed report that supports the value."""
    return next(data for data in report_law(made, index) if supports(made, data, index))


def _with_a_companion(made: Mechanism, index: int) -> Data:
    """A subset of the right law, but for one report of five, where the truth brings its companion along."""
    return _favourite(made, index) if entropy.below(5) == 0 else randomize(made, index)


@pytest.mark.parametrize("sampler", [_always_inside, _with_a_companion])
def test_a_subset_that_betrays_the_truth_is_caught(sampler: Sampler) -> None:
    """A truth that is never left out, or that has a companion more often than chance, proves more than epsilon."""
    assert _proven_epsilon(mechanism("subset", EPSILON, 6), sampler) > EPSILON


def _chosen_seed(made: Mechanism, index: int) -> Data:
    """The bucket is randomised as it should, under a seed that mostly sends the value to bucket 0."""
    hashing = cast(LocalHashing, made)
    seed, value = cast(list[int], randomize(made, index))
    steps = value - bucket(seed, index, hashing.g)
    for _ in range(8):
        if bucket(seed, index, hashing.g) == 0:
            break
        seed = entropy.below(SEEDS)
    return [seed, (bucket(seed, index, hashing.g) + steps) % hashing.g]


@pytest.mark.parametrize("name", ["olh", "blh"])
def test_a_seed_that_depends_on_the_value_is_caught(name: str) -> None:
    """Where seeds are picked to suit the value, they alone prove more than epsilon."""
    assert _proven_epsilon(mechanism(name, EPSILON, 4), _chosen_seed) > EPSILON
