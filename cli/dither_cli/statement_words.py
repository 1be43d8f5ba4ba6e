"""The sentences of a privacy statement. Numbers instead of praise: each says what holds, and under which assumption."""

import math
import unicodedata
from datetime import date
from typing import Final

from dither_cli.epsilon_text import bound_text, epsilon_text
from dither_protocol.labels import BIDI_CONTROLS
from dither_protocol.registry import Metric, Registry
from dither_protocol.registry.guarantees import guarantees
from dither_protocol.registry.spending import DAY, LIFE, WEEK, YEAR, YEAR_DAYS, Spending, permanent_answers

SPAN_WORDS: Final = {
    DAY: "on one day",
    WEEK: "in one week",
    YEAR: "in one year",
    LIFE: "for life",
}
_LARGE: Final = 1_000.0


def shown(text: str) -> str:
    """A text of the registry on one line, without what could reorder or hide the text around it."""
    kept = (" " if unicodedata.category(each) in ("Cc", "Zl", "Zp") else each for each in text)
    return " ".join("".join(each for each in kept if each not in BIDI_CONTROLS).split())


def how_often(metric: Metric) -> str:
    """How often a device answers at most, and until when."""
    often = "once" if metric.period == "once" else f"at most once per {metric.period}"
    if metric.dimensions:
        often += " for each combination of " + ", ".join(sorted(metric.dimensions))
    if metric.expires is None:
        return f"Asked {often}. The registry sets no day on which this ends."
    if metric.period == "once":
        return f"Asked {often}, until {metric.expires}."
    return f"Asked {often}. The last {metric.period} begins on {metric.expires} or before."


def memory(metric: Metric) -> str:
    """What the device keeps, and what that means for many reports."""
    for epsilon, values in permanent_answers(metric):
        return (
            "Your device draws a lasting random answer for each value that you ever give, at most "
            f"{values:,} of them, and each report is drawn from it anew. However often you answer, that costs "
            f"epsilon {epsilon_text(epsilon * values)} once for life ({values:,} times {epsilon:g}). It holds between "
            "answers that change at the same times, and come back to those of the same earlier times: that an answer "
            f"changed or came back, and when, may show over many reports. {_otherwise(metric)}"
        )
    return "Every report is drawn anew, so reports add up: the more of them, the more they tell together."


def _otherwise(metric: Metric) -> str:
    """What holds for memoised answers without that assumption."""
    each = next((found.epsilon for found in guarantees(metric) if found.about == "reports"), None)
    if each is None:
        return "Between any other answers nothing useful is guaranteed over many reports."
    return f"Between any other answers so many reports cost as many times epsilon {bound_text(each)}."


def leaves(registry: Registry) -> list[str]:
    """What is sent."""
    said = [
        "For each question: the randomised answer, the name and the version of the question, a fingerprint of how "
        "it is asked and randomised, and the window that it is about, such as a day.",
        "Reports wait on your device and leave several at a time, under a random number that is made for this one "
        "delivery and never used again.",
        "As with every connection, the network address of your device is seen while a report is delivered. Dither's "
        "server neither stores it nor writes it to a log; for this, unlike for your answers, you have to trust whoever "
        "runs it.",
    ]
    if any(metric.dimensions for metric in registry):
        said.insert(1, "What is listed as “sent along unchanged” is not randomised.")
    return said


def never_leaves(registry: Registry) -> list[str]:
    """What is not."""
    kept = "It is randomised on your device at once and then forgotten, there, too."
    alike = ""
    if any(permanent_answers(metric) for metric in registry):
        alike = " Lasting answers make many reports of one device resemble each other, as far as their epsilon allows."
        kept += (
            " For questions with lasting answers the device keeps a keyed fingerprint of each value that it has seen; "
            "somebody who holds the device's files could test guesses against it."
        )
    return [
        f"Your true answer. {kept}",
        "Anything that names you or your device: no account, no number of the device, no cookie, no counter. Two "
        f"deliveries of one device have nothing in them that says so.{alike}",
        "The exact time at which you did something: a report names its window, such as a day, and nothing closer.",
        "Text that you wrote, or anything else that is not in the lists of this statement.",
    ]


def spending_words(spent: Spending) -> list[str]:
    """Epsilon, the worst case of a day and for life, and where the device stops."""
    words = [
        "Epsilon is the measure of what reports can tell. At 0 they tell nothing. Each report changes the odds of one "
        "answer against another by a factor of at most e to the power of its epsilon; epsilons of several reports "
        "add up. The lower, the less is told.",
        "The sums below are for a device that answers every question, every time, in every way that it can. Yours "
        "hardly ever will; its own ledger knows what it has spent.",
    ]
    for span in (DAY, LIFE):
        most = spent.at_most(span)
        told = (
            "has no end" if most is None else f"is epsilon {epsilon_text(most)} (a factor of {factor(most)})"
        )
        words.append(f"The most that one device can spend {SPAN_WORDS[span]} {told}.")
    if spent.limits[DAY] is not None or spent.limits[LIFE] is not None or spent.life_filter is not None:
        words.append("The limits are kept by the device itself: at a limit it stops answering.")
    if spent.life_filter is not None:
        epsilon, delta = spent.life_filter
        words.append(
            f"For life the device stops before all its reports together could tell more than epsilon {epsilon:g}, but "
            f"for a probability of at most {delta:g}."
        )
    return words


def factor(epsilon: float) -> str:
    """e^epsilon in words, at most 10^k where it is large."""
    if epsilon < math.log(_LARGE):
        return f"{math.exp(epsilon):.3g}"
    return f"less than 10 to the power of {math.floor(epsilon / math.log(10)) + 1}"


def proof(registry: Registry) -> list[str]:
    """By which proof."""
    names = ", ".join(sorted({metric.mechanism.name for metric in registry}))
    return [
        "Each report by itself is locally differentially private (pure, delta = 0): whatever two answers one compares, "
        "any report is at most e^epsilon times as likely with the one as with the other. This holds whatever else is "
        "known about you, and whoever sees the report, the operator of the service included.",
        f"It follows from the probabilities of the mechanism ({names}): they are fixed by whole numbers, rounded "
        "toward more noise, and drawn with the random numbers of the operating system.",
        "Sums are plain sums of epsilons (basic composition), which hold however the answers depend on each other.",
    ]


def assumptions(registry: Registry, day: date) -> list[str]:
    """Under which assumptions."""
    said = [
        "The app uses the Dither SDK unchanged, and the operating system's random numbers cannot be guessed.",
        f"The sums are for one device that begins on {day}, while these questions stay as they are. A device that "
        "began before has spent more; new questions, and new versions of a question, are added. Two devices of one "
        "person count twice.",
        "The device keeps its ledger. If its folder is deleted, the sums begin anew.",
    ]
    lasting = [metric.name for metric in registry if permanent_answers(metric)]
    if lasting:
        said.append(
            f"Lasting answers ({', '.join(lasting)}): the sum holds between answers that change at the same times "
            "and come back to those of the same earlier times, and as long as nobody can break HMAC-SHA-256. "
            "After a no and a new yes they are drawn anew, and charged anew."
        )
    return said


def saying_no() -> list[str]:
    """How a person refuses."""
    return [
        "What you decide in the app goes before everything else, and you can change it at any time. After a no nothing "
        "is sent, and what waits to be sent is erased.",
        "Where the app has no switch for it, the command “python -m dither_client off” on the device does the same.",
        "While you have not decided, questions are answered, unless the app was built to wait for your yes. "
        "DO_NOT_TRACK=1 in the environment counts as a no until you decide, and DITHER_DISABLED=1 switches everything "
        "off, unless the app was built to set this itself.",
        "What was sent before cannot be called back: nothing in it says whose it is.",
    ]


def spans_in_words(day: str) -> dict[str, str]:
    """What each span is."""
    return {
        DAY: "one day (UTC)",
        WEEK: "one week (Monday to Sunday)",
        YEAR: f"one year ({YEAR_DAYS} days from {day})",
        LIFE: "for life (until the last question ends)",
    }
