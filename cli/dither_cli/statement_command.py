"""``dither registry statement``: the privacy statement of a registry, for an app to link to."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from dither_cli.files import naming, read_registry
from dither_cli.statement import statement
from dither_cli.statement_formats import html, markdown
from dither_cli.statement_layout import layout
from dither_protocol.errors import RegistryError

FORMATS = ("markdown", "html", "json")


@click.command("statement")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="markdown",
    show_default=True,
    help="For people, or for programs.",
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it here.  [default: stdout]"
)
def statement_command(*, file: Path, form: str, out: Path | None) -> None:
    """Say in plain words what the registry FILE asks, what leaves a device, and how much privacy that spends.

    Nothing in it is written by hand: whoever links to it shows what the devices and the server do.
    """
    try:
        registry = read_registry(file)
    except RegistryError as error:
        raise click.ClickException(str(error)) from None
    text = rendered(statement(registry, datetime.now(UTC).date()), form)
    if out is None:
        click.echo(text, nl=False)
        return
    with naming(out):
        out.write_text(text, encoding="utf-8")


def rendered(document: dict[str, Any], form: str) -> str:
    """A statement in one of `FORMATS`, with a line break at its end."""
    if form == "json":
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return (html if form == "html" else markdown)(layout(document))
