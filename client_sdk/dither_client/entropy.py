"""The one place where privacy randomness comes from: the operating system (invariant P4).

Nothing else in the SDK draws randomness for answers; a test reads the sources and fails if `random` or numpy
appears among them.
"""

import os


def below(bound: int) -> int:
    """A uniform integer in [0, bound), exact: draws of just enough bits, those from ``bound`` on rejected.

    As `secrets.randbelow` does it; the module `secrets` would bring `random` along, and cost 12 ms at import.
    """
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    surplus = 8 * size - bits
    while True:
        draw = int.from_bytes(os.urandom(size), "little") >> surplus
        if draw < bound:
            return draw


def random_bytes(count: int) -> bytes:
    """``count`` uniform bytes."""
    return os.urandom(count)
