"""Tables for the terminal, each as wide as the terminal lets it be."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from dither_protocol.registry.guarantees import Guarantee, in_words

_BAR_CELLS: Final = 18
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_VALUE_CELLS: Final = 20
"""Longer values are folded before any column is left out ..."""
_MAX_VALUE_CELLS: Final = 40
"""... and those longer than this in any case."""

_BAR: Final = "bar"
_LEFT_OUT: Final = ((), (_BAR,), (_BAR, "method"), (_BAR, "method", "norm_sub", "std error"))
"""Columns that a table does without, the first of these that fits the terminal; JSON and CSV have them all."""


def percent(share: float) -> str:
    """A share in per cent with two digits, its sign kept."""
    return f"{100 * share:.2f} %"


def interval_text(low: float, high: float) -> str:
    """An interval in per cent."""
    return f"{100 * low:.2f} … {percent(high)}"


def level_text(level: float) -> str:
    """A confidence level in per cent with every digit that it has: 99.9% is not 100%."""
    return f"{(100 * Decimal(repr(level))).normalize():f}%"


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
        f"interval {level_text(document['level'])}"
    )


def guarantee_lines(document: dict[str, Any]) -> list[str]:
    """What the epsilons of a memoised metric guarantee, a line for each; nothing of a fresh one."""
    found = [
        f"guaranteed, {in_words(Guarantee(**each))}"
        for part in document.get("parts") or [document]
        for each in part.get("memoized", {}).get("guarantees", [])
    ]
    return list(dict.fromkeys(found))


def plain_table(columns: Sequence[str], *, left: Sequence[str] = ("value",)) -> Table:
    """An empty table without lines between its columns; only ``value`` may be folded."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(
            "" if name == _BAR else name,
            justify="left" if name in left else "right",
            no_wrap=name != "value",
            overflow="fold",
            max_width=_MAX_VALUE_CELLS if name == "value" else None,
        )
    return table


def fitting_table(
    rows: Sequence[dict[str, str | Text]], console: Console, *, left: Sequence[str], optional: Sequence[str]
) -> Table:
    """A table of rows with the same columns, the first of which may be folded; no number is ever cut.

    Args:
        rows: at least one; texts by column.
        console: where it will stand.
        left: columns that are aligned to the left.
        optional: columns that it does without where they do not fit, the first of them first.
    """
    first = next(iter(rows[0]))
    names = list(rows[0])
    for left_out in range(len(optional) + 1):
        columns = [name for name in names if name not in optional[:left_out]]
        table = plain_table(["value" if name == first else name for name in columns], left=("value", *left))
        table.columns[0].header = first
        for row in rows:
            table.add_row(*(row[name] for name in columns))
        if _natural_width(table, console) <= console.width:
            break
    return table


def _natural_width(table: Table, console: Console) -> int:
    return Measurement.get(console, console.options.update(width=1_000), table).maximum


def estimate_table(document: dict[str, Any], console: Console) -> Group:
    """One published estimate as a table with bars, as far as they fit; a sentence where it is suppressed."""
    title = Text(heading(document), style="bold")
    if document["status"] == "suppressed":
        return Group(title, Text(f"suppressed: fewer than {document['min_reports']} reports\n"))
    longest = max(Text(row["value"]).cell_len for row in document["values"])
    foldable = max(0, min(longest, _MAX_VALUE_CELLS) - _VALUE_CELLS)
    for left_out in _LEFT_OUT:
        table = _estimate_rows(document, left_out)
        if _natural_width(table, console) - foldable <= console.width:
            break
    return Group(title, table, *map(Text, guarantee_lines(document)), Text())


def _estimate_rows(document: dict[str, Any], left_out: Sequence[str]) -> Table:
    rows = [
        {
            "value": Text(row["value"]),
            "share": percent(row["estimate"]),
            "std error": percent(row["std_error"]),
            "interval": interval_text(*row["interval"]),
            "method": row["interval_method"],
            "norm_sub": percent(row["norm_sub"]),
            "present": "yes" if row["present"] else "",
            _BAR: bar(row["estimate"]),
        }
        for row in document["values"]
    ]
    columns = [name for name in rows[0] if name not in left_out]
    table = plain_table(columns, left=("value", "method", "present", _BAR))
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    return table
