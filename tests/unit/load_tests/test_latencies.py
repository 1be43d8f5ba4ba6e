"""Latencies in bounded memory."""

import numpy as np
import pytest

from dither_fleet.latencies import Latencies, bin_of, percentile_s, upper_edge_s


@pytest.mark.parametrize("part", [0.5, 0.95, 0.99, 1.0])
def test_a_percentile_is_at_most_five_per_cent_too_high(part: float) -> None:
    """Of ten thousand latencies over five powers of ten, and never too low."""
    samples = 10 ** np.random.default_rng(3).uniform(-4, 1, 10_000)
    latencies = Latencies()
    for number, sample in enumerate(samples.tolist()):
        latencies.add(number % 7, sample)
    exact = float(np.quantile(samples, part, method="inverted_cdf"))
    found = percentile_s(latencies.all(), part)
    assert found is not None
    assert exact <= found * 1.000001
    assert found <= exact * 1.05 * 1.000001


@pytest.mark.parametrize(
    ("part", "exact"), [(0.25, 0.001), (0.5, 0.01), (0.51, 0.1), (0.75, 0.1), (0.76, 1), (1.0, 1)]
)
def test_a_percentile_of_few_requests_is_one_of_them(part: float, exact: float) -> None:
    """The least latency that this part of all requests did not exceed."""
    latencies = Latencies()
    for seconds in (1.0, 0.1, 0.01, 0.001):
        latencies.add(0.0, seconds)
    assert percentile_s(latencies.all(), part) == pytest.approx(exact, rel=0.051)


def test_no_request_has_no_percentile() -> None:
    """A run that was never answered says so."""
    assert percentile_s(Latencies().all(), 0.5) is None


def test_latencies_of_two_processes_add_up() -> None:
    """By second; a merged part of the run is what both had in it."""
    one, other = Latencies(), Latencies()
    one.add(0.5, 0.01)
    other.add(0.7, 0.02)
    other.add(1.2, 0.03)
    one.merge(other)
    assert one.over([0]).total() == 2
    assert one.all().total() == 3
    assert one.over([5]).total() == 0


def test_bins_hold_what_is_put_into_them() -> None:
    """Even no time at all, and hours."""
    for seconds in (0.0, 1e-5, 0.0123, 1.0, 7_200.0):
        assert upper_edge_s(bin_of(seconds)) >= seconds
        assert bin_of(seconds) == 0 or upper_edge_s(bin_of(seconds) - 1) <= seconds * 1.000001
