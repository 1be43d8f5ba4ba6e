"""opendp: randomised response on a category and on a bit vector (`sue`; it has no `oue`), and its debiasing."""

import math
import random
from importlib.metadata import version

import opendp.prelude as dp
from probe import EPSILON, MANY, Workload, main, repeats, values

_ENCODED = 1_000
_FLIP = 2 / (math.exp(EPSILON / 2) + 1)  # epsilon = 2 ln((2 - f) / f) for a vector of weight 1

dp.enable_features("contrib")


def _bits(value, d):
    vector = bytearray(d // 8)
    vector[value // 8] = 0x80 >> value % 8
    return bytes(vector)


def _sue():
    measurement = dp.m.make_randomized_response_bitvec(
        dp.bitvector_domain(max_weight=1), dp.discrete_distance(), f=_FLIP
    )
    if not math.isclose(measurement.map(1), EPSILON):
        raise RuntimeError(f"another epsilon: {measurement.map(1)}")
    return measurement


def _encode_sue(d) -> Workload:
    measurement, given = _sue(), values(_ENCODED, d)
    return lambda: [measurement(_bits(value, d)) for value in given], _ENCODED


def _encode_grr(d) -> Workload:
    measurement = dp.m.make_randomized_response(
        list(range(d)), prob=math.exp(EPSILON) / (math.exp(EPSILON) + d - 1)
    )
    given = values(_ENCODED, d)
    return lambda: [measurement(value) for value in given], _ENCODED


def _count_sue(d) -> Workload:
    measurement = _sue()
    reports = [measurement(_bits(value, d)) for value in values(MANY, d)]
    return lambda: dp.m.debias_randomized_response_bitvec(reports, _FLIP), MANY


def _facts():
    measurement = _sue()
    return {
        "version": version("opendp"),
        "random": "OpenSSL's CSPRNG",
        "repeats_when_seeded": repeats(lambda: measurement(_bits(7, 1024)), random.seed),
        "intervals": "none for randomised response",
    }


main(
    {
        "encode sue d=1024": lambda: _encode_sue(1024),
        "encode grr d=128": lambda: _encode_grr(128),
        "count and estimate sue d=128": lambda: _count_sue(128),
    },
    _facts,
)
