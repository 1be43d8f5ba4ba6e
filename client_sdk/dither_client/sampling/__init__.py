"""Samplers: how a true answer becomes a randomised one. One file per family, found by the mechanism's name.

Exact integer arithmetic on operating-system randomness; no floats, and no branch on the value.
"""

from collections.abc import Callable

from dither_client.sampling import direct, hadamard, local_hashing, projective, subset, unary
from dither_protocol.errors import MechanismError
from dither_protocol.mechanisms import Data, Mechanism

# All are loaded at once: a handler that forks in the middle of a late import leaves its child half a module.
_SAMPLERS: dict[str, Callable[[Mechanism, int], Data]] = {
    "rr": direct.sample,
    "grr": direct.sample,
    "sue": unary.sample,
    "oue": unary.sample,
    "subset": subset.sample,
    "olh": local_hashing.sample,
    "blh": local_hashing.sample,
    "hadamard": hadamard.sample,
    "projective": projective.sample,
}


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
    sampler = _SAMPLERS.get(mechanism.name)
    if hasattr(mechanism, "epsilon_permanent"):  # a chain, under the name of its base oracle
        from dither_client.sampling import memoized  # noqa: PLC0415  few apps have memoised metrics

        sampler = memoized.sample
    if sampler is None:
        raise MechanismError("there is no sampler for this mechanism")
    return sampler(mechanism, index)
