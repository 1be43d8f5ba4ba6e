"""Numbers and times as people read them. Pure."""

import math
from datetime import UTC, datetime, timedelta
from typing import Final

SPACE: Final = "\u202f"
"""A narrow space that does not break: between thousands, and before a unit."""

MINUS: Final = "\u2212"
NOTHING: Final = "\u2013"
"""Stands where there is no number."""


def whole(number: int | None) -> str:
    """``20 200``."""
    return NOTHING if number is None else _signed(f"{number:,}".replace(",", SPACE))


def number(value: float | None) -> str:
    """A number in as few digits as it needs, such as an epsilon: ``0.5``, ``107 568``."""
    if value is None:
        return NOTHING
    return whole(round(value)) if abs(value) >= 10_000 else _signed(f"{value:.6g}")


def percent(share: float | None, decimals: int = 1) -> str:
    """``41.2 %``, negative ones as they are."""
    if share is None:
        return NOTHING
    text = f"{100 * share:.{decimals}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return f"{_signed(text)}{SPACE}%"


def level(share: float | None) -> str:
    """The level of an interval in all its digits: ``95 %``, ``99.9 %``."""
    return NOTHING if share is None else f"{100 * share:.9g}{SPACE}%"


def portion(share: float) -> str:
    """A percentage that is zero only where the share is: ``< 0.1 %``."""
    return f"<{SPACE}{percent(0.001)}" if 0 < share < 0.0005 else percent(share)


def interval(ends: tuple[float, float], decimals: int = 1) -> str:
    """``32.8 to 36.5 %``."""
    low, high = (percent(end, decimals) for end in ends)
    return f"{low.removesuffix(SPACE + '%')} to {high}"


def decimals_for(half_width: float) -> int:
    """How many decimals of a percentage are worth showing beside an interval of so much to each side."""
    if not half_width > 0:
        return 1
    return min(4, max(1, math.ceil(-math.log10(100 * half_width)) + 1))


def moment(when: datetime | None) -> str:
    """``2026-11-29 13:05 UTC``, with seconds where it has any."""
    if when is None:
        return NOTHING
    here = when.astimezone(UTC)
    return here.strftime("%Y-%m-%d %H:%M:%S UTC" if here.second else "%Y-%m-%d %H:%M UTC")


def size(count: int | None) -> str:
    """A number of bytes in three digits or so: ``512 B``, ``1.4 MiB``, ``64 GiB``."""
    if count is None:
        return NOTHING
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1_000 and len(units) > 1:
        value, units = value / 1_024, units[1:]
    return (
        f"{value:.0f}{SPACE}{units[0]}" if units[0] == "B" or value >= 10 else f"{value:.1f}{SPACE}{units[0]}"
    )


def duration(length: timedelta) -> str:
    """The two largest units of a length of time: ``2 h 5 min``; below one second ``0 s``."""
    seconds = max(0, int(length.total_seconds()))
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{whole(count)}{SPACE}{unit}")
    return " ".join(parts[:2])


def plural(count: int, one: str, many: str = "") -> str:
    """``1 report``, ``2 reports``."""
    return f"{whole(count)} {one if count == 1 else many or one + 's'}"


def _signed(text: str) -> str:
    return text.replace("-", MINUS)
