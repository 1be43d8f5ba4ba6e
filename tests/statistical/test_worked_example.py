"""The worked example: what `dither plan` says about 263 browser versions, and what a fleet of 200,000 devices gives.

Run it as a script for the figures: ``python tests/statistical/test_worked_example.py``.
"""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr, chdtri

from dither_estimator import Estimates, count, estimate
from dither_estimator.plan import std_error
from dither_fleet import randomize_many, read_distribution
from dither_fleet.population import draw
from dither_protocol import mechanism

DATA = Path(__file__).parents[1] / "support" / "data" / "browser_version_share.csv"
DEVICES = 200_000
FALSE_ALARM = 1e-6


class Example(NamedTuple):
    """Planned and observed figures of one run."""

    mechanism: str
    planned_rmse: float
    observed_rmse: float
    covered: int
    values: int
    chi_square: float


def run(shift: float = 0.0) -> Example:
    """One fleet over the browser versions; ``shift`` spoils the estimates by so many planned standard errors."""
    shares = np.array(list(read_distribution(DATA.read_text("utf-8").splitlines()).values()))
    oracle = mechanism("auto", 1.0, shares.size)
    planned = np.array([std_error(oracle, DEVICES, share) for share in shares])
    population = draw(list(shares), DEVICES, np.random.default_rng(263))
    result: Estimates = estimate(oracle, *count(oracle, randomize_many(oracle, population)))
    errors = result.estimate - shares + shift * planned
    moved = shift * planned
    covered = (result.lower + moved <= shares) & (shares <= result.upper + moved)
    return Example(
        oracle.name,
        float(np.sqrt(np.mean(planned**2))),
        float(np.sqrt(np.mean(errors**2))),
        int(covered.sum()),
        shares.size,
        float(((errors / planned) ** 2).sum()),
    )


def _agrees(example: Example) -> bool:
    """Errors as large as planned, and intervals that cover: limits at one in a million.

    The errors of different values are all but independent, so their squares in planned units are chi-square.
    """
    low, high = (float(chdtri(example.values, tail)) for tail in (1 - FALSE_ALARM, FALSE_ALARM))
    return low <= example.chi_square <= high and bdtr(example.covered, example.values, 0.94) > FALSE_ALARM


def test_plan_and_fleet_agree() -> None:
    """The root mean square error is the planned one and the intervals cover; one standard error off is noticed."""
    example = run()
    assert (example.mechanism, example.values) == ("projective", 263)
    assert _agrees(example)
    assert not _agrees(run(shift=1.0))


if __name__ == "__main__":
    figures = run()
    print(figures)
    print(f"observed over planned: {figures.observed_rmse / figures.planned_rmse:.3f}")
    print(f"covered: {figures.covered / figures.values:.3f}")
    assert math.isfinite(figures.chi_square)
