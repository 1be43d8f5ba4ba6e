"""What every probe does: time what it is asked for, and print one line of JSON. Standard library only.

A probe is run by the Python of the peer's own environment: ``python NAME_probe.py "encode oue d=1024" ...``; without a
workload it says which ones it has.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

EPSILON: Final = 1.0
FEW, MANY = 1_000, 20_000
"""Reports that are counted with local hashing, which is slow elsewhere, and otherwise."""

_REPEATS: Final = 3

Workload = tuple[Callable[[], object], int]
"""What to time, and how many reports that is."""


def values(n: int, d: int) -> list[int]:
    """What the devices hold: the same for everybody."""
    return [number * number % d for number in range(n)]


def main(workloads: Mapping[str, Callable[[], Workload]], facts: Callable[[], Mapping[str, object]]) -> None:
    """Print the reports per second of each workload that the command line names.

    Args:
        workloads: by name; each prepares its reports when it is called, which is not timed.
        facts: gives what else is to be known about the library.
    """
    rates = {name: _rate(*workloads[name]()) for name in sys.argv[1:]}
    print(json.dumps({"workloads": list(workloads), "rates": rates, "facts": facts()}))


def _rate(work: Callable[[], object], items: int) -> float:
    """Items per CPU second: what it costs, whoever else has the processor. None of the libraries uses several cores."""
    work()  # what is compiled or cached at the first call is not timed
    best = float("inf")
    for _ in range(_REPEATS):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return items / best


def repeats(make: Callable[[], object], seed: Callable[[int], object]) -> bool:
    """Whether the noise comes again after the library's generator was given the same seed: it does from no CSPRNG."""
    drawn = []
    for _ in range(2):
        seed(7)
        drawn.append(repr(make()))
    return drawn[0] == drawn[1]
