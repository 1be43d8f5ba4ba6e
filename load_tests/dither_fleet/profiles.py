"""Profiles: how many devices come when. Pure functions of time; a run scales them to its rate and length.

A profile maps the part of the run that has passed, in [0, 1), to a rate relative to the mean of the run. Its
integral over [0, 1] is 1, so the mean rate of a run is the one that was asked for.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Profile: TypeAlias = Callable[[float], float]

CROWD_TIMES: Final = 3.0
"""A flash crowd is so many times the rate before and after it, where nothing else is said."""
CROWD: Final = (0.25, 0.60)
"""Part of the run at which a flash crowd comes, and at which it goes."""

_SPIKE_TIMES: Final = 10.0
_SPIKE: Final = (0.45, 0.50)
_DAY_SWING: Final = 0.8
_STEPS: Final = 4_096


def steady(_: float) -> float:
    """The same rate all the time."""
    return 1.0


def _raised(part: float, between: tuple[float, float], times: float) -> float:
    """1 outside of an interval and ``times`` inside, scaled to a mean of 1."""
    begin, end = between
    mean = 1 + (end - begin) * (times - 1)
    return (times if begin <= part < end else 1.0) / mean


def spike(part: float) -> float:
    """A twentieth of the run at ten times the rate of the rest."""
    return _raised(part, _SPIKE, _SPIKE_TIMES)


def diurnal(part: float) -> float:
    """One day: a night, a noon nine times as busy, and a night again."""
    return 1.0 - _DAY_SWING * math.cos(2 * math.pi * part)


def flash_crowd(part: float, times: float = CROWD_TIMES) -> float:
    """A crowd that comes at once, stays for a third of the run at so many times the rate, and goes."""
    return _raised(part, CROWD, times)


PROFILES: Final[Mapping[str, Profile]] = {
    "steady": steady,
    "spike": spike,
    "diurnal": diurnal,
    "flash-crowd": flash_crowd,
}


@dataclass(frozen=True)
class Schedule:
    """When each device of a run comes.

    Attributes:
        profile: name of one of `PROFILES`.
        devices: how many come.
        rate: mean of the run, devices per second; None for as fast as they are served.
        crowd_times: of a flash crowd: so many times the rate before and after it.
    """

    profile: str
    devices: int
    rate: float | None
    crowd_times: float = CROWD_TIMES

    @property
    def length_s(self) -> float:
        """How long it takes until all have come, seconds; 0 without a rate."""
        return 0.0 if self.rate is None else self.devices / self.rate

    def rate_at(self, seconds: float) -> float:
        """Devices per second at a time of the run; infinite without a rate, 0 before it begins and after it ends."""
        if self.rate is None:
            return math.inf
        part = seconds / self.length_s
        return self.rate * self._profile(part) if 0 <= part < 1 else 0.0

    def arrivals(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Seconds after the start at which devices of these numbers come: where the integral of the rate is theirs."""
        if self.rate is None:
            return np.zeros(numbers.shape)
        parts, came = self._integral
        return np.asarray(np.interp(numbers / self.devices, came, parts)) * self.length_s

    def _profile(self, part: float) -> float:
        profile = PROFILES[self.profile]
        return flash_crowd(part, self.crowd_times) if profile is flash_crowd else profile(part)

    @cached_property
    def _integral(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Parts of the run, and the part of all devices that has come by each."""
        parts = np.linspace(0, 1, _STEPS + 1)
        middles = (parts[:-1] + parts[1:]) / 2
        came = np.concatenate([[0.0], np.cumsum([self._profile(float(part)) for part in middles])])
        return parts, came / came[-1]
