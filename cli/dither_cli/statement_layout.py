"""A privacy statement as headings, paragraphs, lists and tables of plain text: the same for every format."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dither_cli.epsilon_text import ENDLESS, bound_text, epsilon_text
from dither_cli.statement_words import factor, spans_in_words
from dither_protocol.registry.spending import SPANS
from dither_protocol.registry.spending_bounds import says_more

MAX_ANSWERS: Final = 100
"""Answers that are written out; the JSON form has all of them."""


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title."""

    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Points:
    """A list, each point a paragraph; where it has a term, that goes before it."""

    points: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Grid:
    """A table: the first column names the rows, the others hold numbers."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = Heading | Paragraph | Points | Grid


def layout(document: Mapping[str, Any]) -> Iterator[Block]:
    """The statement, block by block."""
    project = document["project"]
    yield Heading(1, f"Privacy statement of {project}")
    yield Paragraph(
        f"{project} asks the devices on which it is installed how it is used. Each device changes its answer at "
        "random before it leaves, so that no report shows for certain what anybody answered; the shares of all "
        f"answers are estimated from many devices together. This statement was made on {document['day']} from the "
        "list of questions that the devices and the service use themselves."
    )
    yield Heading(2, "What is asked")
    for metric in document["metrics"]:
        yield from _metric(metric)
    yield from _text("What leaves your device", document["leaves"])
    yield from _text("What never leaves it", document["never_leaves"])
    yield from _spending(document)
    yield from _text("Why that holds", document["proof"])
    yield from _text("What it assumes", document["assumptions"])
    yield from _text("How to say no", document["saying_no"])
    yield Heading(2, "Whom to ask")
    contacts = document["contacts"]
    if contacts:
        yield Points([("", contact) for contact in contacts])
    else:
        yield Paragraph("The list of questions names nobody: ask whoever gave you the app.")


def _text(title: str, points: Sequence[str]) -> Iterator[Block]:
    yield Heading(2, title)
    yield Points([("", point) for point in points])


def _spending(document: Mapping[str, Any]) -> Iterator[Block]:
    yield Heading(2, "How much privacy is spent")
    spending = document["spending"]
    for words in spending["words"]:
        yield Paragraph(words)
    names, spans = spans_in_words(document["day"]), spending["spans"]
    yield Grid(
        "All questions together, at most for one device",
        ("", "reports", "sum of epsilons", "limit", "at most, with all limits", "factor"),
        [_span_row(names[span], spans[span]) for span in SPANS],
    )
    closest = [row for span in SPANS if (row := _closest_row(names[span], spans[span])) is not None]
    if closest:
        yield Paragraph(
            "Other rules of adding give closer bounds for the same reports, of which these are the closest; each may "
            "fail with the probability delta."
        )
        yield Grid("By other rules of adding", ("", "rule", "epsilon", "delta", "assumes"), closest)
    yield Grid(
        "Epsilon of each question, at most for one device",
        ("", "one report", *SPANS),
        [
            (each["name"], epsilon_text(each["noise"]["epsilon"]),
             *(epsilon_text(each["spending"][span]["epsilon"]) for span in SPANS))
            for each in document["metrics"]
        ],
    )  # fmt: skip


def _span_row(name: str, span: Mapping[str, Any]) -> Sequence[str]:
    most = span["at_most"]
    return (
        name,
        ENDLESS if span["reports"] is None else f"{span['reports']:,}",
        epsilon_text(span["epsilon"]),
        "none" if span["limit"] is None else epsilon_text(span["limit"]),
        epsilon_text(most),
        ENDLESS if most is None else factor(most),
    )


def _closest_row(name: str, span: Mapping[str, Any]) -> Sequence[str] | None:
    """The bound that says most, where one says more than the plain sum, and than the limits."""
    least = min(span["bounds"], key=lambda bound: bound["epsilon"], default=None)
    if least is None or not says_more(least["epsilon"], span["at_most"]):
        return None
    return (name, least["name"], bound_text(least["epsilon"]), f"{least['delta']:g}", least["assumption"])


def _metric(metric: Mapping[str, Any]) -> Iterator[Block]:
    yield Heading(3, metric["name"])
    answers = metric["answers"]
    more = len(answers) - MAX_ANSWERS
    listed = ", ".join(answers[:MAX_ANSWERS]) + (f", and {more:,} more" if more > 0 else "")
    points = [
        ("Question", metric["question"]),
        (f"Possible answers ({len(answers):,})", listed),
        ("How often", metric["how_often"]),
        ("Randomised", " ".join(metric["noise"]["words"])),
    ]
    for name, values in metric["dimensions"].items():
        points.append((f"Sent along unchanged: {name}", "one of " + ", ".join(values)))
    points.append(("Whom to ask", metric["owner"] or "the list of questions names nobody"))
    yield Points(points)
