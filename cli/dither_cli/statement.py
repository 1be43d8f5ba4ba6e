"""A privacy statement in plain words and numbers, as one JSON document. All it says follows from the registry."""

import math
from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from dither_cli.statement_words import (
    assumptions,
    how_often,
    leaves,
    memory,
    never_leaves,
    proof,
    saying_no,
    shown,
    spending_words,
)
from dither_client.explain import (
    calibration_in_words,
    certainty_in_words,
    group_in_words,
    learnt_in_words,
    lie_in_words,
)
from dither_protocol.registry import Metric, Registry
from dither_protocol.registry.spending import SPANS, MetricSpending, Spending, permanent_answers, spending
from dither_protocol.registry.spending_bounds import bounds

SCHEMA: Final = 1
"""Of the document, described by ``data/statement.schema.json``: members may be added, none changes its sense."""


def statement(registry: Registry, day: date) -> dict[str, Any]:
    """The statement, for a device that begins on ``day``."""
    spent = spending(registry, day)
    return {
        "schema": SCHEMA,
        "project": registry.project,
        "day": day.isoformat(),
        "metrics": [_metric(each) for each in spent.metrics],
        "leaves": leaves(registry),
        "never_leaves": never_leaves(registry),
        "spending": {"spans": {span: _span(spent, span) for span in SPANS}, "words": spending_words(spent)},
        "proof": proof(registry),
        "assumptions": assumptions(registry, day),
        "saying_no": saying_no(),
        "contacts": sorted({shown(metric.owner) for metric in registry if shown(metric.owner)}),
    }


def _metric(each: MetricSpending) -> dict[str, Any]:
    metric = each.metric
    return {
        "name": metric.name,
        "version": metric.version,
        "question": shown(metric.description),
        "calibration": metric.calibration is not None,
        "type": metric.type,
        "answers": list(metric.labels),
        "period": metric.period,
        "how_often": " ".join(
            [*calibration_in_words(metric), how_often(metric), *group_in_words(metric, each.group)]
        ),
        "dimensions": {name: list(values) for name, values in sorted(metric.dimensions.items())},
        "expires": None if metric.expires is None else metric.expires.isoformat(),
        "owner": shown(metric.owner) or None,
        "noise": _noise(metric),
        "spending": {span: {"reports": each.reports[span], "epsilon": each.epsilon(span)} for span in SPANS},
    }


def _noise(metric: Metric) -> Mapping[str, Any]:
    oracle = metric.mechanism
    permanent = permanent_answers(metric)
    return {
        "mechanism": oracle.name,
        "epsilon": metric.epsilon,
        "p": oracle.p,
        "q": oracle.q,
        "odds_factor": math.exp(metric.epsilon),
        "collection": metric.collection,
        "epsilon_permanent": permanent[0][0] if permanent else None,
        "max_distinct_values": permanent[0][1] if permanent else None,
        "words": [lie_in_words(metric), learnt_in_words(metric), certainty_in_words(metric), memory(metric)],
    }


def _span(spent: Spending, span: str) -> Mapping[str, Any]:
    return {
        "reports": spent.reports[span],
        "epsilon": spent.epsilon(span),
        "limit": spent.limits[span],
        "at_most": spent.at_most(span),
        "bounds": [
            {"name": each.name, "epsilon": each.epsilon, "delta": each.delta, "assumption": each.assumption}
            for each in bounds(spent.charges[span], spent.delta)
        ],
    }
