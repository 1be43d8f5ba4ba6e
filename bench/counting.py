"""The estimator: reports counted per second from packed and wire form, and decode, per mechanism and d."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from dither_estimator import count, count_packed, estimate
from dither_fleet import randomize_many
from dither_protocol import mechanism
from harness import Row, per_second

_NAMES: Final = ("grr", "sue", "oue", "subset", "olh", "blh", "hadamard", "projective")
_SIZES: Final = (16, 128, 1024)
_REPORTS: Final = 50_000
_TARGETS: Final = {
    ("grr", 128): 1_000_000.0,
    ("oue", 128): 1_000_000.0,
    ("projective", 128): 1_000_000.0,
    ("olh", 1024): 200_000.0,
}


def rows() -> Iterator[Row]:
    """Three rows per mechanism and d."""
    for d in _SIZES:
        for name in _NAMES:
            yield from _case(name, d)


def _case(name: str, d: int) -> Iterator[Row]:
    oracle = mechanism(name, 1.0, d)
    wire = list(randomize_many(oracle, np.random.default_rng(1).integers(0, d, _REPORTS)))
    packed = b"".join(map(oracle.pack, wire))
    counters, n = count_packed(oracle, packed)
    title = f"{name} d={d}"
    rate = per_second(lambda: count_packed(oracle, packed), _REPORTS)
    yield Row(f"count {title}, packed", rate, "1/s", _TARGETS.get((name, d)))
    yield Row(f"count {title}, wire", per_second(lambda: count(oracle, wire), _REPORTS), "1/s")
    yield Row(f"decode and estimate {title}", per_second(lambda: estimate(oracle, counters, n), 1), "1/s")
