"""Memoised metrics for tests, and the law of their rounds by listing every permanent answer and every report."""

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dither_client.sampling.memoized import permanent_answer
from dither_protocol.mechanisms import Memoized, MemoizedResponse, MemoizedUnaryEncoding
from dither_protocol.mechanisms.weights import SCALE
from support.registries import COLORS

Law = list[Fraction]
"""Chance of each answer or report: of `grr` by index, of a unary encoding by its bits as an integer."""


def memo_document(mechanism: str = "grr", **keys: Any) -> dict[str, Any]:
    """A registry whose one metric, "mood", is memoised; ``keys`` replace those of the metric, None takes one away."""
    mood = {
        "version": 1,
        "type": "categorical",
        "description": "Mood",
        "categories": COLORS,
        "collection": "memoized",
        "epsilon": 1.0,
        "epsilon_permanent": 2.0,
        "max_distinct_values": 3,
        "mechanism": mechanism,
        "period": "day",
        "min_reports": 1,
    } | keys
    mood = {key: value for key, value in mood.items() if value is not None}
    return {"schema": 1, "project": "test-app", "metrics": {"mood": mood}}


def permanent_law(chain: Memoized, held: int) -> Law:
    """The law of the permanent answer, from the integers of the round."""
    if isinstance(chain, MemoizedResponse):
        return [
            Fraction(
                chain.permanent_truth_weight if v == held else chain.permanent_lie_weight,
                chain.permanent_truth_weight + (chain.d - 1) * chain.permanent_lie_weight,
            )
            for v in range(chain.d)
        ]
    assert isinstance(chain, MemoizedUnaryEncoding)
    keep, noise = (
        Fraction(each, SCALE) for each in (chain.permanent.keep_threshold, chain.permanent.noise_threshold)
    )
    return _bits_law([keep if v == held else noise for v in range(chain.d)])


def second_law(chain: Memoized, answer: int) -> Law:
    """The law of a report over one permanent answer, from the integers of the round."""
    if isinstance(chain, MemoizedResponse):
        total = chain.second_truth_weight + (chain.d - 1) * chain.second_lie_weight
        return [
            Fraction(chain.second_truth_weight if v == answer else chain.second_lie_weight, total)
            for v in range(chain.d)
        ]
    assert isinstance(chain, MemoizedUnaryEncoding)
    flip = Fraction(chain.flip_threshold, SCALE)
    return _bits_law([1 - flip if answer >> v & 1 else flip for v in range(chain.d)])


def report_law(chain: Memoized, held: int) -> Law:
    """The law of one report: the product of the transition matrices of both rounds."""
    first = permanent_law(chain, held)
    rounds = [second_law(chain, answer) for answer in range(len(first))]
    return [
        sum((chance * law[report] for chance, law in zip(first, rounds, strict=True)), Fraction(0))
        for report in range(len(first))
    ]


def _bits_law(ones: list[Fraction]) -> Law:
    """Of independent bits, by the integer whose bit v is bit v."""
    law = [Fraction(1)] * (1 << len(ones))
    for bits, (v, one) in product(range(len(law)), enumerate(ones)):
        law[bits] *= one if bits >> v & 1 else 1 - one
    return law


def floats(law: Law) -> NDArray[np.float64]:
    """A law as doubles."""
    return np.array([float(chance) for chance in law])


def fixed_digits(number: int) -> Any:
    """A source of digits that gives the bytes of one integer, then zeros."""
    left = number

    def digits(count: int) -> bytes:
        nonlocal left
        drawn, left = left & ((1 << 8 * count) - 1), left >> 8 * count
        return drawn.to_bytes(count, "little")

    return digits


def permanent_by_digits(chain: Memoized, held: int, number: int) -> int:
    """The permanent answer where the digits are those of one integer."""
    return permanent_answer(chain, held, fixed_digits(number))
