"""Several versions of one domain, combined."""

import numpy as np
import pytest
from scipy.special import bdtr, bdtrc

from dither_estimator import EstimationError, estimate
from dither_estimator.combination import combine
from dither_estimator.estimation import Estimates
from dither_protocol import Mechanism, mechanism
from support.exact_draws import draw_counters
from support.statistics import FALSE_ALARM

SHARES = np.array([0.55, 0.3, 0.1, 0.05, 0.0])
VERSIONS = ((mechanism("oue", 2.0, 5), 300), (mechanism("grr", 1.0, 5), 900))


def _draw(oracle: Mechanism, n: int, noise: np.random.Generator) -> Estimates:
    holders = noise.multinomial(n, SHARES)[None, :]
    return estimate(oracle, draw_counters(oracle, holders, noise)[0], n)


def test_one_part_alone_is_itself() -> None:
    """Combining changes nothing where there is nothing to combine."""
    part = _draw(*VERSIONS[0], np.random.default_rng())
    both = combine([part])
    for name in ("estimate", "std_error", "lower", "upper", "norm_sub"):
        assert getattr(both, name) == pytest.approx(getattr(part, name))
    assert both.n == part.n


def test_weights_are_shares_of_the_reports() -> None:
    """Estimate sum n_i/n est_i, variance sum (n_i/n)^2 var_i."""
    noise = np.random.default_rng()
    parts = [_draw(oracle, n, noise) for oracle, n in VERSIONS]
    both = combine(parts)
    assert both.n == 1_200
    assert both.estimate == pytest.approx(0.25 * parts[0].estimate + 0.75 * parts[1].estimate)
    variance = 0.0625 * parts[0].std_error ** 2 + 0.5625 * parts[1].std_error ** 2
    assert both.std_error**2 == pytest.approx(variance)
    assert both.norm_sub.sum() == pytest.approx(1)
    assert set(both.method) == {"mover"}


def test_the_combined_intervals_cover() -> None:
    """Each value's interval covers its true share in at least 93 % of repetitions, and the truth shifted seldom."""
    noise = np.random.default_rng()
    repetitions = 1_500
    covered = np.zeros(SHARES.size, dtype=np.int64)
    shifted = 0
    for _ in range(repetitions):
        both = combine([_draw(oracle, n, noise) for oracle, n in VERSIONS])
        covered += (both.lower <= SHARES) & (both.upper >= SHARES)
        shifted += int(both.lower[0] <= SHARES[0] + 0.25 <= both.upper[0])
    assert all(bdtr(int(c), repetitions, 0.93) > FALSE_ALARM for c in covered)
    assert shifted < 0.2 * repetitions


@pytest.mark.parametrize(
    ("epsilon", "d", "n"),
    [
        (2.0, 16, 500),
        (8.0, 16, 1_000),
        (5.0, 1_000, 100),
    ],  # the later ones expect less than one report by chance
)
def test_absent_values_are_not_marked_present_and_common_ones_are(epsilon: float, d: int, n: int) -> None:
    """At most one run in twenty marks any of the absent values; a share of one half is always seen."""
    noise = np.random.default_rng()
    oracle = mechanism("oue", epsilon, d)
    runs = 300
    wrong = 0
    for _ in range(runs):
        parts = []
        for _ in range(2):
            counters = noise.binomial(n, oracle.q, d)
            counters[0] = noise.binomial(n, oracle.q + 0.5 * oracle.gap)
            parts.append(estimate(oracle, counters, n))
        both = combine(parts)
        assert both.present[0]
        wrong += int(both.present[1:].any())
    assert wrong == 0 or bdtrc(wrong - 1, runs, 0.05) > FALSE_ALARM


def test_parts_that_do_not_fit_are_refused() -> None:
    """Another domain, level, target or kind of interval, no reports, nothing at all."""
    base = estimate(VERSIONS[0][0], np.array([9, 5, 5, 5, 5]), 10)
    others = [
        estimate(mechanism("oue", 2.0, 4), np.array([9, 5, 5, 5]), 10),
        estimate(VERSIONS[0][0], np.array([9, 5, 5, 5, 5]), 10, level=0.9),
        estimate(VERSIONS[0][0], np.array([9, 5, 5, 5, 5]), 10, target="reporters"),
        estimate(VERSIONS[0][0], np.array([9, 5, 5, 5, 5]), 10, simultaneous=True),
        estimate(VERSIONS[0][0], np.zeros(5, dtype=np.int64), 0),
    ]
    for other in others:
        with pytest.raises(EstimationError):
            combine([base, other])
    with pytest.raises(EstimationError):
        combine([])
