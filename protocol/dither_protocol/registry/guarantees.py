"""What the epsilons of a memoised metric guarantee, each with its assumption. Said wherever its epsilon is shown."""

from typing import NamedTuple

from dither_protocol.mechanisms import Memoized
from dither_protocol.registry.metric import Metric


class Guarantee(NamedTuple):
    """One statement about what reports tell.

    Attributes:
        about: "report", "life" or "reports".
        epsilon: nats; None where there is no useful bound.
        assumption: under which it holds, and about what, as a sentence.
    """

    about: str
    epsilon: float | None
    assumption: str


def guarantees(metric: Metric) -> tuple[Guarantee, ...]:
    """Of a memoised metric: one report alone, all reports for life, and both without the assumption; else nothing.

    "reports" is the epsilon of each report; so many reports cost so many times as much.

    "life" needs more than changes at the same times: the permanent answers to A, B, A are the same at the first and
    the last time, those to A, B, C are drawn apart, and reports without end tell which it was.
    """
    oracle = metric.mechanism
    if not isinstance(oracle, Memoized) or metric.max_distinct_values is None:
        return ()
    life = metric.max_distinct_values * oracle.epsilon_permanent
    changing = (
        "Without that assumption: each further report of a history costs so much."
        if oracle.second_epsilon is not None
        else "Without that assumption a unary encoding guarantees nothing useful over many reports."
    )
    return (
        Guarantee("report", oracle.epsilon, "One report alone, whatever the answers are."),
        Guarantee(
            "life",
            life,
            "All reports for life, between histories of answers that change at the same times, and come back to "
            "those of the same earlier times: "
            f"{metric.max_distinct_values} distinct answers at epsilon {oracle.epsilon_permanent:g} each. "
            "Computational: permanent answers come from HMAC-SHA-256 under a secret of the device.",
        ),
        Guarantee("reports", oracle.second_epsilon, changing),
    )


def in_words(found: Guarantee) -> str:
    """One line for people."""
    amount = "no bound" if found.epsilon is None else f"epsilon {found.epsilon:g}"
    return f"{amount}: {found.assumption}"
