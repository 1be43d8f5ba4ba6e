"""Numbers that are computed for a request. This room computes none: the estimator's does, where it is installed.

It is found by its entry point in the group ``dither.statistics`` (`dither_estimator.serving`) and loaded at the first
request that needs it, so that a server that is asked for nothing but published numbers never loads it.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, Protocol, cast

import msgspec

from dither_protocol import DitherError, Mechanism
from dither_server.answers import encode
from dither_server.problems import Problem

GROUP: Final = "dither.statistics"
_LOG: Final = logging.getLogger(__name__)


class Statistics(Protocol):
    """What the plug-in offers; see `dither_estimator.serving`."""

    def restate(
        self, document: Mapping[str, Any], level: float, *, simultaneous: bool
    ) -> dict[str, Any] | None:
        """A published document with other intervals; None where it cannot be done."""

    def plan_document(
        self,
        mechanism: Mechanism,
        reports: Sequence[int],
        margin: float | None,
        level: float,
        *,
        group: Sequence[float] = (),
    ) -> dict[str, Any]:
        """What reports will tell. Raises a `DitherError` that says why where they tell too little."""


@cache
def statistics() -> Statistics:
    """The plug-in.

    Raises:
        Problem: statistics-not-installed.
    """
    for point in entry_points(group=GROUP):
        try:
            return cast(Statistics, point.load())
        except ImportError as error:
            _LOG.warning("the statistics of %s cannot be loaded: %s", point.value, error)
    raise Problem(
        "statistics-not-installed",
        "install the extra 'estimator' beside the server; published numbers are there",
    )


def restated_document(text: bytes, level: float, *, simultaneous: bool) -> bytes:
    """A published document with other intervals.

    Raises:
        Problem: statistics-not-installed; level-unavailable where it holds no counts.
    """
    document = statistics().restate(msgspec.json.decode(text), level, simultaneous=simultaneous)
    if document is None:
        detail = "an estimate was published without its counts, by another version of the estimator"
        raise Problem("level-unavailable", detail, "level")
    return encode(document)


def planned(
    mechanism: Mechanism,
    reports: Sequence[int],
    margin: float | None,
    level: float,
    group: Sequence[float] = (),
) -> dict[str, Any]:
    """What so many reports will tell; ``group``: epsilons of the metrics of which a device answers one per window.

    Raises:
        Problem: statistics-not-installed; plan-invalid where no number of reports is enough.
    """
    try:
        return statistics().plan_document(mechanism, reports, margin, level, group=group)
    except DitherError as error:
        field = "reports" if min(reports) < len(group) else "margin"
        raise Problem("plan-invalid", str(error), field) from None
