"""What a device has to say at one visit: which metrics, about which windows, in which batches.

As the SDK does it: one batch for each period, of a group of metrics (`one_of`) one, and nothing about a window that
was answered before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from dither_fleet.expectation import refusal, rejection
from dither_protocol.registry import Metric, Registry
from dither_protocol.windows import PERIODS, Window, batch_until, last_accepted_date

_LENGTHS: Final = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=31),
    "once": timedelta(days=1),
}
_ONE_DAY: Final = timedelta(days=1)


class Clock(StrEnum):
    """How right a device's clock is."""

    RIGHT = "right"
    EARLY = "early"
    LATE = "late"


class Question(NamedTuple):
    """One metric about one window.

    Attributes:
        metric: what is asked.
        window: that of the device's clock.
        rejected: why the server will reject the report; empty where it will not.
    """

    metric: Metric
    window: Window
    rejected: str


@dataclass(frozen=True)
class Sheet:
    """The questions of one batch.

    Attributes:
        slots: each gives one report; of several questions in one slot a lot chooses.
        until: date of the batch.
        refused: why the server will refuse the whole batch; empty where it will not.
    """

    slots: Sequence[Sequence[Question]]
    until: date
    refused: str


def clock_of(period: str, late_days: int, now: datetime, clock: Clock) -> datetime:
    """What the device's clock shows: so far off that the window of the period is surely not open.

    Two periods ahead, or behind by two periods and the late days: another run of the same minute expects the same.
    """
    if clock is Clock.EARLY:
        return now + 2 * _LENGTHS[period]
    if clock is Clock.LATE:
        return now - 2 * _LENGTHS[period] - timedelta(days=late_days + 1)
    return now


def visit(
    registry: Registry, now: datetime, *, days_ago: int = 0, first: bool = True, clock: Clock = Clock.RIGHT
) -> list[Sheet]:
    """The batches of a device that answered some days ago and delivers now.

    Args:
        registry: the one that the device has.
        now: the server's time.
        days_ago: when it answered.
        first: whether that was the first day of the device; later it leaves out windows that it has answered.
        clock: how right its clock is.

    Returns:
        A sheet for each period with questions. With a right clock there is no question that the server would reject.
    """
    answered = now - days_ago * _ONE_DAY
    sheets = []
    for period in PERIODS:
        metrics = [metric for metric in registry if metric.period == period]
        if not metrics:
            continue
        shown = clock_of(period, max(metric.late_days for metric in metrics), answered, clock)
        questions = {}
        for metric in metrics:
            window = metric.window_at(shown)
            again = not first and metric.window_at(shown - _ONE_DAY) == window
            reason = rejection(metric, window, now)
            if not again and not (reason and clock is Clock.RIGHT):
                questions[metric.name] = Question(metric, window, reason)
        if questions:
            sheets.append(_sheet(questions, shown.date(), now))
    return sheets


def _sheet(questions: Mapping[str, Question], sealed_on: date, now: datetime) -> Sheet:
    last = [last_accepted_date(q.window, q.metric.late_days) for q in questions.values()]
    until = batch_until(last, sealed_on)
    groups: dict[str, list[Question]] = {}
    for name, question in questions.items():
        # a name of a metric has no blank, so no group can be mistaken for one
        key = f"group {question.metric.one_of}" if question.metric.one_of else name
        groups.setdefault(key, []).append(question)
    return Sheet(tuple(groups.values()), until, refusal(until, now))
