import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dither_estimator
from dither_client import randomize
from dither_estimator import Estimates, EstimationError, count, estimate, norm_sub, support
from dither_estimator.estimation import Target
from dither_estimator.intervals import debiased, default_interval, simultaneous_interval
from dither_protocol import MECHANISMS, DitherError, Mechanism, mechanism

NAMES = tuple(
    name for name in MECHANISMS if name not in ("hadamard", "projective")
)  # counters are support counts
TARGETS: tuple[Target, ...] = ("population", "reporters")
ARRAYS = ("estimate", "std_error", "lower", "upper", "norm_sub")


def _any(name: str, epsilon: float = 1.0, d: int = 4) -> Mechanism:
    return mechanism(name, epsilon, 2 if name == "rr" else d)


def test_public_names() -> None:
    """The names that others build on; a change here is a change of contract."""
    assert dither_estimator.__all__ == [
        "Estimates", "EstimationError", "count", "count_packed", "estimate", "norm_sub", "support",
    ]  # fmt: skip
    assert callable(dither_estimator.estimate)
    assert set(EstimationError.__bases__) == {DitherError, ValueError}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_expected_counts_give_the_truth(name: str, share: float) -> None:
    """Where C is as its expectation, the estimate is the true share, up to the rounding of C."""
    made, n = _any(name), 10**12
    counters = [round(n * (made.q + share * made.gap))] * made.d
    found = estimate(made, counters, n)
    assert found.estimate == pytest.approx([share] * made.d, abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_the_formulas_of_the_design(name: str) -> None:
    """Estimate and both standard errors, written out once more value by value."""
    made, n = _any(name), 1_000
    counters = [400, 300, 250, 50][: made.d]
    population, reporters = (estimate(made, counters, n, target=target) for target in TARGETS)
    for v, c in enumerate(counters):
        pi = c / n
        f = (pi - made.q) / (made.p - made.q)
        spread = made.n_variance(f) / n
        assert population.estimate[v] == reporters.estimate[v] == pytest.approx(f, rel=1e-12)
        assert population.std_error[v] == pytest.approx(math.sqrt(pi * (1 - pi) / n) / made.gap, rel=1e-12)
        assert reporters.std_error[v] == pytest.approx(math.sqrt(spread), rel=1e-9)


def test_the_intervals_are_those_of_the_room() -> None:
    """Default or simultaneous, for both targets, mapped through the debias; n, level and target are kept."""
    made, n = _any("oue"), 200
    counters = np.array([0, 9, 60, 195])
    for simultaneous, kind in ((False, default_interval), (True, simultaneous_interval)):
        for target in TARGETS:
            found = estimate(made, counters, n, 0.9, target, simultaneous=simultaneous)
            expected = debiased(made, kind(counters, n, 0.9))
            assert found.lower.tolist() == expected.lower.tolist()
            assert found.upper.tolist() == expected.upper.tolist()
            assert found.method.tolist() == expected.method.tolist()
            settings = (found.n, found.level, found.target, found.simultaneous, found.mechanism)
            assert settings == (n, 0.9, target, simultaneous, made)


def test_nothing_is_cut() -> None:
    """Negative estimates and ends outside [0, 1] are published as they are, normalised ones beside them (C4)."""
    made = _any("grr")
    found = estimate(made, [0, 0, 10, 90], 100)
    assert found.estimate[0] < 0
    assert found.lower[0] < 0
    assert found.estimate[3] > 1
    assert found.upper[3] > 1
    assert (found.lower < found.upper).all()
    assert found.estimate.sum() == pytest.approx(1, abs=1e-12)
    assert found.norm_sub.tolist() == norm_sub(found.estimate).tolist()


@st.composite
def _counted(draw: st.DrawFn) -> tuple[Mechanism, list[int], int]:
    """Any mechanism and any counters that n reports could give, small and large."""
    made = _any(draw(st.sampled_from(NAMES)), draw(st.floats(0.001, 20)), draw(st.integers(2, 9)))
    n = draw(st.integers(0, 2**63 - 1) | st.integers(0, 3))
    return made, draw(st.lists(st.integers(0, n), min_size=made.d, max_size=made.d)), n


@settings(deadline=None)  # a busy machine is not a fault
@given(_counted(), st.sampled_from(TARGETS), st.booleans())
def test_all_numbers_are_finite_and_typed(
    counted: tuple[Mechanism, list[int], int], target: Any, simultaneous: bool
) -> None:
    """Any counts give finite float64 arrays of length d, an interval that holds the estimate, and never NaN."""
    made, counters, n = counted
    found = estimate(made, counters, n, 0.95, target, simultaneous=simultaneous)
    for array in (getattr(found, field) for field in ARRAYS):
        assert array.shape == (made.d,)
        assert array.dtype == np.float64
        assert np.isfinite(array).all()
    assert (found.std_error >= 0).all()
    assert (found.lower <= found.estimate).all()
    assert (found.estimate <= found.upper).all()
    assert found.norm_sub.sum() == pytest.approx(1, abs=1e-9)
    assert found.method.shape == (made.d,)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_without_reports_nothing_is_known(name: str, target: Any) -> None:
    """N = 0: the uniform estimate, the widest interval there is, half its width as standard error."""
    made = _any(name)
    found = estimate(made, [0] * made.d, 0, target=target)
    assert found.estimate.tolist() == found.norm_sub.tolist() == [1 / made.d] * made.d
    assert found.lower == pytest.approx([-made.q / made.gap] * made.d, rel=1e-12)
    assert found.upper == pytest.approx([(1 - made.q) / made.gap] * made.d, rel=1e-12)
    assert found.std_error == pytest.approx([0.5 / made.gap] * made.d, rel=1e-9)
    assert found.method.tolist() == ["clopper-pearson"] * made.d


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [0.001, 1.0, 20.0])
def test_the_standard_error_of_impossible_shares_is_a_number(name: str, epsilon: float) -> None:
    """Among reporters the variance is p q / gap^2 where nobody is counted, and (1-p)(1-q) / gap^2 where all are."""
    made, n = _any(name, epsilon), 10
    found = estimate(made, [0, n] + [1] * (made.d - 2), n, target="reporters")
    none, everyone = made.p * made.q / n, (1 - made.p) * (1 - made.q) / n
    assert (found.std_error[:2] * made.gap) ** 2 == pytest.approx([none, everyone], rel=1e-9)


def test_large_counts_keep_their_digits() -> None:
    """One report more or less of 2^62 does not change the estimate, and the interval does not collapse."""
    made, n = _any("oue"), 2**62
    found = estimate(made, [2**61, 2**61 + 1, 2**60, n], n)
    assert found.estimate[0] == pytest.approx(1, abs=1e-12)
    assert found.estimate[0] == pytest.approx(found.estimate[1], abs=1e-15)
    assert (found.lower[:3] < found.upper[:3]).all()


@pytest.mark.parametrize("n", [3, np.int64(3), np.uint8(3)])
def test_n_may_be_any_whole_number(n: Any) -> None:
    """Numpy's integers count as integers, and come out as int."""
    assert type(estimate(_any("rr"), [1, 2], n).n) is int


@pytest.mark.parametrize("n", [-1, 2**63, 3.0, True, "3", None, float("nan")])
def test_what_is_no_number_of_reports_is_refused(n: Any) -> None:
    """N is a whole number in [0, 2^63)."""
    with pytest.raises(EstimationError, match=r"n must be a whole number in \[0, 2\^63\)"):
        estimate(_any("rr"), [0, 0], n)


@pytest.mark.parametrize(("counters", "n"), [([4, 1], 3), ([0, 1], 0)])
def test_more_support_than_reports_is_refused(counters: list[int], n: int) -> None:
    """No value is supported by more reports than there are."""
    with pytest.raises(EstimationError, match="n is less than the number of reports"):
        estimate(_any("rr"), counters, n)


@pytest.mark.parametrize(
    ("name", "counters", "n"),
    [
        ("subset", [3, 0, 0, 6], 5),
        ("olh", [6, 0, 0, 0], 5),
        ("hadamard", [6, 0, 0, 0, 0, 0, 0, 0], 5),  # column 0 supports everything
        ("hadamard", [0, 0, 0, 0, 0, 0, 0, 6], 5),
        ("projective", [6, 0, 0, 0], 5),
    ],
)
def test_a_count_above_n_is_refused(name: str, counters: list[int], n: int) -> None:
    """Neither a count as it came nor a decoded one is above the number of reports."""
    with pytest.raises(EstimationError, match="n is less than the number of reports"):
        estimate(_any(name), counters, n)
    assert estimate(_any(name), counters, 60).n == 60


def test_a_counter_that_supports_no_value_is_still_at_most_n() -> None:
    """Of two values neither supports column 3 of `hadamard`: six such reports are six reports all the same."""
    made = _any("hadamard", d=2)
    assert support(made, [0, 0, 0, 6]).tolist() == [0, 0]
    with pytest.raises(EstimationError, match="n is less than the number of reports"):
        estimate(made, [0, 0, 0, 6], 5)
    assert estimate(made, [0, 0, 0, 6], 6).n == 6


@pytest.mark.parametrize("name", list(MECHANISMS))
@pytest.mark.parametrize("d", [2, 5])
@pytest.mark.parametrize("n", [0, 1, 2, 1_000])
def test_equal_reports_give_finite_results(name: str, d: int, n: int) -> None:
    """No report, one, or all alike: every number of the result is finite, and the consistent shares sum to one."""
    made = _any(name, 1.0, d)
    data = [randomize(made, 0)] * n
    for epsilon in (0.001, 1.0, 20.0):
        if name not in ("subset", "olh", "projective"):  # where the form of a report depends on epsilon
            made = _any(name, epsilon, d)
        found = estimate(made, *count(made, data))
        for array in ARRAYS:
            assert np.isfinite(getattr(found, array)).all()
        assert found.norm_sub.sum() == pytest.approx(1)
        assert (found.lower <= found.upper).all()


@pytest.mark.parametrize("target", ["", "Population", "sample", None, 1])
def test_an_unknown_target_is_refused(target: Any) -> None:
    """There are two targets."""
    with pytest.raises(EstimationError, match='"population" or "reporters"'):
        estimate(_any("rr"), [1, 2], 3, target=target)


@pytest.mark.parametrize("simultaneous", [False, True])
def test_a_level_outside_is_refused(simultaneous: bool) -> None:
    """A level of 95 is a mistake, not a confidence."""
    with pytest.raises(EstimationError, match="the level"):
        estimate(_any("rr"), [1, 2], 3, 95, simultaneous=simultaneous)


@pytest.mark.parametrize("counters", [[1, 2, 3], [1.0, 2.0], [-1, 2]])
def test_bad_counters_are_refused(counters: Any) -> None:
    """Counters are checked before anything is computed."""
    with pytest.raises(EstimationError, match="the counters must"):
        estimate(_any("rr"), counters, 3)


def test_estimates_are_frozen() -> None:
    """A result cannot be given another n or level afterwards."""
    found = estimate(_any("rr"), [1, 2], 3)
    assert isinstance(found, Estimates)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.n = 4  # type: ignore[misc]
