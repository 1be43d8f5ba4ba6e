"""A metric in plain words: what is asked, how often the answer is a lie, and what can be learnt."""

import math

from dither_protocol.mechanisms import Form, GeneralizedRandomizedResponse
from dither_protocol.registry import Metric

_EVERY = {"hour": "hour", "day": "day", "week": "week", "month": "month"}


def explain(metric: Metric) -> str:
    """Some sentences for the person at the device."""
    every = _EVERY.get(metric.period)
    often = f"at most once per {every}" if every else "once"
    if metric.dimensions:
        often += " for each combination of " + ", ".join(sorted(metric.dimensions))
    answers = ", ".join(metric.labels[:20]) + (", ..." if len(metric.labels) > 20 else "")
    lines = [
        f"Question: {metric.description}",
        f"Possible answers ({len(metric.labels)}): {answers}",
        f"Asked {often}. Your answer is changed at random on this device before anything leaves it.",
        _lie(metric),
        _learnt(metric),
    ]
    if metric.dimensions:
        shown = "; ".join(
            f"{name}: {', '.join(values)}" for name, values in sorted(metric.dimensions.items())
        )
        lines.append(f"Sent along unchanged, from closed lists: {shown}.")
    return "\n".join(lines)


def _lie(metric: Metric) -> str:
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


def _learnt(metric: Metric) -> str:
    factor = math.exp(metric.epsilon)
    return (
        "From one report nobody, the operator included, can tell your answer: it changes the odds of one answer "
        f"against another by a factor of at most {factor:.3g} (epsilon {metric.epsilon:g}). "
        "From many devices together the shares of all answers can be estimated."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
