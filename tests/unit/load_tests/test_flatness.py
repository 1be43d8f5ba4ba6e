"""Whether something stays flat."""

from collections.abc import Callable

import numpy as np
import pytest

from dither_fleet.flatness import Flatness, flatness

BEGIN_S, END_S = 180.0, 900.0


def _held(value_at: Callable[[float], float]) -> Flatness:
    found = flatness([(at, value_at(at)) for at in np.arange(0.0, 905.0, 5.0).tolist()], BEGIN_S, END_S)
    assert found is not None
    return found


def test_noise_and_peaks_are_flat() -> None:
    """Single looks at a moment of work, five times as high, more of them at the end, and noise of a twentieth."""
    generator = np.random.default_rng(1)
    noise = _held(lambda at: 100.0 + generator.normal(0, 5) + (400 if at % 60 == 0 or at > 890 else 0))
    assert noise.flat
    assert abs(noise.growth) < 0.03


@pytest.mark.parametrize("per_hour", [-50.0, 0.0, 20.0, 31.0])
def test_what_grows_slowly_is_flat(per_hour: float) -> None:
    """Less than a twentieth in the 576 seconds between the middles of the fifths."""
    held = _held(lambda at: 100.0 + per_hour * (at - BEGIN_S) / 3_600)
    assert held.flat
    assert held.per_hour == pytest.approx(per_hour, rel=0.01)


@pytest.mark.parametrize("per_hour", [33.0, 60.0, 1_000.0])
def test_a_leak_is_not_flat(per_hour: float) -> None:
    """What grows with time, by a little more than a twentieth in that time."""
    held = _held(lambda at: 100.0 + per_hour * (at - BEGIN_S) / 3_600)
    assert not held.flat
    assert held.per_hour == pytest.approx(per_hour, rel=0.01)


def test_the_warm_up_is_not_judged() -> None:
    """A process that doubles within it and stays so is flat; one that does so in the middle of the run is not."""
    assert _held(lambda at: 50.0 if at < 170 else 100.0).flat
    assert not _held(lambda at: 50.0 if at < 540 else 100.0).flat


def test_what_shrinks_is_flat() -> None:
    """Memory given back is no fault."""
    held = _held(lambda at: 100.0 if at < 500 else 10.0)
    assert held.flat
    assert held.growth == pytest.approx(-0.9)


def test_something_out_of_nothing_is_not_flat() -> None:
    """Zero that stays zero is; there is no division by it."""
    assert _held(lambda _: 0.0).flat
    assert not _held(lambda at: 0.0 if at < 500 else 1.0).flat


def test_too_few_samples_say_nothing() -> None:
    """Neither flat nor not: at least two in the first and in the last fifth."""
    assert flatness([], BEGIN_S, END_S) is None
    assert flatness([(200.0, 1.0), (210.0, 1.0), (890.0, 1.0)], BEGIN_S, END_S) is None
    assert flatness([(200.0, 1.0), (210.0, 1.0), (880.0, 1.0), (890.0, 1.0)], BEGIN_S, END_S) is not None
