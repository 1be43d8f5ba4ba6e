"""Reports by the two samplers that there are: the SDK's own, and the vectorised one of simulated fleets."""

from collections.abc import Callable, Sequence

import numpy as np

from dither_client import randomize
from dither_fleet import randomize_many
from dither_protocol import Mechanism
from dither_protocol.mechanisms import Data

Source = Callable[[Mechanism, int, int], Sequence[Data]]


def from_sdk(made: Mechanism, held: int, n: int) -> list[Data]:
    """The data of n devices that all hold one value, each by the SDK."""
    return [randomize(made, held) for _ in range(n)]


def from_fleet(made: Mechanism, held: int, n: int) -> Sequence[Data]:
    """The same by the vectorised sampler."""
    return randomize_many(made, np.full(n, held, dtype=np.int64))


SOURCES = (from_sdk, from_fleet)
