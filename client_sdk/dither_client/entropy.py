"""The one place where privacy randomness comes from: the operating system (invariant P4).

Nothing else in the SDK draws randomness for answers; a test reads the sources and fails if `random` or numpy
appears among them.
"""

import os
import secrets


def below(bound: int) -> int:
    """A uniform integer in [0, bound), exact: rejection sampling on operating-system randomness."""
    return secrets.randbelow(bound)


def random_bytes(count: int) -> bytes:
    """``count`` uniform bytes."""
    return os.urandom(count)
