"""The estimator: reports counted per second, from the packed form of the store and from the wire form."""

from collections.abc import Iterator

import numpy as np

from dither_estimator import count, count_packed
from dither_fleet import randomize_many
from dither_protocol import mechanism
from harness import Row, per_second

_CASES = [("grr", 128, 1_000_000), ("sue", 128, 200_000), ("oue", 128, 200_000), ("oue", 1024, 50_000)]
_TARGETS = {("grr", 128): 1_000_000.0, ("oue", 128): 1_000_000.0}


def rows() -> Iterator[Row]:
    """One pair of rows per mechanism and d."""
    for name, d, n in _CASES:
        oracle = mechanism(name, 1.0, d)
        values = np.random.default_rng(1).integers(0, d, n)
        wire = randomize_many(oracle, values)
        packed = b"".join(map(oracle.pack, wire))
        target = _TARGETS.get((name, d))
        rate = per_second(lambda oracle=oracle, packed=packed: count_packed(oracle, packed), n)
        yield Row(f"count {name} d={d}, packed", rate, "1/s", target)
        rate = per_second(lambda oracle=oracle, wire=wire: count(oracle, wire), n)
        yield Row(f"count {name} d={d}, wire", rate, "1/s")
