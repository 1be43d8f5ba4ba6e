"""A simulation as one HTML page that needs no other file and no other host: plotly's script stands in it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from dither_cli.simulate_output import load_rows, shown_problems, summary

_SCRIPT: Final = "plotly.min.js"


def page(document: Mapping[str, Any]) -> str:
    """The page.

    Raises:
        FileNotFoundError: the package plotly is not installed with its script.
    """
    template = files("dither_cli").joinpath("data", "simulate.html").read_text("utf-8")
    title = f"Simulation of {document['project']}"
    parts = {
        "title": escape(title),
        "passed": "pass" if document["passed"] else "fail",
        "verdict": "Passed" if document["passed"] else "Failed",
        "summary": escape(summary(document)),
        "problems": "".join(f"<li>{escape(problem)}</li>" for problem in shown_problems(document)),
        "plan": _definitions(_plan_rows(document)),
        "load": _definitions(load_rows(document)),
        "metrics": "".join(_row(cells) for cells in _metric_rows(document)),
        "coverage": "".join(_row(cells) for cells in _coverage_rows(document)),
        "data": json.dumps(document).replace("<", "\\u003c"),
        "plotly": plotly_script(),
    }
    return filled(template, parts)


def filled(template: str, parts: Mapping[str, str]) -> str:
    """A page from its template, with a part in the place of each ``@@name@@``."""
    # In one pass: what is put in is not looked at again. Nothing in a script element may end it: "<" of the data is an
    # escape of JSON there, and plotly's script has the ending tag in strings at most.
    pieces = template.split("@@")
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def plotly_script() -> str:
    """The text of plotly's script, fit to stand in a script element.

    Raises:
        FileNotFoundError: the package is not installed with its script.
    """
    return _plotly_file().read_text("utf-8").replace("</script", "<\\/script")


def _plotly_file() -> Path:
    spec = find_spec("plotly")  # found and not imported: only its file is wanted
    for folder in (spec and spec.submodule_search_locations) or ():
        found = Path(folder) / "package_data" / _SCRIPT
        if found.is_file():
            return found
    raise FileNotFoundError(f"the package plotly is not installed with its script {_SCRIPT}")


def _definitions(rows: Mapping[str, str]) -> str:
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows.items())


def _plan_rows(document: Mapping[str, Any]) -> dict[str, str]:
    plan = document["plan"]
    rate = "as fast as they are served" if plan["rate"] is None else f"{plan['rate']:,g} devices a second"
    return {
        "server": document["server"],
        "devices": f"{plan['devices']:,}, each on {plan['days']:,} "
        + ("day" if plan["days"] == 1 else "days"),
        "profile": f"{plan['profile']}, {rate}",
        "from": f"{plan['processes']:,} processes, {plan['connections']:,} connections",
        "batches": "each device its own"
        if plan["together"] == 1
        else f"{plan['together']} devices share one",
        "seed": f"{plan['seed']} (of the population; the noise is always real)",
    }


def _row(cells: Sequence[str]) -> str:
    first, *others = map(escape, cells)
    return f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others) + "</tr>"


def _metric_rows(document: Mapping[str, Any]) -> Iterator[list[str]]:
    for line in document["metrics"]:
        terms = ("sent", "accepted", "ledger_accepted", "counted", "published")
        yield [line["metric"], *(f"{line[term]:,}" for term in terms)]


def _coverage_rows(document: Mapping[str, Any]) -> Iterator[list[str]]:
    for row in document["coverage"]["metrics"]:
        covered = row["intervals"] - row["missed"]
        yield [
            row["metric"],
            f"{row['mechanism']}, ε {row['epsilon']:g}",
            f"{covered:,} of {row['intervals']:,}",
            f"{100 * covered / row['intervals']:.1f} %",
            f"{row['error_over_theory']:.2f}",
        ]
