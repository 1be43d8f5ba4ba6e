"""What the script draws: the numbers of a chart as plain data. Pure; colours and sizes are the browser's."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from dither_server.documents import Estimate, ValueEstimate
from dither_server.formats import NOTHING, level, moment, number, whole
from dither_server.selection import interval

MAX_BARS: Final = 25
MAX_LINES: Final = 5

Chart = Mapping[str, Any]


def intervals_words(estimate: Estimate) -> str:
    """``95 % intervals``, and whether they cover all values at once."""
    return f"{level(estimate.level)} {'simultaneous ' if estimate.simultaneous else ''}intervals"


def facts_line(estimate: Estimate) -> str:
    """All that a number must not be shown without (invariant C3), as one line: a picture carries it along."""
    mechanisms = ", ".join(f"{name} at epsilon {number(epsilon)}" for name, epsilon in estimate.mechanisms)
    parts = [
        f"n = {whole(estimate.n)}",
        mechanisms,
        f"target {estimate.target}",
        f"{intervals_words(estimate)} ({', '.join(estimate.methods)})",
        f"window {estimate.window.label}",
        estimate.about,
        f"revision {NOTHING if estimate.revision is None else estimate.revision}",
        estimate.status,
        f"watermark {moment(estimate.watermark)}",
    ]
    return "; ".join(part for part in parts if part)


def values_chart(estimate: Estimate, shown: Sequence[ValueEstimate], title: str, *, norm_sub: bool) -> Chart:
    """A bar for each value, its raw estimate and its interval.

    Args:
        estimate: what it shows.
        shown: the values, in the order of the table.
        title: above the picture when it is saved.
        norm_sub: whether the bars are the post-processed shares; raw estimates and intervals are drawn all the same.
    """
    return {
        "kind": "values",
        "title": title,
        "facts": facts_line(estimate),
        "mode": "norm_sub" if norm_sub else "raw",
        "labels": [value.value for value in shown],
        "estimate": [value.estimate for value in shown],
        "lower": [value.interval[0] for value in shown],
        "upper": [value.interval[1] for value in shown],
        "norm_sub": [value.norm_sub for value in shown],
        "present": [value.present for value in shown],
    }


def history_chart(series: Sequence[Estimate], labels: Sequence[str], title: str, *, norm_sub: bool) -> Chart:
    """A line with its band for each of some values, along the windows; the bands are the raw intervals.

    Args:
        series: estimates, oldest first.
        labels: the values.
        title: above the picture when it is saved.
        norm_sub: whether the lines are the post-processed shares.
    """
    found = [{value.value: value for value in estimate.values} for estimate in series]
    columns = []
    for label in labels:
        values = [by_label.get(label) for by_label in found]
        columns.append(
            {
                "label": label,
                "estimate": [value and value.estimate for value in values],
                "lower": [value and value.interval[0] for value in values],
                "upper": [value and value.interval[1] for value in values],
                "norm_sub": [value and value.norm_sub for value in values],
            }
        )
    return {
        "kind": "history",
        "mode": "norm_sub" if norm_sub else "raw",
        "title": title,
        "facts": f"Latest: {facts_line(series[-1])}" if series else "",
        "windows": [estimate.key for estimate in series],
        "starts": [_place(estimate).isoformat() for estimate in series],
        "n": [estimate.n for estimate in series],
        "lines": columns,
    }


def _place(estimate: Estimate) -> datetime:
    """Where it stands along time: at the window that it is chosen by, over several windows the last one."""
    chosen = interval(estimate.key)
    return estimate.window.start if chosen is None else chosen.start
