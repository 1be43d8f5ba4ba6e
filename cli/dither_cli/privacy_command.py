"""``dither privacy``: what one device can spend, per day, week, year and for life, of a file or a running service."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from dither_cli.api_client import ApiError
from dither_cli.api_place import api_errors, api_options, asked_api
from dither_cli.epsilon_text import ENDLESS, bound_text, epsilon_text
from dither_cli.exit_codes import ExitCode
from dither_cli.files import read_registry
from dither_cli.tables import fitting_table
from dither_protocol.errors import RegistryError
from dither_protocol.registry.spending import SPANS, YEAR_DAYS
from dither_protocol.registry.spending_bounds import says_more
from dither_server.privacy import privacy_view
from dither_server.privacy_document import privacy_document

_WORDS: Final = {"day": "on one day", "week": "in one week", "year": "in one year", "life": "for life"}
_OPTIONAL: Final = ("collection", "period", "week")


@click.command("privacy")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as GET /v1/privacy gives it.")
@api_options
def privacy(
    *, file: Path | None, as_json: bool, url: str | None, key: str | None, state_dir: Path | None
) -> None:
    """Say what one device can spend at most, by metric and in total: on a day, in a week, in a year, for life.

    Of the registry FILE; without it, of the registry that a running service publishes.
    """
    if file is not None and (url or key or state_dir):
        raise click.UsageError("give a FILE or a server, not both")
    document = _of_file(file) if file is not None else _of_service(url, key, state_dir)
    if as_json:
        click.echo(json.dumps(document, indent=1, allow_nan=False))
    else:
        show_privacy(document, Console(highlight=False))


def _of_file(file: Path) -> Mapping[str, Any]:
    try:
        registry = read_registry(file)
    except RegistryError as error:
        raise click.ClickException(str(error)) from None
    return privacy_document(registry, privacy_view(registry, datetime.now(UTC).date()))


def _of_service(url: str | None, key: str | None, state_dir: Path | None) -> Mapping[str, Any]:
    with api_errors("privacy"):
        api = asked_api(url, key, state_dir)
        document: Mapping[str, Any] = api.get("/v1/privacy").document()
        if "spans" not in document:
            raise ApiError(f"{api.url} is of a version that does not say it", ExitCode.SERVICE)
        return document


def show_privacy(document: Mapping[str, Any], console: Console) -> None:
    """Print it for people."""
    console.print(Text(f"Privacy of {document['project']}: epsilon of one device, at most", style="bold"))
    rows = [_row(each["metric"], each, each["spans"]) for each in document["metrics"]]
    together = {"epsilon": None, "period": "", "collection": ""}
    rows += [_row("all together", together, document["spans"])]
    if any(each["limit"] is not None for each in document["spans"].values()):
        for name, member in (("limit", "limit"), ("with limits", "at_most")):
            found = {span: {"epsilon": each[member]} for span, each in document["spans"].items()}
            rows += [_row(name, together, found, missing="" if member == "limit" else ENDLESS)]
    left = ("period", "collection")
    console.print(fitting_table(rows, console, left=left, optional=_OPTIONAL))
    console.print(
        Text(
            f"Plain sums, of a device that begins on {document['first_day']} and answers everything: "
            f"on a UTC day, in a week from Monday to Sunday, in the {YEAR_DAYS} days from then on, and until the "
            "last metric expires. Every window counts that is open in the span, once for each combination of "
            "dimensions."
        )
    )
    _show_filter(document, console)
    _show_groups(document, console)
    _show_calibration(document, console)
    _show_bounds(document, console)
    _show_warnings(document, console)


def _row(
    name: str, metric: Mapping[str, Any], spans: Mapping[str, Mapping[str, Any]], missing: str = ENDLESS
) -> dict[str, str | Text]:
    return {
        "metric": Text(name),
        "period": metric["period"],
        "collection": metric["collection"],
        "report": "" if metric["epsilon"] is None else epsilon_text(metric["epsilon"]),
        **{
            span: missing if spans[span]["epsilon"] is None else epsilon_text(spans[span]["epsilon"])
            for span in SPANS
        },
    }


def _show_filter(document: Mapping[str, Any], console: Console) -> None:
    """The limit for life of a registry with a delta, which is none on the sums above."""
    kept = document.get("lifetime_filter")
    if kept is not None:
        console.print(
            Text(
                "for life a device stops before all its reports together could tell more than epsilon "
                f"{epsilon_text(kept['epsilon'])}, but for a probability of {kept['delta']:g}."
            )
        )


def _show_groups(document: Mapping[str, Any], console: Console) -> None:
    """Metrics of which a device answers one per window: together they cost less than the sum of their rows."""
    groups = {each["one_of"]["group"]: each["one_of"] for each in document["metrics"] if each.get("one_of")}
    for name, group in groups.items():
        console.print(
            Text(
                f"one of '{name}' ({', '.join(group['members'])}): a device answers one of them per window, drawn by "
                f"lot, and is charged epsilon {epsilon_text(group['epsilon_charged'])} for each report, the largest."
            )
        )


def _show_calibration(document: Mapping[str, Any], console: Console) -> None:
    """Metrics whose epsilon is charged, though it is about nobody's answer."""
    names = [each["metric"] for each in document["metrics"] if each.get("calibration")]
    if names:
        console.print(
            Text(
                f"calibration ({', '.join(names)}): the device draws the answer by lot, and nothing is asked about "
                "anybody. It is charged like any other report."
            )
        )


def _show_bounds(document: Mapping[str, Any], console: Console) -> None:
    """All metrics together, by every rule that says more than the plain sum."""
    spans = document["spans"]
    found: Sequence[tuple[str, Mapping[str, Any]]] = [
        (span, bound)
        for span in SPANS
        for bound in spans[span]["bounds"]
        if says_more(bound["epsilon"], spans[span]["epsilon"])
    ]
    if not found:
        return
    rows: list[dict[str, str | Text]] = [
        {
            "span": span,
            "rule": bound["name"],
            "epsilon": bound_text(bound["epsilon"]),
            "delta": f"{bound['delta']:g}",
        }
        for span, bound in found
    ]
    console.print(Text("All together by closer bounds, of the same reports", style="bold"))
    console.print(fitting_table(rows, console, left=("rule",), optional=()))
    for name, assumption in {bound["name"]: bound["assumption"] for _, bound in found}.items():
        console.print(Text(f"{name}: {assumption}"))


def _show_warnings(document: Mapping[str, Any], console: Console) -> None:
    for span, each in document["spans"].items():
        if each["over"]:
            worst = epsilon_text(each["epsilon"])
            text = f"warning {_WORDS[span]} {worst}, above the limit {epsilon_text(each['limit'])}: "
            console.print(Text(f"{text}a device stops answering there", style="yellow"))
    for breach in document["breaches"]:
        console.print(Text(f"warning {breach['metric']}: epsilon is {breach['reason']}", style="yellow"))
