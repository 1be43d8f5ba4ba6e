"""Samplers: how a true answer becomes a randomised one. One file per family, found by the mechanism's name.

Exact integer arithmetic on operating-system randomness; no floats, and no branch on the value.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Final, cast

from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms import Data, Mechanism

_SAMPLERS: Final = {
    "rr": "direct",
    "grr": "direct",
    "sue": "unary",
    "oue": "unary",
    "subset": "subset",
    "olh": "local_hashing",
    "blh": "local_hashing",
    "hadamard": "hadamard",
    "projective": "projective",
}
"""The module of each sampler: an app pays for the import of those that its metrics need."""


@lru_cache(maxsize=16)
def _sampler(module: str) -> Callable[[Mechanism, int], Data]:
    found = import_module(f"dither_client.sampling.{module}").sample
    return cast(Callable[[Mechanism, int], Data], found)


def randomize(mechanism: Mechanism, index: int) -> Data:
    """Randomise one answer: a pure function of the answer and operating-system randomness.

    Calling it twice on the same answer spends the epsilon twice; `Client.record` keeps the ledger. Of a memoised
    metric it gives the first report of a new device, whose permanent answer nobody keeps.

    Args:
        mechanism: from `dither_protocol.mechanism`.
        index: the true answer, 0 <= index < mechanism.d.

    Returns:
        The wire ``data``: an int for index reports, unpadded base64url for bit reports, [seed, value] for
        local hashing.

    Raises:
        MechanismError: the index is outside the domain (it is not repeated), or there is no sampler.
    """
    if type(index) is not int or not 0 <= index < mechanism.d:
        raise MechanismError(f"the index must be a whole number in [0, {mechanism.d})")
    module = _SAMPLERS.get(mechanism.name)
    if hasattr(mechanism, "epsilon_permanent"):  # a chain, under the name of its base oracle
        module = "memoized"
    if module is None:
        raise MechanismError("there is no sampler for this mechanism")
    return _sampler(module)(mechanism, index)
