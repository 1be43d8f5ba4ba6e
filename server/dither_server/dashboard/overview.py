"""The first page: every metric of the registry, how it goes, and what is wrong."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from markupsafe import Markup

from dither_protocol.registry import Metric
from dither_server.alarms import Alarm, Level, metric_alarms, service_alarms
from dither_server.conservation import Ledger
from dither_server.dashboard.desk import Desk
from dither_server.dashboard.history import History, affordable, read_history, windows_until
from dither_server.dashboard.sparklines import Line, bars, lines
from dither_server.documents import Estimate, ValueEstimate
from dither_server.formats import decimals_for, whole
from dither_server.selection import ALL_DIMENSIONS, Selection

WINDOWS: Final = 14
"""Of the small pictures."""

_WIDER: Final = 10
_LEADING: Final = 3


@dataclass(frozen=True)
class Card:
    """One metric.

    Attributes:
        metric: it.
        latest: its estimate over all dimensions about the last window that has one.
        leading: the values with the largest estimates in it.
        decimals: of their percentages.
        counts: small picture of n.
        shares: small picture of the leading shares; None where there are none.
        side_by_side: why versions are not mixed; empty where they are, or there is one.
        alarms: what is to be said.
    """

    metric: Metric
    latest: Estimate | None
    leading: Sequence[ValueEstimate]
    decimals: int
    counts: Markup
    shares: Markup | None
    side_by_side: str
    alarms: Sequence[Alarm]


@dataclass(frozen=True)
class OverviewView:
    """Everything of the page.

    Attributes:
        project: name in the registry.
        cards: one for each metric, in the order of the registry.
        alarms: about the service as a whole.
        ledger: what became of the reports.
        workers: how many live.
        empty: whether not one report was ever received.
    """

    project: str
    cards: Sequence[Card]
    alarms: Sequence[Alarm]
    ledger: Ledger
    workers: int

    @property
    def empty(self) -> bool:
        """Whether nothing has come yet."""
        return not self.ledger.total.received and all(card.latest is None for card in self.cards)

    @property
    def urgent(self) -> int:
        """How many alarms want somebody to act."""
        found = [*self.alarms, *(alarm for card in self.cards for alarm in card.alarms)]
        return sum(alarm.level is not Level.NOTE for alarm in found)

    @property
    def said(self) -> str:
        """The page in one sentence, for those who do not see it change."""
        total = self.ledger.total
        return f"{whole(total.counted)} reports counted, {whole(total.in_flight)} in flight, {self.urgent} alarms"


def overview_view(desk: Desk) -> OverviewView:
    """Read the page.

    Raises:
        StoreUnavailable: the store cannot be read now.
        StoreRefused: it must not be read.
    """
    service = desk.service
    ledger, counting = desk.ledger(), desk.counting()
    return OverviewView(
        project=service.registry.project,
        cards=[_card(desk, ledger, metric, service.clock()) for metric in service.registry],
        alarms=service_alarms(ledger, counting, desk.failing(), service.registry.metrics),
        ledger=ledger,
        workers=counting.living,
    )


def _card(desk: Desk, ledger: Ledger, metric: Metric, now: datetime) -> Card:
    count = affordable(metric, WINDOWS)
    windows = windows_until(metric, now, count)
    selection = Selection(start=windows[0].start, dimensions=ALL_DIMENSIONS)
    history = read_history(desk.service, metric.name, selection)
    if not history.windows:
        start = windows_until(metric, now, count * _WIDER)[0].start
        history = read_history(desk.service, metric.name, replace(selection, start=start))
    latest = history.main(history.windows[-1]) if history.windows else None
    leading = [] if latest is None else list(latest.largest(_LEADING))
    if latest is not None and len(latest.values) == 2:
        leading = latest.values[1:]  # of a boolean one share says both
    labels = [window.label for window in windows]
    found = [history.main(label) for label in labels]
    return Card(
        metric=metric,
        latest=latest,
        leading=leading,
        decimals=decimals_for(min((value.half_width for value in leading), default=0.0)),
        counts=bars(labels, [estimate.n if estimate else None for estimate in found]),
        shares=lines(labels, _lines(history, found, leading)) if leading else None,
        side_by_side=history.combination.reason if history.side_by_side else "",
        alarms=metric_alarms(metric, latest, ledger.terms(metric.name), now, history.single),
    )


def _lines(
    history: History, found: Sequence[Estimate | None], leading: Sequence[ValueEstimate]
) -> list[Line]:
    if history.side_by_side:  # labels of another version are other answers
        keep = {estimate.key for estimate in history.series()}
        found = [estimate if estimate and estimate.key in keep else None for estimate in found]
    columns = [{value.value: value for value in estimate.values} if estimate else {} for estimate in found]
    return [_line(leader.value, [column.get(leader.value) for column in columns]) for leader in leading]


def _line(name: str, values: Sequence[ValueEstimate | None]) -> Line:
    return Line(
        name,
        [None if value is None else value.estimate for value in values],
        [None if value is None else value.interval[0] for value in values],
        [None if value is None else value.interval[1] for value in values],
    )
