"""The exact coverage against every single count."""

import numpy as np
import pytest
from scipy.stats import binom

from dither_estimator import EstimationError
from dither_estimator.intervals import debiased, default_interval
from dither_estimator.utility import exact_coverage
from dither_protocol import mechanism


@pytest.mark.parametrize("n", [1, 7, 19, 20, 21, 40, 300])
@pytest.mark.parametrize(("name", "epsilon", "d"), [("grr", 1.0, 5), ("oue", 4.0, 30), ("rr", 0.5, 2)])
def test_it_is_the_chance_of_the_counts_whose_interval_covers(
    name: str, epsilon: float, d: int, n: int
) -> None:
    """Summed over all n + 1 counts, with the intervals as they are published."""
    made = mechanism(name, epsilon, d)
    shares = np.array([0.0, 0.03, 0.2, 0.5, 1.0])
    counts = np.arange(n + 1)
    interval = debiased(made, default_interval(counts, n, 0.95))
    for share, found in zip(shares, exact_coverage(made, shares, n, 0.95), strict=True):
        covers = (interval.lower <= share + 1e-12) & (share - 1e-12 <= interval.upper)
        law = binom.pmf(counts, n, made.q + share * made.gap)
        assert found == pytest.approx(law[covers].sum(), abs=1e-9)


def test_of_many_reports_it_is_the_level() -> None:
    """Within a per cent, at any share and level, and quickly however many reports there are."""
    made = mechanism("oue", 1.0, 100)
    for level in (0.9, 0.95, 0.99):
        found = exact_coverage(made, [[0.0, 0.01], [0.3, 1.0]], 10**8, level)
        assert found.shape == (2, 2)
        assert np.abs(found - level).max() < 0.001


def test_a_level_that_is_none_is_refused() -> None:
    """As by the intervals themselves."""
    with pytest.raises(EstimationError, match="level"):
        exact_coverage(mechanism("rr", 1.0, 2), [0.5], 10, 1.0)
