"""multi-freq-ldpy: one report per client call, compiled by numba; its aggregators count and estimate in one."""

from importlib.metadata import version

import numpy as np
from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client
from numba import njit
from probe import EPSILON, FEW, MANY, Workload, main, repeats, values

_ENCODED = 2_000
_CLIENTS = {"grr": GRR_Client, "oue": UE_Client, "olh": LH_Client}


def _encode(name, d) -> Workload:
    client, given = _CLIENTS[name], values(_ENCODED, d)
    return lambda: [client(value, d, EPSILON) for value in given], _ENCODED


def _count(name, d, n) -> Workload:
    client = _CLIENTS[name]
    reports = [client(value, d, EPSILON) for value in values(n, d)]
    work = {
        "grr": lambda: GRR_Aggregator_MI(reports, d, EPSILON),
        "oue": lambda: UE_Aggregator_MI(reports, EPSILON),
        "olh": lambda: LH_Aggregator_MI(reports, d, EPSILON),
    }[name]
    return work, n


@njit
def _seed(number):
    np.random.seed(number)  # numba's compiled code has a generator of its own


def _facts():
    return {
        "version": version("multi-freq-ldpy"),
        "random": "Mersenne Twister of numpy, in numba",
        "repeats_when_seeded": repeats(lambda: UE_Client(7, 64, EPSILON).tolist(), _seed),
        "intervals": "none; a formula for the variance stands beside",
    }


main(
    {
        "encode oue d=1024": lambda: _encode("oue", 1024),
        "encode grr d=128": lambda: _encode("grr", 128),
        "count and estimate olh d=1024": lambda: _count("olh", 1024, FEW),
        "count and estimate grr d=128": lambda: _count("grr", 128, MANY),
        "count and estimate oue d=128": lambda: _count("oue", 128, MANY),
    },
    _facts,
)
