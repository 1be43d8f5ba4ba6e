"""diffprivlib: randomised response on one of two labels. It has no larger local mechanism, and no estimator for it."""

import random
from importlib.metadata import version

import numpy as np
from diffprivlib.mechanisms import Binary
from probe import EPSILON, Workload, main, repeats, values

_ENCODED = 20_000


def _encode() -> Workload:
    mechanism = Binary(epsilon=EPSILON, value0="no", value1="yes")
    given = ["yes" if value else "no" for value in values(_ENCODED, 2)]
    return lambda: [mechanism.randomise(value) for value in given], _ENCODED


def _seed(number):
    random.seed(number)
    np.random.seed(number)


def _facts():
    mechanism = Binary(epsilon=EPSILON, value0="no", value1="yes")
    return {
        "version": version("diffprivlib"),
        "random": "the operating system's, as a double",
        "repeats_when_seeded": repeats(lambda: [mechanism.randomise("yes") for _ in range(64)], _seed),
        "intervals": "none, and no estimate",
    }


main({"encode grr d=2": _encode}, _facts)
