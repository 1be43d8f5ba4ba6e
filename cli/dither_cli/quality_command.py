"""``dither quality``: how far off estimates are, predicted and, where the truth is known, real."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from dither_cli.api_client import Api
from dither_cli.api_place import api_errors, api_options, asked_api
from dither_cli.tables import fitting_table
from dither_cli.utility_rows import EXPLAINED, Row, predicted_row, real_row
from dither_estimator.publication import encode_document
from dither_protocol.labels import NAME

_LOOK_BACK: Final = timedelta(days=31)
_PAGE: Final = "1000"
_TRUTHS: Final = {
    "truth": "The truth is known: devices draw the answers by lot. Real errors are against it.",
    "norm_sub": "Predicted for the shares as they are estimated; nobody knows the true ones.",
    "uniform": "Predicted for equal shares, since none are published; nobody knows the true ones.",
}


def _check_name(_: click.Context, __: click.Parameter, value: str) -> str:
    if not NAME.fullmatch(value):
        raise click.BadParameter("a metric's name is made of small letters, digits and _")
    return value


@click.command()
@click.argument("name", callback=_check_name)
@click.option(
    "--windows", default=5, show_default=True, type=click.IntRange(1, 1_000), help="The last so many."
)
@click.option("--json", "as_json", is_flag=True, help="Print these windows as JSON, as the server has them.")
@api_options
def quality(
    *, name: str, windows: int, as_json: bool, url: str | None, key: str | None, state_dir: Path | None
) -> None:
    """Say how far off the estimates of the metric NAME are."""
    with api_errors("quality"):
        found = _last_windows(asked_api(url, key, state_dir), name, windows)
    if as_json:
        click.echo(encode_document({"metric": name, "windows": found}))
    else:
        _show(name, found, Console(highlight=False))


def _last_windows(api: Api, name: str, windows: int) -> list[dict[str, Any]]:
    """The last windows with an estimate, oldest first; most metrics had some within a month."""
    recent = f"{datetime.now(UTC) - _LOOK_BACK:%Y-%m-%dT%H:%M:%SZ}"
    for start in ({"from": recent}, {}):
        found = _all_windows(api, name, start)
        labels = list(dict.fromkeys(each["window"]["label"] for each in found))[-windows:]
        if len(labels) == windows or not start:
            break
    return [each for each in found if each["window"]["label"] in labels]


def _all_windows(api: Api, name: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = api.get(f"/v1/metrics/{name}/quality", {**parameters, **cursor, "limit": _PAGE})
        found += page.document()["windows"]
        if page.next is None:
            break
        cursor = {"cursor": page.next}
    return sorted(found, key=lambda each: (each["window"]["start"], each["version"]))


def _show(name: str, found: Sequence[Mapping[str, Any]], console: Console) -> None:
    known = [each for each in found if each.get("utility")]
    console.print(Text(f"How far off the estimates of {name} are", style="bold"))
    if not known:
        console.print("No window with reports.")
        return
    rows = [row for each in known for row in _rows(each)]
    console.print(fitting_table(rows, console, left=("",), optional=("version",)))
    console.print(Text(EXPLAINED))
    for shares in dict.fromkeys(each["utility"]["shares"] for each in known):
        console.print(Text(_TRUTHS[shares]))


def _rows(each: Mapping[str, Any]) -> list[Row]:
    worth = each["utility"]
    head: Row = {
        "window": Text(each["window"]["label"]),
        "version": str(each["version"]),
        "n": f"{each['n']:,}",
    }
    rows = [predicted_row(head, worth["predicted"], worth["predicted"]["coverage"])]
    return rows if worth["real"] is None else [*rows, real_row(head, worth["real"])]
