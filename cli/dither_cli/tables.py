"""Tables for the terminal."""

from typing import Any

from rich.table import Table
from rich.text import Text

_BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def percent(share: float) -> str:
    """A share in per cent with two digits, its sign kept."""
    return f"{100 * share:.2f} %"


def bar(share: float, cells: int = _BAR_CELLS) -> str:
    """A bar of the share of ``cells``, in eighths of a character; shares outside [0, 1] are drawn at the edge."""
    eighths = round(min(1.0, max(0.0, share)) * cells * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def heading(document: dict[str, Any]) -> str:
    """Everything that an estimate is never shown without (invariant C3), in two lines."""
    dimensions = document["dimensions"]
    where = "all" if dimensions is None else ", ".join(f"{k}={v}" for k, v in dimensions.items()) or "all"
    parts = document.get("parts") or [document]
    versions = " + ".join(f"v{part['version']}" for part in parts)
    mechanisms = " + ".join(f"{part['mechanism']} epsilon {part['epsilon']:g}" for part in parts)
    return (
        f"{document['metric']} {versions}  window {document['window']['label']}  dimensions {where}\n"
        f"n = {document['n']:,}  mechanism {mechanisms}  target {document['target']}  "
        f"interval {document['level']:.0%}"
    )


def estimate_table(document: dict[str, Any]) -> Table | Text:
    """One published estimate as a table with bars; a sentence where it is suppressed."""
    title = heading(document)
    if document["status"] == "suppressed":
        return Text(f"{title}\nsuppressed: fewer than {document['min_reports']} reports\n")
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("value")
    table.add_column("share", justify="right")
    table.add_column("std error", justify="right")
    table.add_column("interval", justify="right")
    table.add_column("method")
    table.add_column("norm_sub", justify="right")
    table.add_column("present")
    table.add_column("")
    for row in document["values"]:
        low, high = row["interval"]
        table.add_row(
            Text(row["value"]),
            percent(row["estimate"]),
            percent(row["std_error"]),
            f"{percent(low)} … {percent(high)}",
            row["interval_method"],
            percent(row["norm_sub"]),
            "yes" if row["present"] else "",
            bar(row["estimate"]),
        )
    return table
