"""Where the reports of one kind go, remembered from the first of them. Pure.

Devices send the same few texts all day, and reports with the same texts differ in their ``data`` alone: so what was
found out about one of them holds for the others, while its window is open. Only what is right is remembered. That
bounds the texts; how many there are is bounded here.
"""

from datetime import datetime
from typing import Any, Final, NamedTuple

from dither_protocol.registry import Metric
from dither_protocol.wire import REPORT_KEYS, Report

_MOST: Final = 4_096
_KEYS: Final = len(REPORT_KEYS)


class Place(NamedTuple):
    """What accepted reports share that differ in their ``data`` alone.

    Attributes:
        metric: the version that they are of.
        window: label of their window.
        cell: name of their cell.
        opens: from when they are taken, aware.
        closes: from when they are taken no more.
    """

    metric: Metric
    window: str
    cell: str
    opens: datetime
    closes: datetime


class Places:
    """The places of one catalogue. For many threads."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Place] = {}

    def find(self, document: Any, now: datetime) -> Place | None:
        """The place of a report as it came in; None where nothing is known, and it has to be looked at.

        A document that has a place has the six keys of a report and no other, and all values but that of ``data`` are
        right.
        """
        try:
            if len(document) != _KEYS or type(document["version"]) is not int:  # 1 == 1.0 == True
                return None
            document["data"]  # raises where it is missing
            place = self._known.get(
                (
                    document["metric"],
                    document["version"],
                    document["params"],
                    document["window"],
                    *document["dimensions"].items(),
                )
            )
        except (AttributeError, KeyError, TypeError):
            return None
        return place if place is not None and place.opens <= now < place.closes else None

    def keep(self, report: Report, place: Place) -> None:
        """Remember the place of a report, of which all but the data has been looked at."""
        if len(self._known) >= _MOST:
            self._known = {}
        key = (report.metric, report.version, report.params, report.window, *report.dimensions.items())
        self._known[key] = place
