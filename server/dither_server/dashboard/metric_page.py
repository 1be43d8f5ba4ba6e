"""The page of one metric: what was chosen, what is published about it, and what that is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product
from typing import Final

from dither_protocol.errors import WindowError
from dither_protocol.registry import Metric
from dither_protocol.registry.guarantees import guarantees, in_words
from dither_protocol.storage import dimensions_text
from dither_protocol.windows import ONCE
from dither_server.alarms import Alarm, metric_alarms
from dither_server.conservation import Terms
from dither_server.dashboard.charts import MAX_BARS, MAX_LINES, Chart, history_chart, values_chart
from dither_server.dashboard.desk import Desk
from dither_server.dashboard.history import History, affordable, as_history, windows_until
from dither_server.dashboard.queries import BY_SIZE, MetricQuery
from dither_server.documents import Estimate, ValueEstimate
from dither_server.formats import decimals_for, plural
from dither_server.published import latest_windows
from dither_server.quality import Utility, utility
from dither_server.restating import restated
from dither_server.selection import ALL_DIMENSIONS, Selection, interval
from dither_server.service import Service
from dither_server.store_rules import Published

WINDOWS: Final = 30
"""How many windows the chart along time has at most."""

MAX_ROWS: Final = 200
"""Rows of a table; the CSV file has all."""

_WIDER: Final = 12


@dataclass(frozen=True)
class Block:
    """One estimate with its chart and table.

    Attributes:
        name: of its chart, unique on the page.
        estimate: it.
        rows: of the table.
        charted: how many of them the chart shows, from the first.
        decimals: of its percentages.
    """

    name: str
    estimate: Estimate
    rows: Sequence[ValueEstimate]
    charted: int
    decimals: int


@dataclass(frozen=True)
class MetricView:
    """Everything of the page.

    Attributes:
        metric: the registry's, or what was announced last where the registry has it no longer.
        registered: whether the registry has it.
        query: what was chosen.
        path: address of the page, without a query.
        window: label of the window shown; empty where nothing is published.
        windows: labels that can be picked, latest first.
        earlier: label of the window before the one shown; empty where there is none.
        later: the same after it.
        dimensions: what can be picked: (text, words).
        blocks: the estimates about the window: one, or versions that stand side by side.
        parts: the single versions of a block over several.
        history: all that was read.
        series: the estimates along time, oldest first.
        series_labels: values that the chart along time shows.
        alarms: what is to be said.
        terms: accounts of the metric.
    """

    metric: Metric
    registered: bool
    query: MetricQuery
    path: str
    window: str
    windows: Sequence[str]
    earlier: str
    later: str
    dimensions: Sequence[tuple[str, str]]
    blocks: Sequence[Block]
    parts: Sequence[Block]
    history: History
    series: Sequence[Estimate]
    series_labels: Sequence[str]
    alarms: Sequence[Alarm]
    terms: Terms

    @property
    def permalink(self) -> str:
        """The address of this very window, whatever comes later."""
        return self.query.link(self.path, window=self.window)

    @property
    def guarantees(self) -> list[str]:
        """Of a memoised metric, what its epsilons guarantee and under which assumption, a sentence each."""
        return [in_words(each) for each in guarantees(self.metric)]

    @property
    def csv(self) -> str:
        """The address of the same as CSV."""
        return self.query.link(f"{self.path}/estimates.csv", window=self.window)

    @property
    def history_csv(self) -> str:
        """The address of all windows of the chart along time, as CSV."""
        return self.query.link(f"{self.path}/history.csv", window=self.window)

    @property
    def window_estimates(self) -> list[Estimate]:
        """The estimates about the window shown, single versions last."""
        return [block.estimate for block in (*self.blocks, *self.parts)]

    @property
    def utilities(self) -> list[tuple[Estimate, Utility]]:
        """How far off the estimates shown are, each of one version in one window."""
        found = (
            (each, utility(self.history.definitions.get(each.version or 0), each))
            for each in self.window_estimates
            if each.rollup is None and not each.suppressed
        )
        return [(each, worth) for each, worth in found if worth is not None]

    @property
    def all_estimates(self) -> list[Estimate]:
        """Every estimate that was read, oldest window first."""
        found = self.history
        return [
            estimate
            for label in found.windows
            for estimate in (*filter(None, [found.combined.get(label)]), *found.own(label))
        ]

    @property
    def title(self) -> str:
        """What the charts are about."""
        chosen = dict(self.dimensions).get(self.query.dimensions, self.query.dimensions)
        return f"{self.metric.name}: {self.metric.description} ({chosen})"

    @property
    def charts(self) -> Mapping[str, Chart]:
        """The charts of the page by name."""
        norm_sub = self.query.norm_sub
        found = {
            block.name: values_chart(
                block.estimate, block.rows[: block.charted], self.title, norm_sub=norm_sub
            )
            for block in self.blocks
            if block.rows
        }
        if len(found) > 1:  # side by side, the same length must mean the same share
            ends = [end for chart in found.values() for end in (*chart["lower"], *chart["upper"])]
            found = {name: {**chart, "range": [min(0.0, *ends), max(ends)]} for name, chart in found.items()}
        if len(self.series) > 1:
            found["history"] = history_chart(self.series, self.series_labels, self.title, norm_sub=norm_sub)
        return found

    @property
    def said(self) -> str:
        """The page in one sentence, for those who do not see it change."""
        if not self.blocks:
            return f"{self.metric.name}: nothing is published"
        return "; ".join(
            f"{self.metric.name}, {block.estimate.key}: {plural(block.estimate.n, 'report')}"
            for block in self.blocks
        )


def metric_view(desk: Desk, name: str, query: MetricQuery, path: str) -> MetricView | None:
    """Read the page; None where neither the registry nor the store knows the metric.

    Raises:
        StoreUnavailable: the store cannot be read now.
        StoreRefused: it must not be read.
    """
    service = desk.service
    history = chosen_history(service, name, query)
    metric = service.registry.metrics.get(name) or _last_definition(history)
    if metric is None:
        return None
    windows = history.windows
    window = query.window or (windows[-1] if windows else "")
    blocks, parts = _blocks(history, window, query)
    series = [estimate for estimate in history.series() if not estimate.suppressed]
    terms = desk.ledger().terms(name)
    registered = name in service.registry.metrics
    plain = query.dimensions == ALL_DIMENSIONS and query.rollup is None and not query.window
    return MetricView(
        metric=metric,
        registered=registered,
        query=query,
        path=path,
        window=window,
        windows=windows[::-1] if window in windows or not window else [window, *windows[::-1]],
        earlier=_neighbour(metric, window, -1, service.clock()),
        later=_neighbour(metric, window, 1, service.clock()),
        dimensions=_dimension_choices(metric, history),
        blocks=blocks,
        parts=parts,
        history=history,
        series=series,
        series_labels=_line_labels(series, blocks),
        alarms=_alarms(metric, history if plain else None, terms, service.clock()) if registered else [],
        terms=terms,
    )


def _alarms(metric: Metric, history: History | None, terms: Terms, now: datetime) -> list[Alarm]:
    """Of a metric of the registry; about its estimates only where the page shows the last ones over everything."""
    if history is None:
        return metric_alarms(metric, None, terms, now)
    return metric_alarms(metric, history.latest, terms, now, history.single)


def chosen_history(service: Service, name: str, query: MetricQuery) -> History:
    """What is published about the chosen dimensions, up to the chosen window, over some windows.

    Raises:
        Problem: as `restated` does.
    """
    published = restated(_chosen(service, name, query), query.intervals)
    return as_history(name, published, simultaneous=query.simultaneous)


def _chosen(service: Service, name: str, query: MetricQuery) -> Published:
    """The same as published. Where intervals are computed anew there are never more than `WINDOWS` windows."""
    metric = service.registry.metrics.get(name)
    until = service.clock()
    chosen = interval(query.window) if query.window else None
    if chosen is not None:
        until = chosen.start
    selection = Selection(dimensions=query.dimensions, rollup=query.rollup)
    end = None if chosen is None else chosen.start + timedelta(seconds=1)
    store = service.store
    if metric is None:  # it left the registry: nobody knows its period
        if query.intervals.as_published:
            return store.published(name, selection)
        return latest_windows(store.published(name, replace(selection, end=end)), WINDOWS)
    count = affordable(metric, WINDOWS)
    start = windows_until(metric, until, count)[0].start
    found = store.published(name, replace(selection, start=start, end=end))
    if found.has_estimates or chosen is not None:
        return found
    start = windows_until(metric, until, WINDOWS * _WIDER)[0].start
    return latest_windows(store.published(name, replace(selection, start=start)), count)


def _last_definition(history: History) -> Metric | None:
    return history.definitions[max(history.definitions)] if history.definitions else None


def _blocks(history: History, window: str, query: MetricQuery) -> tuple[list[Block], list[Block]]:
    """The estimates to show about a window, and the single versions that one of them is made of."""
    own = [_block(f"version-{estimate.version}", estimate, query) for estimate in history.own(window)]
    combined = history.combined.get(window)
    if combined is not None:
        return [_block("combined", combined, query)], own
    return own, []


def _block(name: str, estimate: Estimate, query: MetricQuery) -> Block:
    rows = list(estimate.values)
    if query.order == BY_SIZE and len(rows) > 2:
        rows = list(estimate.largest(len(rows)))
    narrowest = min((row.half_width for row in rows), default=0.0)
    return Block(
        f"values-{name}", estimate, rows[:MAX_ROWS], min(MAX_BARS, len(rows)), decimals_for(narrowest)
    )


def _line_labels(series: Sequence[Estimate], blocks: Sequence[Block]) -> list[str]:
    """The values with the largest estimates in the window shown, or in the last one."""
    shown = blocks[0].estimate if blocks and not blocks[0].estimate.suppressed else None
    last = shown or (series[-1] if series else None)
    if last is None:
        return []
    if len(last.values) == 2:  # the two shares of a boolean say the same
        return [last.values[1].value]
    return [value.value for value in last.largest(MAX_LINES)]


def _dimension_choices(metric: Metric, history: History) -> list[tuple[str, str]]:
    """Every text of dimensions of any known version with its words, the sum over all first."""
    choices = {ALL_DIMENSIONS: "all" if metric.dimensions else "all reports"}
    for definition in (metric, *history.definitions.values()):
        names = sorted(definition.dimensions)
        if names:
            for values in product(*(definition.dimensions[name] for name in names)):
                pairs = tuple(zip(names, values, strict=True))
                choices.setdefault(dimensions_text(pairs), dimension_words(pairs))
    return list(choices.items())


def dimension_words(pairs: Sequence[tuple[str, str]]) -> str:
    """``os = linux, channel = beta``."""
    return ", ".join(f"{name} = {value}" for name, value in pairs)


def _neighbour(metric: Metric, label: str, step: int, now: datetime) -> str:
    """The label of the window before or after; empty where it is not of the metric's period, or has not begun."""
    if not label or metric.period == ONCE:
        return ""
    try:
        window = metric.parse_window(label)
        near = metric.window_at(window.start - timedelta(seconds=1) if step < 0 else window.end)
    except WindowError:
        return ""
    return near.label if near.start <= now else ""
