"""Privacy losses by brute force: over every report of a small domain, or every outcome of a small plan.

Nothing here uses the accounting of the protocol; laws of reports are those of `laws`.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import permutations, product

from dither_protocol import Mechanism
from dither_protocol.accounting.loss import PrivacyLoss
from dither_protocol.mechanisms import LocalHashing
from support.laws import report_law

Pairs = list[tuple[float, float]]
"""For each outcome its probabilities under two answers."""


def exact_pairs(made: Mechanism, one: int, other: int) -> list[tuple[Fraction, Fraction]]:
    """Of every report, its exact probabilities under two answers.

    Of local hashing: over all pairs of buckets, evenly, as the hash family has them.
    """
    if isinstance(made, LocalHashing):
        total = made.truth_weight + (made.g - 1) * made.lie_weight
        share = Fraction(1, made.g**2)

        def chance(y: int, true: int) -> Fraction:
            return share * Fraction(made.truth_weight if y == true else made.lie_weight, total)

        buckets = range(made.g)
        return [(chance(y, a), chance(y, b)) for a in buckets for b in buckets for y in buckets]
    first, second = report_law(made, one), report_law(made, other)
    return [(first[data], second[data]) for data in first]


def all_pairs(made: Mechanism) -> list[Pairs]:
    """For every two answers, the probabilities of every report as doubles."""
    return [
        [(float(p), float(q)) for p, q in exact_pairs(made, one, other)]
        for one, other in permutations(range(made.d), 2)
    ]


def three_points(loss: PrivacyLoss) -> Pairs:
    """The probabilities of the three losses under the true answer and under the other."""
    up = loss.probability * math.exp(loss.epsilon)
    rest = 1 - up - loss.probability
    return [(up, loss.probability), (loss.probability, up), (rest, rest)]


def composed(parts: Iterable[Pairs]) -> Pairs:
    """The probabilities of every combination of outcomes."""
    found = [
        (math.prod(p for p, _ in outcome), math.prod(q for _, q in outcome)) for outcome in product(*parts)
    ]
    return [(p, q) for p, q in found if p > 0]


def divergence(pairs: Sequence[tuple[float, float]], epsilon: float) -> float:
    """Hockey-stick divergence: the least delta at this epsilon."""
    grown = math.exp(epsilon)
    return math.fsum(max(0.0, p - grown * q) for p, q in pairs)


def least_epsilon(pairs: Sequence[tuple[float, float]], delta: float) -> float:
    """The least epsilon from 0 on at this delta, by bisection from below."""
    low, high = 0.0, 400.0
    if divergence(pairs, 0.0) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(pairs, middle) > delta else (low, middle)
    return low
