"""Plans: what they promise is what will be published."""

import math

import numpy as np
import pytest
from scipy.special import bdtrc

from dither_estimator import EstimationError, estimate
from dither_estimator.plan import (
    MAX_REPORTS,
    central_reports_for,
    central_std_error,
    detectable_share,
    half_width,
    plan,
    reports_for,
    std_error,
)
from dither_protocol import MECHANISMS, mechanism


@pytest.mark.parametrize("name", sorted(set(MECHANISMS) - {"rr"}))
@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
def test_the_standard_error_is_the_exact_variance(name: str, share: float) -> None:
    """The population's variance is the reporters' plus that of sampling them."""
    oracle = mechanism(name, 1.5, 20)
    expected = math.sqrt((oracle.n_variance(share) + share * (1 - share)) / 5_000)
    assert std_error(oracle, 5_000, share) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("n", [1, 30, 1_000, 10**6, 10**9])
def test_the_planned_interval_is_the_published_one(n: int, share: float) -> None:
    """At the expected count, `estimate` gives the same width."""
    oracle = mechanism("oue", 1.0, 8)
    expected = round(n * (oracle.q + share * oracle.gap))
    counters = np.full(8, expected)
    result = estimate(oracle, counters, n)
    assert half_width(oracle, n, share, 0.95) == pytest.approx((result.upper[0] - result.lower[0]) / 2)


@pytest.mark.parametrize("margin", [0.2, 0.03, 0.001])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
@pytest.mark.parametrize(("name", "epsilon", "d"), [("grr", 1.0, 2), ("auto", 1.0, 263), ("olh", 4.0, 1024)])
def test_the_number_of_reports_for_a_margin_is_enough_and_not_idle(
    name: str, epsilon: float, d: int, share: float, margin: float
) -> None:
    """With so many reports the margin is reached, with two per cent fewer it is not."""
    oracle = mechanism(name, epsilon, d)
    n = reports_for(oracle, margin, share)
    assert half_width(oracle, n, share, 0.95) <= margin
    assert half_width(oracle, max(1, int(0.98 * n) - 2), share, 0.95) > margin


def test_the_margin_costs_more_than_with_central_privacy() -> None:
    """The price of not having to trust anybody is stated, and it is a price."""
    assert central_reports_for(1.0, 0.01) < reports_for(mechanism("auto", 1.0, 263), 0.01)
    # Without sampling error the interval is Laplace's own: ln(20) scale / n at 95 %.
    assert central_reports_for(0.5, 0.001, share=0.0) == math.ceil(math.log(20) * (2 / 0.5) / 0.001)
    # Without much noise it is the normal one.
    assert central_reports_for(20.0, 0.001, share=0.5) == pytest.approx(1.96**2 * 0.25 / 1e-6, rel=0.01)


def test_the_central_error_is_that_of_laplace_noise() -> None:
    """Against a simulation: a histogram share with Laplace noise of scale 2/epsilon, and sampling."""
    noise = np.random.default_rng()
    n, share, epsilon, runs = 200, 0.1, 0.5, 200_000
    samples = (noise.binomial(n, share, runs) + noise.laplace(0, 2 / epsilon, runs)) / n
    expected = central_std_error(epsilon, n, share)
    # The variance of a sample variance is (mu4 - s^4)/runs; kurtosis is at most Laplace's 6.
    assert samples.var() == pytest.approx(expected**2, rel=5 * math.sqrt(5 / runs))


@pytest.mark.parametrize(
    ("name", "epsilon", "d", "n"),
    [
        ("oue", 1.0, 20, 20_000),
        ("grr", 1.0, 5, 20_000),
        ("grr", 10.0, 100, 1_000),  # noise alone supports a value once in thousands of reports
        ("oue", 5.0, 1_000, 1_000),
        ("oue", 3.0, 128, 1_000),
    ],
)
def test_the_detectable_share_is_marked_present_nine_times_in_ten(
    name: str, epsilon: float, d: int, n: int
) -> None:
    """Exactly, by summing the binomial law over the counts that `estimate` marks; a tenth less is not enough."""
    oracle = mechanism(name, epsilon, d)
    share = detectable_share(oracle, n, 0.95)
    assert share is not None

    def is_marked(count: int) -> bool:
        counters = np.full(d, min(n, round(n * oracle.q)))
        counters[0] = count
        return bool(estimate(oracle, counters, n).present[0])

    least = next(count for count in range(n + 1) if is_marked(count))
    for at, enough in ((share, True), (0.9 * share, False)):
        chance = oracle.q + at * oracle.gap
        assert (float(bdtrc(least - 1, n, chance)) >= 0.9 - 1e-6) is enough


def test_a_share_that_cannot_be_seen_is_none() -> None:
    """Ten reports at a small epsilon tell nothing at all."""
    assert detectable_share(mechanism("oue", 0.1, 100), 10, 0.95) is None


@pytest.mark.parametrize("n", [0, -1, True, 1.5, MAX_REPORTS + 1])
def test_a_number_of_reports_outside_its_range_is_refused(n: object) -> None:
    """A clear error."""
    with pytest.raises(EstimationError, match="n must be"):
        plan(mechanism("grr", 1.0, 5), n)  # type: ignore[arg-type]


def test_bad_margins_and_shares_are_refused() -> None:
    """A clear error each."""
    oracle = mechanism("oue", 1.0, 5)
    for margin in (0.0, 1.0, float("nan")):
        with pytest.raises(EstimationError, match="margin"):
            reports_for(oracle, margin)
    with pytest.raises(EstimationError, match="more than"):
        reports_for(mechanism("oue", 0.001, 5), 1e-6)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(EstimationError, match="share"):
            reports_for(oracle, 0.1, share)
        with pytest.raises(EstimationError, match="share"):
            plan(oracle, 10, shares=[share])
