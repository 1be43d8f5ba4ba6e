"""Estimates for people: tables on the terminal, charts as files. For `dither estimate` and `dither estimates`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from dither_cli.charts import ChartError, estimate_chart
from dither_cli.tables import estimate_table, heading

Document = dict[str, Any]


def show_estimates(documents: Sequence[Document], console: Console) -> None:
    """A table for each, and below it what is said about it where a service has published it."""
    for document in documents:
        console.print(estimate_table(document, console))
        if "revision" in document:
            console.print(Text(publication_line(document), style="dim"))
            console.print()


def publication_line(document: Document) -> str:
    """How far a published estimate is settled."""
    until = "final" if document["final"] else f"open until {document['closes']}"
    return f"revision {document['revision']}, {until}; everything before {document['watermark']} was counted"


def draw_estimates(path: Path, documents: Sequence[Document]) -> None:
    """One chart per file: with several estimates, each file gets its number before the ending.

    Raises:
        ChartError: there is nothing to draw.
    """
    shown = [document for document in documents if document["values"]]
    if not shown:
        raise ChartError("every estimate is suppressed: there is nothing to draw")
    for number, document in enumerate(shown, start=1):
        target = path if len(shown) == 1 else path.with_stem(f"{path.stem}-{number}")
        estimate_chart(target, heading(document), document["values"])
