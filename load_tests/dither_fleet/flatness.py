"""Whether something that is sampled over time stays flat. Pure.

The rule: of the samples after the warm-up, the median of the last fifth of the time is at most 5 % above the median of
the first fifth. Medians, since a single look may fall into a moment of work; fifths, since what leaks grows between
them by four fifths of what it grows in all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

GROWTH_LIMIT: Final = 0.05
"""What is flat grows by no more than this part."""

_PARTS: Final = 5
_LEAST_SAMPLES: Final = 2
_HOUR_S: Final = 3_600.0

Series = Sequence[tuple[float, float]]
"""Samples: seconds of the run, value."""


@dataclass(frozen=True)
class Flatness:
    """Something at both ends of a run.

    Attributes:
        first: median of the first fifth after the warm-up.
        last: median of the last fifth.
        span_s: from the middle of the one to the middle of the other, seconds.
    """

    first: float
    last: float
    span_s: float

    @property
    def growth(self) -> float:
        """Part by which the last is above the first; negative where it is below."""
        return self.last / self.first - 1 if self.first else float(self.last > 0)

    @property
    def per_hour(self) -> float:
        """Growth of the value in an hour, if it goes on like this."""
        return (self.last - self.first) / self.span_s * _HOUR_S

    @property
    def flat(self) -> bool:
        """Whether it keeps the rule."""
        return self.growth <= GROWTH_LIMIT


def flatness(series: Series, begin_s: float, end_s: float) -> Flatness | None:
    """What became of a value between the end of the warm-up and the end of the run.

    Args:
        series: its samples.
        begin_s: end of the warm-up, seconds of the run.
        end_s: end of the run.

    Returns:
        None where a fifth has fewer than two samples: then nothing can be said.
    """
    fifth_s = (end_s - begin_s) / _PARTS
    first = [value for at_s, value in series if begin_s <= at_s <= begin_s + fifth_s]
    last = [value for at_s, value in series if end_s - fifth_s <= at_s <= end_s]
    if min(len(first), len(last)) < _LEAST_SAMPLES:
        return None
    return Flatness(median(first), median(last), end_s - begin_s - fifth_s)
