"""The estimator: reports counted per second from packed and wire form, and decode, per mechanism and d."""

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from dither_estimator import count, count_packed, estimate
from dither_fleet import randomize_many
from dither_protocol import mechanism
from harness import Case, Row, beside
from yardsticks import NUMPY, numpy_loop

_NAMES: Final = ("grr", "sue", "oue", "subset", "olh", "blh", "hadamard", "projective")
_SIZES: Final = (16, 128, 1024)
_REPORTS: Final = 50_000
_TARGETS: Final = {
    ("grr", 128): 1_000_000.0,
    ("oue", 128): 1_000_000.0,
    ("projective", 128): 1_000_000.0,
    ("olh", 1024): 200_000.0,
}


def cases() -> Iterator[Case]:
    """One per mechanism and d. Those of d = 128, and of what has a target, are guarded."""
    for d in _SIZES:
        for name in _NAMES:
            yield Case("counting", partial(_rows, name, d), guarded=d == 128 or (name, d) in _TARGETS)


def _rows(name: str, d: int) -> Iterator[Row]:
    oracle = mechanism(name, 1.0, d)
    wire = list(randomize_many(oracle, np.random.default_rng(1).integers(0, d, _REPORTS)))
    packed = b"".join(map(oracle.pack, wire))
    counters, n = count_packed(oracle, packed)
    title = f"{name} d={d}"
    for what, work, items, target in (
        (f"count {title}, packed", lambda: count_packed(oracle, packed), _REPORTS, _TARGETS.get((name, d))),
        (f"count {title}, wire", lambda: count(oracle, wire), _REPORTS, None),
        (f"decode and estimate {title}", lambda: estimate(oracle, counters, n), 1, None),
    ):
        took, loop = beside(work, numpy_loop)
        yield Row(what, items / took, "1/s", target, over=1 / loop, yardstick=NUMPY)
