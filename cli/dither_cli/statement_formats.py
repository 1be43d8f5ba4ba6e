"""A laid out privacy statement as Markdown, and as a web page of its own. Every text of the registry is escaped."""

import re
from collections.abc import Iterable
from html import escape
from typing import Final

from dither_cli.statement_layout import Block, Grid, Heading, Paragraph, Points

# What CommonMark, or GitHub's tables, formulas and bare links, give a meaning within a line, and what they do at its
# start. A backslash takes it away again.
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]|~$]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
_LINE_START: Final = re.compile(r"^(\d+)([.)])(?=\s|$)|^([-+#=])")

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1a2230; --soft: #525d6f; --line: #c9d0da; --page: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf3; --soft: #a3afc1; --line: #3a4557; --page: #10141b; }
}
body { margin: 0 auto; padding: 1rem 1rem 3rem; max-width: 46rem; background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1, h2, h3 { line-height: 1.25; }
h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
ul { padding-left: 1.2rem; }
li { margin: .4rem 0; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: baseline; }
th:first-child { text-align: left; padding-left: 0; }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: 500; }
""".strip()


def markdown(blocks: Iterable[Block]) -> str:
    """As Markdown (CommonMark, with tables as GitHub has them)."""
    return "\n\n".join(_markdown_block(block) for block in blocks) + "\n"


def _markdown_block(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {markdown_text(text)}"
        case Paragraph(text):
            return markdown_text(text)
        case Points(points):
            return "\n".join(f"- {_markdown_term(term)}{markdown_text(text)}" for term, text in points)
        case Grid(caption, columns, rows):
            lines = [
                _markdown_row([markdown_text(column) for column in columns]),
                _markdown_row([":---", *("---:" for _ in columns[1:])]),
                *(_markdown_row([markdown_text(cell) for cell in row]) for row in rows),
            ]
            return f"{markdown_text(caption)}:\n\n" + "\n".join(lines)


def _markdown_term(term: str) -> str:
    return f"**{markdown_text(term)}:** " if term else ""


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def markdown_text(text: str) -> str:
    """A text that reads as it stands: no HTML, no mark of Markdown, no block begins with it."""
    safe = escape(_MARKDOWN.sub(r"\\\1", text), quote=False)
    return _LINE_START.sub(lambda found: f"{found[1]}\\{found[2]}" if found[1] else f"\\{found[3]}", safe)


def html(blocks: Iterable[Block]) -> str:
    """As one web page that needs no other file and runs no script."""
    parts = list(blocks)
    title = next(block.text for block in parts if isinstance(block, Heading) and block.level == 1)
    head = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{_STYLE}\n</style>",
        "</head>",
        "<body>",
        "<main>",
    ]
    body = (_html_block(block) for block in parts)
    return "\n".join([*head, *body, "</main>", "</body>", "</html>"]) + "\n"


def _html_block(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{_html_text(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{_html_text(text)}</p>"
        case Points(points):
            items = (f"<li>{_html_term(term)}{_html_text(text)}</li>" for term, text in points)
            return "<ul>\n" + "\n".join(items) + "\n</ul>"
        case Grid(caption, columns, rows):
            first, *others = columns
            corner = f'<th scope="col">{_html_text(first)}</th>' if first else "<td></td>"
            head = corner + "".join(f'<th scope="col">{_html_text(each)}</th>' for each in others)
            body = "\n".join(_html_row(row) for row in rows)
            return (
                f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">\n<table>\n'
                f"<caption>{_html_text(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n"
                f"<tbody>\n{body}\n</tbody>\n</table>\n</div>"
            )


def _html_row(row: Iterable[str]) -> str:
    name, *cells = row
    return (
        f'<tr><th scope="row">{_html_text(name)}</th>'
        + "".join(f"<td>{_html_text(each)}</td>" for each in cells)
        + "</tr>"
    )


def _html_term(term: str) -> str:
    return f"<strong>{_html_text(term)}:</strong> " if term else ""


def _html_text(text: str) -> str:
    # Isolated: a text that is written from right to left must not reorder what stands beside it.
    return f"<bdi>{escape(text)}</bdi>" if not text.isascii() else escape(text)
