"""``dither metrics`` and ``dither estimates``: what a running service asks, and what came out."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from dither_cli.api_client import CSV, JSON, Api, ApiError, Page
from dither_cli.api_place import api_errors, api_options, asked_api
from dither_cli.charts import ChartError, check_file
from dither_cli.estimate_output import draw_estimates, show_estimates
from dither_cli.exit_codes import ExitCode
from dither_cli.tables import fitting_table
from dither_estimator.publication import encode_document
from dither_protocol.labels import NAME
from dither_protocol.storage import ROLLUPS

Parameters = dict[str, str]

_PERIODS: Final = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=31),
}
_LOOK_BACK: Final = (3, 60)
"""Periods in which the last window is looked for, before everything is."""
_PAGE: Final = "1000"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the answer of the server, JSON.")
@api_options
def metrics(*, as_json: bool, url: str | None, key: str | None, state_dir: Path | None) -> None:
    """List the metrics of a running service."""
    with api_errors("metrics"):
        page = asked_api(url, key, state_dir).get("/v1/metrics")
        if as_json:
            click.echo(page.text)
            return
        document = page.document()
    console = Console(highlight=False)
    console.print(Text(f"Metrics of {document['project']}", style="bold"))
    if document["metrics"]:
        rows = [_metric_row(metric) for metric in document["metrics"]]
        left = ("type", "mechanism", "period", "dimensions")
        optional = ("dimensions", "expires", "values", "type", "version", "mechanism")
        console.print(fitting_table(rows, console, left=left, optional=optional))


def _metric_row(metric: Mapping[str, Any]) -> dict[str, str | Text]:
    mechanism = metric["mechanism"]
    return {
        "metric": Text(metric["name"]),
        "version": str(metric["version"]),
        "type": metric["type"],
        "values": f"{mechanism['d']:,}",
        "mechanism": mechanism["name"],
        "epsilon": f"{mechanism['epsilon']:g}",
        "period": metric["period"],
        "dimensions": Text(", ".join(metric["dimensions"])),
        "expires": metric["expires"] or "",
    }


def _check_name(_: click.Context, __: click.Parameter, value: str) -> str:
    if not NAME.fullmatch(value):
        raise click.BadParameter("a metric's name is made of small letters, digits and _")
    return value


@click.command()
@click.argument("name", callback=_check_name)
@click.option(
    "--from", "first", help="First window, such as 2026-11-29.  [default: the last one with an estimate]"
)
@click.option("--to", "last", help="Last window, included.")
@click.option("--dimensions", help="One cell, such as os=linux.  [default: the sum over all]")
@click.option("--by-dimensions", is_flag=True, help="Every cell, and the sum over all.")
@click.option(
    "--rollup", type=click.Choice([str(each) for each in ROLLUPS]), help="Over so many consecutive windows."
)
@click.option("--level", help="Of the intervals, such as 0.99.  [default: as published]")
@click.option("--simultaneous", is_flag=True, help="Intervals that cover all values of an estimate at once.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer of the server, JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the answer of the server, CSV.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the estimates: .png or .svg."
)
@api_options
def estimates(
    *,
    name: str,
    first: str | None,
    last: str | None,
    dimensions: str | None,
    by_dimensions: bool,
    rollup: str | None,
    level: str | None,
    simultaneous: bool,
    as_json: bool,
    as_csv: bool,
    plot: Path | None,
    url: str | None,
    key: str | None,
    state_dir: Path | None,
) -> None:
    """Show the published estimates of the metric NAME.

    Estimates of several versions that were combined come as one; others side by side.
    """
    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    if dimensions is not None and by_dimensions:
        raise click.UsageError("give --dimensions or --by-dimensions, not both")
    try:
        if plot:
            check_file(plot)
        chosen = {} if by_dimensions else {"dimensions": "*" if dimensions is None else dimensions}
        chosen |= {"rollup": rollup} if rollup else {}
        chosen |= {"level": level} if level else {}
        chosen |= {"simultaneous": "true"} if simultaneous else {}
        with api_errors("estimates"):
            query = _Query(asked_api(url, key, state_dir), name, chosen)
            found = query.latest() if first is None and last is None else query.between(first, last)
            csv = query.csv(found) if as_csv else ""
        documents = shown_estimates(found)
        if plot:
            draw_estimates(plot, documents)
    except ChartError as error:
        raise click.ClickException(str(error)) from None
    if as_csv:
        click.echo(csv, nl=False)
    elif as_json:
        click.echo(encode_document(found))
    else:
        _show(found, documents)


class _Query:
    """Queries for the estimates of one metric.

    Args:
        api: which server.
        name: of the metric.
        chosen: parameters of each query.
    """

    def __init__(self, api: Api, name: str, chosen: Parameters) -> None:
        self._api = api
        self._path = f"/v1/metrics/{name}"
        self._chosen = chosen

    def between(self, first: str | None, last: str | None) -> dict[str, Any]:
        """The answer about a range of windows, all its pages as one."""
        bounds = {"from": first, "to": last}
        pages = self._pages(self._chosen | {each: bound for each, bound in bounds.items() if bound}, JSON)
        whole, *others = [page.document() for page in pages]
        versions = {each["version"]: each for each in whole["versions"]}
        for other in others:
            for version in other["versions"]:
                versions[version["version"]]["estimates"] += version["estimates"]
            whole["combined"] += other["combined"]
        whole["next"] = None
        return dict(whole)

    def latest(self) -> dict[str, Any]:
        """The answer about the last window that has an estimate: an answer with less in it."""
        for start in self._starts():
            found = self.between(start, None)
            documents = _all_estimates(found)
            if documents:
                ends = max(document["window"]["end"] for document in documents)
                return _only(found, ends)
        return found

    def _starts(self) -> list[str | None]:
        """Where to look for the last window: most metrics have had reports a moment ago."""
        try:
            period = self._api.get(self._path).document()["period"]
        except ApiError as error:
            if error.exit_code is not ExitCode.FAILED:
                raise
            return [None]  # it left the registry, and its estimates may still be there
        length = _PERIODS.get(period)
        if length is None:
            return [None]
        now = datetime.now(UTC)
        return [f"{now - periods * length:%Y-%m-%dT%H:%M:%SZ}" for periods in _LOOK_BACK] + [None]

    def csv(self, found: Mapping[str, Any]) -> str:
        """The same estimates as ``found``, as the server writes them in CSV: one header, then rows."""
        bounds = _bounds(_all_estimates(found))
        head, *rest = [page.text for page in self._pages(self._chosen | bounds, CSV)]
        return head + "".join(text.partition("\n")[2] for text in rest)

    def _pages(self, parameters: Parameters, accept: str) -> list[Page]:
        pages = []
        cursor: Parameters = {}
        for _ in count():
            page = self._api.get(f"{self._path}/estimates", parameters | {"limit": _PAGE} | cursor, accept)
            pages.append(page)
            if page.next is None:
                break
            cursor = {"cursor": page.next}
        return pages


def _all_estimates(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    own = [document for version in found["versions"] for document in version["estimates"]]
    return [*own, *found["combined"]]


def _bounds(documents: Sequence[Mapping[str, Any]]) -> Parameters:
    """The range that holds these estimates and no other windows; over several windows the last one counts."""
    if not documents or any(document["window"]["label"] == "once" for document in documents):
        return {}
    if "windows" in documents[0]:
        labels = [document["windows"]["last"] for document in documents]
        return {"from": min(labels), "to": max(labels)}
    starts = [document["window"]["start"] for document in documents]
    after = datetime.fromisoformat(max(starts)) + timedelta(seconds=1)
    return {"from": min(starts), "to": f"{after:%Y-%m-%dT%H:%M:%SZ}"}


def _only(found: dict[str, Any], ends: str) -> dict[str, Any]:
    def of_window(documents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [document for document in documents if document["window"]["end"] == ends]

    versions = [version | {"estimates": of_window(version["estimates"])} for version in found["versions"]]
    return found | {"versions": versions, "combined": of_window(found["combined"])}


def shown_estimates(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those that stand for a window and cell: over several versions where there is one, else each version's own."""
    combined = {_place(document): document for document in found["combined"]}
    own = [
        document
        for version in found["versions"]
        for document in version["estimates"]
        if _place(document) not in combined
    ]
    return sorted([*own, *combined.values()], key=_place)


def _place(document: Mapping[str, Any]) -> tuple[str, str, str]:
    dimensions = document["dimensions"]
    cell = "" if dimensions is None else ",".join(f"{name}={value}" for name, value in dimensions.items())
    return document["window"]["start"], document["window"]["end"], cell


def _show(found: Mapping[str, Any], documents: Sequence[dict[str, Any]]) -> None:
    console = Console(highlight=False)
    if not documents:
        console.print(f"Nothing is published about {found['metric']} here.")
    show_estimates(documents, console)
    if found["combination"]["rule"] == "side-by-side":
        console.print(Text(f"Versions stand side by side: {found['combination']['reason']}."))
