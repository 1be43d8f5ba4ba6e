"""The curves of growth as text: costs with their units, and the tables of GROWTH.md. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

MARK: Final = "<!-- What follows is written by `make bench-growth`. -->"

_SCALES: Final = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")),
    "B": ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
}


def cost_text(cost: float, unit: str) -> str:
    """A cost with three digits, in the unit that makes it 1 or more."""
    scales = _SCALES[unit]
    scale, name = next((each for each in scales if cost >= each[0]), scales[-1])
    number = cost / scale
    return f"{number:,.0f} {name}" if number >= 100 else f"{number:.3g} {name}"


def exponent_text(curve: Mapping[str, Any]) -> str:
    """The exponent, marked where it is too large."""
    shown = f"{max(0.0, curve['exponent']):.2f}"
    return f"{shown} !" if curve["faster_than_linear"] else shown


def with_tables(text: str, document: Mapping[str, Any]) -> str:
    """GROWTH.md with new tables below its mark.

    Raises:
        ValueError: it has no mark.
    """
    head, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError("GROWTH.md has lost the line below which its tables stand")
    return head + mark + "\n\n" + "\n".join(_tables(document))


def _tables(document: Mapping[str, Any]) -> Iterator[str]:
    facts = document["machine"]
    yield f"Measured on {facts['cpu']}, {facts['cores']} cores, Python {facts['python']}, {facts['system']}.\n"
    suites: dict[str, list[Mapping[str, Any]]] = {}
    for curve in document["curves"]:
        suites.setdefault(curve["curve"].partition("/")[0], []).append(curve)
    for found in suites.values():
        least, most = (min(c["points"][0][0] for c in found), max(c["points"][-1][0] for c in found))
        yield f"| {found[0]['size']}: {least:,.0f} to {most:,.0f} | smallest | largest | exponent | knee |"
        yield "|---|---:|---:|---:|---|"
        for curve in found:
            costs = (cost_text(curve["points"][place][1], curve["unit"]) for place in (0, -1))
            yield f"| {curve['title']} | {' | '.join(costs)} | {exponent_text(curve)} | {curve['knee']} |"
        yield ""
