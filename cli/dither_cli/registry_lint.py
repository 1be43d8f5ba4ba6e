"""What `dither registry check` finds: what a registry asks of a device, and what somebody should look at. Pure."""

from collections.abc import Iterator
from datetime import date, timedelta
from math import prod
from typing import Any, Final

from dither_protocol.labels import normalize
from dither_protocol.registry import Metric, Registry
from dither_protocol.registry.fields import USE_CASES
from dither_protocol.registry.spending import LIFE, spending
from dither_protocol.storage import DEFAULT_PARTITIONS

EXPIRES_SOON: Final = timedelta(days=30)
SHORTEST_DESCRIPTION: Final = 10
"""Characters below which a description can hardly be a question."""

FEW_REPORTS: Final = 20
"""A cell of fewer reports is a handful of people: a `min_reports` below it suppresses next to nothing."""

MANY_COUNTER_BYTES: Final = 64 << 20
"""Memory of the store for one window of a metric from which the metric is a burden."""

MANY_DOCUMENT_BYTES: Final = 5 << 20
"""Published estimates of one window from which a page of the API takes long."""

_COUNTER_BYTES: Final = 8
_VALUE_BYTES: Final = 195  # of one value in a published estimate, measured
_ROUNDING: Final = 1 + 1e-12  # the sum of decimals may be off by a rounding

Finding = dict[str, str]
"""A ``path`` and its ``problem``."""


def findings(checked: Registry, today: date, devices: int | None = None) -> dict[str, Any]:
    """Everything that `check` says, in JSON's types.

    The worst case is an upper bound: a device that answers every metric, in every window, for every combination of
    its dimensions. That of a day counts metrics that have expired as well, that for life begins today.

    Args:
        checked: the registry.
        today: the UTC date.
        devices: how many are expected; by default what the registry says.
    """
    worst, limit = checked.worst_case_per_day(), checked.privacy.max_epsilon_per_day
    over = limit is not None and worst > limit * _ROUNDING
    problem = f"is {limit}, but the metrics add up to {worst:g} in the worst case"
    return {
        "project": checked.project,
        "metrics": [_row(metric) for metric in checked],
        "worst_case_epsilon_per_day": worst,
        "max_epsilon_per_day": limit,
        "worst_case_epsilon_lifetime": spending(checked, today).epsilon(LIFE),
        "max_epsilon_lifetime": checked.privacy.max_epsilon_lifetime,
        "delta": checked.privacy.delta,
        "warnings": [
            *_about_life(checked, today),
            *_about_delta(checked, devices or checked.privacy.expected_devices),
            *(warning for metric in checked for warning in _about_metric(checked, metric, today)),
        ],
        "notices": [notice for metric in checked for notice in _not_normal(checked, metric)],
        "refused": {"path": "privacy.max_epsilon_per_day", "problem": problem} if over else None,
    }


def _finding(path: str, problem: str) -> Finding:
    return {"path": path, "problem": problem}


def _about_life(checked: Registry, today: date) -> Iterator[Finding]:
    limit, worst = checked.privacy.max_epsilon_lifetime, spending(checked, today).epsilon(LIFE)
    if limit is None or worst is None or checked.privacy.delta is not None:
        return  # with delta another rule than the plain sum decides
    if worst > limit * _ROUNDING:
        problem = (
            f"is {limit:g}, but the metrics add up to {worst:g} until they expire: devices fall silent before"
        )
        yield _finding("privacy.max_epsilon_lifetime", problem)


def _about_delta(checked: Registry, devices: int | None) -> Iterator[Finding]:
    """A delta of 1/n^2 or more lets a mechanism give away one of n people in the clear, now and then."""
    delta, path = checked.privacy.delta, "privacy.delta"
    if delta is None:
        return
    if checked.privacy.max_epsilon_lifetime is None:
        yield _finding(path, "does nothing without max_epsilon_lifetime")
    if devices is None:
        yield _finding(path, "cannot be judged: set expected_devices in [privacy], or give --devices")
    elif delta >= 1 / devices**2:
        yield _finding(path, f"is {delta:g}, not below 1/n^2 = {1 / devices**2:.2g} for {devices:,} devices")


def _about_metric(checked: Registry, metric: Metric, today: date) -> Iterator[Finding]:
    """What is allowed but should be looked at."""
    path = f"metrics.{metric.name}"
    if not metric.owner.strip():
        yield _finding(f"{path}.owner", "is missing: nobody is named whom to ask about it")
    if len(metric.description.strip()) < SHORTEST_DESCRIPTION:
        yield _finding(f"{path}.description", "is too short to say what is asked")
    if metric.use_case is not None:
        low, high = USE_CASES[metric.use_case]
        if not low <= metric.epsilon <= high:
            problem = f"{metric.epsilon:g} is outside the usual {low:g} to {high:g} for {metric.use_case}"
            yield _finding(f"{path}.epsilon", problem)
    if metric.one_of is not None and len(checked.groups[metric.one_of]) == 1:
        problem = f"'{metric.one_of}' has no other metric: every device answers this one in every window"
        yield _finding(f"{path}.one_of", problem)
    yield from _about_expiry(metric, today)
    if metric.min_reports < FEW_REPORTS:
        problem = f"{metric.min_reports} suppresses next to nothing; below {FEW_REPORTS} a cell is a handful of people"
        yield _finding(f"{path}.min_reports", problem)
    yield from _about_size(metric)


def _about_expiry(metric: Metric, today: date) -> Iterator[Finding]:
    path = f"metrics.{metric.name}.expires"
    if metric.expires is None:
        yield _finding(path, "is missing: devices are asked without end")
    elif metric.expires < today:
        yield _finding(path, f"it expired on {metric.expires}")
    elif metric.expires - today <= EXPIRES_SOON:
        yield _finding(path, f"it expires on {metric.expires}, in {(metric.expires - today).days} days")


def _about_size(metric: Metric) -> Iterator[Finding]:
    """What one window takes, in the store while it is open and as published estimates for good."""
    cells = _cells(metric)
    counters = metric.mechanism.counters * _COUNTER_BYTES * cells * DEFAULT_PARTITIONS
    if counters > MANY_COUNTER_BYTES:
        problem = (
            f"{metric.mechanism.name} keeps {metric.mechanism.counters:,} counters a cell: up to {_size(counters)} of "
            f"the store for one window ({cells:,} cells, {DEFAULT_PARTITIONS} partitions)"
        )
        yield _finding(f"metrics.{metric.name}.mechanism", problem)
    documents = _VALUE_BYTES * metric.mechanism.d * (cells + (cells > 1))  # and one over all cells
    if documents > MANY_DOCUMENT_BYTES:
        values = f"{metric.mechanism.d:,} values, {cells:,} cells"
        problem = f"the estimates of one window take about {_size(documents)}: {values}"
        yield _finding(f"metrics.{metric.name}.categories", problem)


def _not_normal(checked: Registry, metric: Metric) -> Iterator[Finding]:
    """Labels that the file has in another Unicode form than everybody else uses."""
    table, path = checked.document["metrics"][metric.name], f"metrics.{metric.name}"
    lists = {f"{path}.categories": table.get("categories", ())}
    lists |= {f"{path}.dimensions.{name}": values for name, values in table.get("dimensions", {}).items()}
    for where, labels in lists.items():
        for position, label in enumerate(labels):
            if normalize(label) != label:
                problem = (
                    "is not in Unicode normal form C; devices, server and estimates have it in that form"
                )
                yield _finding(f"{where}[{position}]", problem)


def _cells(metric: Metric) -> int:
    return prod(len(values) for values in metric.dimensions.values())


def _size(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MiB"


def _row(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "version": metric.version,
        "type": metric.type,
        "d": metric.mechanism.d,
        "mechanism": metric.mechanism.name,
        "epsilon": metric.epsilon,
        "period": metric.period,
        "dimensions": len(metric.dimensions),
        "cells_per_window": _cells(metric),
        "report_bits": metric.mechanism.report_bits,
        "params": metric.params_hash,
    }
