"""Populations of simulated devices."""

import numpy as np
import pytest

from dither_fleet import read_distribution
from dither_fleet.population import DistributionError, draw


def test_a_distribution_is_read_and_scaled() -> None:
    """Remarks and the header are skipped, shares sum to one, the order stays."""
    shares = read_distribution(["# source: somewhere\n", "value,share\n", "b,3\n", '"a, c",1\n'])
    assert shares == {"b": 0.75, "a, c": 0.25}
    assert list(shares) == ["b", "a, c"]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        ["v,s\n"],
        ["v,s\n", "a\n"],
        ["v,s\n", "a,x\n"],
        ["v,s\n", "a,0\n"],
        ["v,s\n", "a,1\n", "a,2\n"],
        ["v,s\n", "a,inf\n"],
    ],
)
def test_a_file_that_is_no_distribution_is_refused(rows: list[str]) -> None:
    """The error names the row."""
    with pytest.raises(DistributionError, match="row"):
        read_distribution(rows)


def test_a_seed_gives_the_same_population_again() -> None:
    """Seeds are for populations: the same devices hold the same values."""
    first = draw([0.5, 0.3, 0.2], 1_000, np.random.default_rng(7))
    again = draw([0.5, 0.3, 0.2], 1_000, np.random.default_rng(7))
    assert (first == again).all()
    assert set(first.tolist()) == {0, 1, 2}
