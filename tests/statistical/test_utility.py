"""Predictions of utility against real noise: errors as large as predicted, and answers drawn by their shares."""

import numpy as np
import pytest
from scipy.special import erfc
from scipy.stats import binom

from dither_client import calibration
from dither_estimator import count, estimate
from dither_estimator.utility import exact_coverage
from dither_fleet import randomize_many
from dither_protocol import mechanism
from dither_protocol.utility import predicted_utility, real_utility
from support.statistics import SHIFT, follow_chances, follows_law, sample_size, shifted

SHARES = (0.5, 0.3, 0.15, 0.05)
WINDOWS = 1_500
REPORTS = 400
BEYOND = float(erfc(1 / np.sqrt(np.pi)))
"""How often an error of a normal distribution is larger than its mean absolute error: 0.425."""


def _supporters(name: str) -> np.ndarray:
    """Supporting reports of each value in each window, shape (WINDOWS, 4), from real reports."""
    made = mechanism(name, 1.0, 4)
    generator = np.random.default_rng(3)
    found = []
    held = generator.choice(4, size=(WINDOWS, REPORTS), p=SHARES).astype(np.int64)
    reports = list(randomize_many(made, held.ravel()))
    for window in range(WINDOWS):
        counters, n = count(made, reports[window * REPORTS : (window + 1) * REPORTS])
        found.append(estimate(made, counters, n).supporters)
    return np.array(found)


@pytest.mark.parametrize("name", ["grr", "oue", "subset"])
def test_errors_are_as_large_as_predicted(name: str) -> None:
    """Over many windows: the errors beyond the predicted mean are as many as the exact law says, about 42 of 100.

    One value at a time, so that windows are independent; a prediction 30 % beside it is rejected.
    """
    made = mechanism(name, 1.0, 4)
    supporters = _supporters(name)
    numbers = np.arange(REPORTS + 1)
    for value, share in enumerate(SHARES):
        alone = [
            share,
            1 - share,
        ]  # the figure is a mean over values: of two, with the errors of p and q alike
        pi = made.q + np.array(alone) * made.gap
        spread = np.sqrt(pi * (1 - pi) / REPORTS) / made.gap
        predicted = predicted_utility(made, alone, REPORTS, 0.95).mean_absolute_error
        limit = predicted * spread[0] / spread.mean()
        for factor, right in ((1.0, True), (1 - SHIFT, False), (1 + SHIFT, False)):
            error = np.abs((supporters[:, value] / REPORTS - made.q) / made.gap - share)
            larger = np.array([(error > limit * factor).sum()])
            exact = np.abs((numbers / REPORTS - made.q) / made.gap - share) > limit
            chance = float(binom.pmf(numbers, REPORTS, pi[0])[exact].sum())
            assert (
                abs(chance - BEYOND) < 0.04
            )  # counts are whole numbers: some are just beyond, some just within
            assert follow_chances(larger, WINDOWS, np.array([chance]), cases=len(SHARES)) is right, (
                value,
                factor,
            )


def test_intervals_cover_as_often_as_computed() -> None:
    """The exact coverage of each value, and not that of a level of 90 %."""
    made = mechanism("oue", 1.0, 4)
    supporters = _supporters("oue")
    covered = np.zeros(4, dtype=np.int64)
    for row in supporters:
        shares = (row / REPORTS - made.q) / made.gap
        found = estimate(made, row, REPORTS)
        assert found.estimate == pytest.approx(shares)
        pairs = list(zip(found.lower.tolist(), found.upper.tolist(), strict=True))
        single = [
            real_utility([each], [pair], [share], REPORTS).covered
            for each, pair, share in zip(shares.tolist(), pairs, SHARES, strict=True)
        ]
        covered += np.array(single)
    assert follow_chances(covered, WINDOWS, exact_coverage(made, SHARES, REPORTS, 0.95))
    assert not follow_chances(covered, WINDOWS, exact_coverage(made, SHARES, REPORTS, 0.90))


@pytest.mark.parametrize("weights", [(1, 1), (5, 3, 0, 2), (1, 2, 7), (10**20, 3 * 10**20, 1)])
def test_calibration_answers_follow_their_shares(weights: tuple[int, ...]) -> None:
    """As often as the weights say; not 30 % more or less, and never one of weight zero."""
    law = np.array(weights) / sum(weights)
    likely = law[law > 1e-6]
    draws = np.array([calibration.draw(weights) for _ in range(sample_size(likely.min()))])
    counts = np.bincount(draws, minlength=len(weights))
    assert counts[law <= 1e-6].sum() == 0
    counts = counts[law > 1e-6]
    assert follows_law(counts, likely)
    for shift in (-SHIFT, SHIFT):
        rare = shifted(float(likely[0]), shift)
        moved = np.append(rare, likely[1:] * (1 - rare) / (1 - likely[0]))
        assert not follows_law(counts, moved)
