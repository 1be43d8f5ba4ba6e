from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither_estimator import EstimationError, norm_sub

values = st.floats(-1e6, 1e6, allow_nan=False)
rows = st.lists(values, min_size=1, max_size=7)


def _nearest_by_trying_all(row: list[float]) -> Any:
    """The best of the projections on all faces of the simplex."""
    y = np.array(row)
    candidates = []
    for size in range(1, len(row) + 1):
        for face in map(list, combinations(range(len(row)), size)):
            x = np.zeros(len(row))
            x[face] = y[face] - (y[face].sum() - 1) / size
            if (x >= 0).all():
                candidates.append(x)
    return min(candidates, key=lambda x: float(((x - y) ** 2).sum()))


@settings(deadline=None)  # a busy machine is not a fault
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=7))
def test_it_is_the_nearest_point_of_the_simplex(row: list[float]) -> None:
    """No point of any face of the simplex is nearer."""
    assert norm_sub(row) == pytest.approx(_nearest_by_trying_all(row), abs=1e-9)


@settings(deadline=None)  # a busy machine is not a fault
@given(rows)
def test_it_is_a_distribution(row: list[float]) -> None:
    """The shares lie in [0, 1] and sum to one, whatever comes in."""
    shares = norm_sub(row)
    assert shares.min() >= 0
    assert shares.max() <= 1 + 1e-12
    assert shares.sum() == pytest.approx(1, abs=1e-12)


@settings(deadline=None)  # a busy machine is not a fault
@given(rows)
def test_it_subtracts_one_constant_and_cuts_at_zero(row: list[float]) -> None:
    """All positive shares lie the same distance below their estimates, and the zeros' estimates not above it."""
    shares = norm_sub(row)
    moved = np.array(row) - shares
    kept = shares > 0
    assert np.ptp(moved[kept]) <= 1e-9
    assert (np.array(row)[~kept] <= moved[kept].max() + 1e-9).all()


@settings(deadline=None)  # a busy machine is not a fault
@given(rows, st.randoms())
def test_the_order_of_values_does_not_matter(row: list[float], random: Any) -> None:
    """A permutation of the estimates permutes the shares."""
    order = random.sample(range(len(row)), len(row))
    assert norm_sub(np.array(row)[order]) == pytest.approx(norm_sub(row)[order], abs=1e-12)


def test_a_distribution_stays_as_it_is() -> None:
    """What is on the simplex is its own projection."""
    assert norm_sub([0.5, 0.25, 0.25, 0.0]).tolist() == [0.5, 0.25, 0.25, 0.0]


def test_the_input_is_not_changed() -> None:
    """The estimates that are published beside it stay untouched."""
    estimates = np.array([0.9, 0.4, -0.2])
    norm_sub(estimates)
    assert estimates.tolist() == [0.9, 0.4, -0.2]


@pytest.mark.parametrize("row", [[], [[0.5, 0.5]], 1.0, [float("nan"), 1.0], [float("inf"), 1.0]])
def test_what_is_no_row_of_finite_numbers_is_refused(row: Any) -> None:
    """There is no nearest distribution to it."""
    with pytest.raises(EstimationError, match="one row of at least one finite number"):
        norm_sub(row)
