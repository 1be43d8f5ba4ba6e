"""Profiles: shapes of load as pure functions of time."""

import numpy as np
import pytest

from dither_fleet.profiles import CROWD_TIMES, PROFILES, Schedule

PARTS = (np.arange(100_000) + 0.5) / 100_000


@pytest.mark.parametrize("name", PROFILES)
def test_the_mean_of_a_profile_is_one(name: str) -> None:
    """So the rate that is asked for is the mean of the run, whatever its shape is."""
    rates = [PROFILES[name](float(part)) for part in PARTS]
    assert np.mean(rates) == pytest.approx(1, abs=1e-4)
    assert min(rates) > 0


def test_each_profile_has_its_shape() -> None:
    """A spike is tenfold, a flash crowd threefold, a noon nine times the night, and a steady load the same."""
    rates = {name: np.array([profile(float(part)) for part in PARTS]) for name, profile in PROFILES.items()}
    ratios = {name: values.max() / values.min() for name, values in rates.items()}
    expected = {"steady": 1, "spike": 10, "diurnal": 9, "flash-crowd": CROWD_TIMES}
    assert ratios == pytest.approx(expected, rel=1e-3)
    crowded = rates["flash-crowd"] > 1.5
    assert crowded.mean() == pytest.approx(0.35, abs=1e-3)


@pytest.mark.parametrize("name", PROFILES)
def test_devices_come_as_the_rate_says(name: str) -> None:
    """In each tenth of the run as many as the integral of the rate; in order, none before or after the run."""
    schedule = Schedule(name, 10_000, 100.0)
    assert schedule.length_s == 100.0
    arrivals = schedule.arrivals(np.arange(10_000))
    assert (np.diff(arrivals) >= 0).all()
    assert arrivals[0] >= 0
    assert arrivals[-1] < schedule.length_s
    came, _ = np.histogram(arrivals, bins=10, range=(0, 100))
    due = [sum(schedule.rate_at((i + (k + 0.5) / 100) * 10) for k in range(100)) / 10 for i in range(10)]
    assert np.abs(came - due).max() < 15
    assert schedule.rate_at(-1) == schedule.rate_at(100.0) == 0


def test_without_a_rate_all_come_at_once() -> None:
    """As fast as they are served: the schedule holds nobody back."""
    schedule = Schedule("steady", 5, None)
    assert schedule.arrivals(np.arange(5)).tolist() == [0.0] * 5
    assert schedule.length_s == 0


def test_a_flash_crowd_may_be_of_any_size() -> None:
    """Twelve times the rate before and after it, and the mean is still the one that was asked for."""
    schedule = Schedule("flash-crowd", 1_000, 10.0, crowd_times=12.0)
    before, crowd, after = (schedule.rate_at(part * schedule.length_s) for part in (0.1, 0.4, 0.9))
    assert crowd == pytest.approx(12 * before)
    assert before == after
    came = schedule.arrivals(np.arange(1_000))
    inside = ((came >= 25) & (came < 60)).sum()
    assert inside == pytest.approx(1_000 * 0.35 * 12 / (0.65 + 0.35 * 12), abs=2)
