"""pure-ldp: one report per `privatise`, `aggregate` per report, estimates of the whole domain."""

import random
from importlib.metadata import version

import numpy as np
from probe import EPSILON, FEW, MANY, Workload, main, repeats, values
from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

_ENCODED = 2_000


def _pair(name, d):
    options = {"grr": {}, "oue": {"use_oue": True}, "olh": {"use_olh": True}}[name]
    client, server = {"grr": (DEClient, DEServer), "oue": (UEClient, UEServer), "olh": (LHClient, LHServer)}[
        name
    ]
    zero_based = {"index_mapper": lambda value: value}
    return client(EPSILON, d, **options, **zero_based), server(EPSILON, d, **options, **zero_based)


def _encode(name, d) -> Workload:
    client, _ = _pair(name, d)
    given = values(_ENCODED, d)
    return lambda: [client.privatise(value) for value in given], _ENCODED


def _count(name, d, n, estimate) -> Workload:
    client, server = _pair(name, d)
    reports = [client.privatise(value) for value in values(n, d)]

    def work():
        server.reset()
        server.aggregate_all(reports)
        return server.estimate_all(range(d), suppress_warnings=True) if estimate else None

    return work, n


def _seed(number):
    random.seed(number)
    np.random.seed(number)


def _facts():
    client, _ = _pair("oue", 64)
    return {
        "version": version("pure-ldp"),
        "random": "Mersenne Twisters of numpy and of Python",
        "repeats_when_seeded": repeats(lambda: client.privatise(7), _seed),
        "intervals": "none",
    }


main(
    {
        "encode oue d=1024": lambda: _encode("oue", 1024),
        "encode grr d=128": lambda: _encode("grr", 128),
        "count olh d=1024": lambda: _count("olh", 1024, FEW, estimate=False),
        "count grr d=128": lambda: _count("grr", 128, MANY, estimate=False),
        "count oue d=128": lambda: _count("oue", 128, MANY, estimate=False),
        "count and estimate olh d=1024": lambda: _count("olh", 1024, FEW, estimate=True),
        "count and estimate grr d=128": lambda: _count("grr", 128, MANY, estimate=True),
        "count and estimate oue d=128": lambda: _count("oue", 128, MANY, estimate=True),
    },
    _facts,
)
