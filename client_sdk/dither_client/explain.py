"""A metric in plain words: what is asked, how often the answer is a lie, and what can be learnt."""

import math
from collections.abc import Sequence
from typing import Final

from dither_protocol.mechanisms import Form, GeneralizedRandomizedResponse
from dither_protocol.registry import Metric, Registry
from dither_protocol.registry.metric import MEMOIZED
from dither_protocol.windows import ONCE

_LARGE: Final = 1_000.0
_RARE: Final = 0.0005
_EVERY = {"hour": "hour", "day": "day", "week": "week", "month": "month"}


def explain(metric: Metric, registry: Registry | None = None) -> str:
    """Some sentences for the person at the device; the registry says which other metrics its group has."""
    every = _EVERY.get(metric.period)
    often = f"at most once per {every}" if every else "once"
    if metric.dimensions:
        often += " for each combination of " + ", ".join(sorted(metric.dimensions))
    answers = ", ".join(metric.labels[:20]) + (", ..." if len(metric.labels) > 20 else "")
    lines = [
        f"Question: {metric.description}",
        *calibration_in_words(metric),
        f"Possible answers ({len(metric.labels)}): {answers}",
        f"Asked {often}. Your answer is changed at random on this device before anything leaves it.",
        lie_in_words(metric),
        learnt_in_words(metric),
        certainty_in_words(metric),
        *group_in_words(metric, registry.groups.get(metric.one_of or "", ()) if registry else ()),
        *memoized_in_words(metric),
    ]
    if metric.dimensions:
        shown = "; ".join(
            f"{name}: {', '.join(values)}" for name, values in sorted(metric.dimensions.items())
        )
        lines.append(f"Sent along unchanged, from closed lists: {shown}.")
    return "\n".join(lines)


def calibration_in_words(metric: Metric) -> list[str]:
    """That a calibration metric asks nothing; nothing of any other."""
    if metric.calibration is None:
        return []
    return [
        "This asks nothing about you: the device draws the answer by lot, by shares that everybody knows, so that the "
        "results can be held against the truth. What is said below of your answer is true of the drawn one."
    ]


def lie_in_words(metric: Metric) -> str:
    """How often what leaves is a lie."""
    oracle = metric.mechanism
    if isinstance(oracle, GeneralizedRandomizedResponse):
        share = _percent(1 - oracle.p)
        return f"In {share} of all reports the answer that leaves is a lie: another one, picked at random."
    if oracle.form is Form.BITS:
        return (
            "What leaves is a yes or no for every possible answer. "
            f"For your own answer it is a yes in {_percent(oracle.p)} of all reports, "
            f"for each other answer in {_percent(oracle.q)}."
        )
    return (
        "What leaves is a random number that fits many answers at once. "
        f"It fits your own answer in {_percent(oracle.p)} of all reports, each other answer in {_percent(oracle.q)}."
    )


def learnt_in_words(metric: Metric) -> str:
    """What one report tells, and what many do."""
    factor = math.exp(metric.epsilon)
    at_most = f"{factor:.3g}" if factor < _LARGE else f"{math.ceil(factor):,}"
    return (
        "To whoever sees it, the operator included, one report changes the odds of one answer against another by a "
        f"factor of at most {at_most} (epsilon {metric.epsilon:g}). "
        "From many devices together the shares of all answers can be estimated."
    )


def certainty_in_words(metric: Metric) -> str:
    """What epsilon means for somebody who sees one report: even odds become at most e^eps : 1."""
    doubt = 100 / (1 + math.exp(metric.epsilon))
    decimals = max(1, math.ceil(-math.log10(doubt)))  # so many that it never reads as 100 %
    return (
        "Somebody who thought that two answers were equally likely can be at most "
        f"{100 - doubt:.{decimals}f} % sure of one against the other after seeing one report."
    )


def memoized_in_words(metric: Metric) -> list[str]:
    """What a memoised metric remembers, and what all its reports together tell; nothing of a fresh one."""
    if metric.collection != MEMOIZED:
        return []
    from dither_protocol.registry.guarantees import guarantees, in_words  # noqa: PLC0415  not at the start

    return [
        "The first change is drawn once for each answer that you give and then kept, so that many reports together "
        f"cannot be averaged out; for this the device keeps a secret, and marks of up to "
        f"{metric.max_distinct_values} answers, which never leave it. Whoever reads them on this device could "
        "test guesses.",
        *(f"Guaranteed, {in_words(found)}" for found in guarantees(metric)),
    ]


def group_in_words(metric: Metric, group: Sequence[Metric]) -> list[str]:
    """Which questions share one answer per window, and what that is charged; nothing of a metric without a group."""
    if metric.one_of is None or not group:
        return []
    when = "Once for all" if metric.period == ONCE else f"In each {metric.period}"
    return [
        f"{when}, this device answers only one of {len(group)} questions ({', '.join(each.name for each in group)}), "
        "which it draws by lot, whatever the answers are. Each of their reports is charged with the largest epsilon "
        f"among them, {max(each.epsilon for each in group):g}."
    ]


def _percent(share: float) -> str:
    """To a tenth; what is rare does not read as never, nor what is usual as always."""
    if 0 < share < _RARE:
        return "less than 0.1 %"
    return "more than 99.9 %" if 1 - _RARE <= share < 1 else f"{100 * share:.1f} %"
