"""A program that prints reports, for ``dither audit --command``: right, or with one fault.

::

    python audit_program.py FAULT MECHANISM EPSILON D VALUE COUNT
"""

import json
import math
import random
import sys
from typing import Any

from dither_protocol import mechanism
from dither_protocol.mechanisms import SubsetSelection


def grr(d: int, epsilon: float, value: int, dice: random.Random) -> int:
    """An index."""
    if dice.random() < math.exp(epsilon) / (math.exp(epsilon) + d - 1):
        return value
    return dice.choice([other for other in range(d) if other != value])


def oue(d: int, epsilon: float, value: int, dice: random.Random) -> list[int]:
    """A list of values."""
    noise = 1 / (math.exp(epsilon) + 1)
    return [v for v in range(d) if dice.random() < (0.5 if v == value else noise)]


def subset(d: int, epsilon: float, value: int, dice: random.Random) -> list[int]:
    """A list of w values, the truth first where it is in."""
    made = mechanism("subset", epsilon, d)
    assert isinstance(made, SubsetSelection)
    others = [v for v in range(d) if v != value]
    if dice.random() < made.p:
        return [value, *dice.sample(others, made.w - 1)]
    return dice.sample(others, made.w)


SAMPLERS: dict[str, Any] = {"grr": grr, "oue": oue, "subset": subset}
SPENT = {"loud": 1.5, "quiet": 0.7}
"""What is spent, in multiples of what is declared."""


def main(fault: str, name: str, epsilon: float, *numbers: int) -> None:
    """Print the reports."""
    d, value, count = numbers
    dice = random.Random(7) if fault == "seeded" else random.SystemRandom()  # noqa: S311  the fault
    if fault == "fails":
        sys.exit("no such file: mine.csv")
    if fault == "hangs":
        sys.stdin.close()
        while True:
            pass
    last: Any = None
    for number in range(count - (fault == "short")):
        data = SAMPLERS[name](d, epsilon * SPENT.get(fault, 1.0), value, dice)
        if fault == "sorted":
            data.sort()
        elif fault != "truth-first" and isinstance(data, list):
            dice.shuffle(data)
        if fault == "repeats" and number % 3 == 0 and last is not None:
            data = last
        last = data
        print(
            "three"
            if fault == "words"
            else "NaN"
            if fault == "nan"
            else d
            if fault == "outside"
            else json.dumps(data)
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), *map(int, sys.argv[4:]))
