"""Dither, with the same workloads: `randomize` per report, `count` from the wire form, estimates with intervals."""

import random
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version

import numpy as np
from probe import EPSILON, FEW, MANY, Workload, main, repeats, values

from dither_client import randomize
from dither_estimator import count, estimate
from dither_protocol import mechanism

_ENCODED = 2_000


def _encode(name: str, d: int) -> Workload:
    oracle, given = mechanism(name, EPSILON, d), values(_ENCODED, d)
    return lambda: [randomize(oracle, value) for value in given], _ENCODED


def _count(name: str, d: int, n: int, then: Callable[..., object] | None) -> Workload:
    oracle = mechanism(name, EPSILON, d)
    reports = [randomize(oracle, value) for value in values(n, d)]

    def work() -> object:
        counted = count(oracle, reports)
        return then(oracle, *counted) if then else counted

    return work, n


def _workloads() -> Mapping[str, Callable[[], Workload]]:
    found = {
        f"encode {name} d={d}": partial(_encode, name, d)
        for name, d in (("oue", 1024), ("sue", 1024), ("grr", 128), ("grr", 2))
    }
    for name, d, n in (("olh", 1024, FEW), ("grr", 128, MANY), ("oue", 128, MANY), ("sue", 128, MANY)):
        found[f"count {name} d={d}"] = partial(_count, name, d, n, None)
        found[f"count and estimate {name} d={d}"] = partial(_count, name, d, n, estimate)
    return found


def _seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)


def _facts() -> Mapping[str, object]:
    oracle = mechanism("oue", EPSILON, 64)
    return {
        "version": version("dither"),
        "random": "the operating system's CSPRNG, integers only",
        "repeats_when_seeded": repeats(lambda: randomize(oracle, 7), _seed),
        "intervals": "for every value, and simultaneous ones",
    }


main(_workloads(), _facts)
