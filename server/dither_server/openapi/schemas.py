"""What answers and requests hold."""

from typing import Final

from dither_protocol.mechanisms import AUTO, MAX_D, MAX_EPSILON, MECHANISMS, MIN_EPSILON
from dither_protocol.wire import MAX_REPORTS as MAX_BATCH_REPORTS
from dither_server.alarms import Kind, Level
from dither_server.auth import Role
from dither_server.openapi.shapes import (
    COUNT,
    DAY,
    FLAG,
    INSTANT,
    NUMBER,
    SHARE,
    TEXT,
    Schema,
    listed,
    mapped,
    nullable,
    ref,
    said,
    shaped,
)
from dither_server.plans import DEFAULT_REPORTS, MAX_PLANS, MAX_REPORTS
from dither_server.problems import KINDS
from dither_server.published import Rule

_MECHANISM: Final = {"type": "string", "enum": list(MECHANISMS)}
_PERIOD: Final = {"type": "string", "enum": ["hour", "day", "week", "month", "once"]}
_STATUS: Final = {"type": "string", "enum": ["open", "final", "suppressed"]}
_TARGET: Final = {"type": "string", "enum": ["population", "reporters"]}
_PAIR: Final = {"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2}
_CURSOR: Final = said(
    nullable(TEXT), "For `cursor` of the next page, also in the header Link; null on the last one."
)

_PROBLEM: Final = shaped(
    {
        "type": {"type": "string", "enum": list(KINDS)},
        "title": TEXT,
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": TEXT,
        "retryable": said(FLAG, "Whether the same request may succeed later."),
    },
    {
        "field": said(TEXT, "The parameter or member that it is about."),
        "failing": said(listed(TEXT), "Names of failing checks."),
    },
    "RFC 9457; `type` is a stable word, relative to the address of the API.",
)

_MEANING: Final = {
    "name": TEXT,
    "version": {"type": "integer", "minimum": 1},
    "params": {"type": "string", "pattern": "^[0-9a-f]{8}$"},
    "type": TEXT,
    "labels": listed(TEXT),
    "mechanism": shaped({"name": _MECHANISM, "epsilon": NUMBER, "d": COUNT, "p": SHARE, "q": SHARE}),
    "period": _PERIOD,
    "dimensions": mapped(listed(TEXT)),
}

_METRIC: Final = shaped(
    {
        **_MEANING,
        "description": TEXT,
        "owner": TEXT,
        "collection": TEXT,
        "expires": nullable(DAY),
        "min_reports": COUNT,
        "late_days": COUNT,
        "retention_days": nullable(COUNT),
        "use_case": nullable(TEXT),
        "versions": said(
            listed(shaped({**_MEANING, "current": FLAG})), "Every version whose reports are accepted."
        ),
    }
)

_WINDOW: Final = shaped(
    {"label": TEXT, "start": INSTANT, "end": INSTANT},
    about="Half-open, UTC; over several windows `label` is `first/last`.",
)

_VALUE: Final = shaped(
    {
        "value": TEXT,
        "estimate": said(NUMBER, "Unbiased share; may be below 0 or above 1."),
        "std_error": {"type": "number", "minimum": 0},
        "interval": said(_PAIR, "Raw: not cut to [0, 1]."),
        "interval_method": {"type": "string", "enum": ["clopper-pearson", "wilson", "mover"]},
        "norm_sub": said(SHARE, "Of the nearest distribution; biased."),
        "present": said(FLAG, "Whether it is told from noise."),
    },
    {"support": said(COUNT, "Number of reports that support the value.")},
)

_SUPPORT_TOTAL: Final = shaped(
    {"total": COUNT, "expected": NUMBER, "std_dev": NUMBER, "flagged": FLAG},
    about="Sum of the supports; flagged where honest reports do not give it.",
)

_PART: Final = shaped(
    {"version": COUNT, "n": COUNT, "mechanism": _MECHANISM, "epsilon": NUMBER},
    {"p": SHARE, "q": SHARE, "support": listed(COUNT)},
)

_ESTIMATE: Final = shaped(
    {
        "metric": TEXT,
        "versions": listed(COUNT),
        "window": ref("Window"),
        "status": _STATUS,
        "final": FLAG,
        "closes": INSTANT,
        "revision": {"type": "integer", "minimum": 1},
        "watermark": INSTANT,
        "dimensions": said(nullable(mapped(TEXT)), "Null for the sum over all."),
        "n": COUNT,
        "target": _TARGET,
        "level": SHARE,
        "simultaneous": FLAG,
        "values": said(listed(ref("Value")), "Empty where suppressed."),
    },
    {
        "version": said(COUNT, "Where it is about one alone."),
        "min_reports": COUNT,
        "mechanism": _MECHANISM,
        "epsilon": NUMBER,
        "p": SHARE,
        "q": SHARE,
        "parts": said(listed(_PART), "Where it is over several versions."),
        "support_total": nullable(ref("SupportTotal")),
        "rollup": COUNT,
        "windows": shaped({"first": TEXT, "last": TEXT, "with_reports": COUNT}),
    },
)

_ESTIMATES: Final = shaped(
    {
        "metric": TEXT,
        "versions": listed(shaped({"version": COUNT, "params": TEXT, "estimates": listed(ref("Estimate"))})),
        "combined": listed(ref("Estimate")),
        "combination": shaped({"rule": {"type": "string", "enum": list(Rule)}, "reason": TEXT}),
        "next": _CURSOR,
    }
)

_TERMS: Final = {
    "received": COUNT, "accepted": COUNT, "counted": COUNT, "duplicate": COUNT, "rejected": mapped(COUNT),
    "dead": COUNT, "in_flight": COUNT, "imbalance": COUNT,
}  # fmt: skip

_LEDGER: Final = shaped(
    {
        "as_of": INSTANT,
        "balanced": FLAG,
        "imbalance": COUNT,
        "unsettled": listed(COUNT),
        "unreadable": listed(TEXT),
        "metrics": listed(
            shaped({"metric": TEXT, **_TERMS, "windows": listed(shaped({"window": TEXT, **_TERMS}))})
        ),
    }
)

_STATUS_ANSWER: Final = shaped(
    {
        "as_of": INSTANT,
        "project": TEXT,
        "version": TEXT,
        "failing": said(listed(TEXT), "Names of failing readiness checks."),
        "trouble": said(nullable(TEXT), "Why the store cannot be read."),
        "alarms": listed(
            shaped(
                {
                    "metric": nullable(TEXT),
                    "level": {"type": "string", "enum": list(Level)},
                    "kind": {"type": "string", "enum": list(Kind)},
                    "text": TEXT,
                }
            )
        ),
        "ledger": nullable(
            shaped(
                {
                    "balanced": FLAG,
                    "unsettled": listed(COUNT),
                    "unreadable": listed(TEXT),
                    "total": shaped(_TERMS),
                    "metrics": listed(
                        shaped({"metric": TEXT, **_TERMS, "latest": nullable({"type": "object"})})
                    ),
                }
            )
        ),
        "counting": nullable(
            shaped(
                {
                    "waiting_s": nullable(NUMBER),
                    "workers": listed({"type": "object"}),
                    "partitions": listed({"type": "object"}),
                    "high_water_bytes": COUNT,
                }
            )
        ),
    }
)

_QUALITY: Final = shaped(
    {
        "metric": TEXT,
        "versions": listed(
            shaped(
                {
                    "version": COUNT, "mechanism": _MECHANISM, "epsilon": NUMBER, "p": SHARE, "q": SHARE,
                    "min_reports": COUNT,
                    "fakes": said(
                        shaped({"share": SHARE, "margin": NUMBER}),
                        "How far this share of made-up reports could move any value.",
                    ),
                }
            )
        ),
        "windows": listed(
            shaped(
                {
                    "version": COUNT, "window": ref("Window"), "status": _STATUS, "final": nullable(FLAG),
                    "revision": nullable(COUNT), "watermark": nullable(INSTANT), "n": COUNT,
                    "min_reports": nullable(COUNT), "level": nullable(SHARE), "target": TEXT,
                    "expected_rmse": said(
                        nullable(NUMBER), "Among the reporters, where all values are equally frequent."
                    ),
                    "rmse": said(nullable(NUMBER), "By the published standard errors."),
                    "half_width": nullable(shaped({"median": NUMBER, "largest": NUMBER})),
                    "cells": shaped({"published": COUNT, "suppressed": COUNT, "suppressed_share": SHARE}),
                    "support_total": nullable(ref("SupportTotal")),
                }
            )
        ),
        "accounts": listed(
            shaped({"window": TEXT, **_TERMS, "duplicate_share": SHARE, "rejected_share": SHARE})
        ),
        "unsettled": listed(COUNT),
        "next": _CURSOR,
    }
)  # fmt: skip

_BUDGET: Final = shaped({"spent": nullable(NUMBER), "limit": nullable(NUMBER), "over": FLAG})

_PRIVACY: Final = shaped(
    {
        "project": TEXT,
        "composition": said(TEXT, "By which rule epsilons are added up: `basic`, their plain sum."),
        "per_day": said(_BUDGET, "Worst case of one device on one UTC day."),
        "lifetime": said(_BUDGET, "From today until the last metric expires; null where one never does."),
        "days_to_lifetime_limit": nullable(NUMBER),
        "metrics": listed(
            shaped(
                {
                    "metric": TEXT, "version": COUNT, "mechanism": _MECHANISM, "epsilon": NUMBER,
                    "collection": TEXT, "period": _PERIOD, "combinations": COUNT, "reports_per_day": COUNT,
                    "epsilon_per_day": NUMBER, "windows_left": nullable(COUNT),
                    "epsilon_lifetime": nullable(NUMBER), "use_case": nullable(TEXT),
                    "guidance": nullable(_PAIR), "breach": nullable(TEXT),
                }
            )
        ),
        "breaches": listed(shaped({"metric": TEXT, "reason": TEXT})),
    }
)  # fmt: skip

_PLAN_REQUEST: Final[Schema] = shaped(
    {},
    {
        "metric": said(TEXT, "Of the registry; then neither `epsilon` nor `values`."),
        "epsilon": {"type": "number", "minimum": MIN_EPSILON, "maximum": MAX_EPSILON},
        "values": {"type": "integer", "minimum": 2, "maximum": MAX_D},
        "mechanism": {"type": "string", "enum": [AUTO, *MECHANISMS], "default": AUTO},
        "reports": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": MAX_REPORTS},
            "minItems": 1,
            "maxItems": MAX_PLANS,
            "default": list(DEFAULT_REPORTS),
        },
        "margin": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "level": {"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 1, "default": 0.95},
    },
)

_PLAN: Final = shaped(
    {
        "metric": nullable(TEXT), "mechanism": _MECHANISM, "epsilon": NUMBER, "values": COUNT,
        "report_bits": COUNT, "counters": COUNT, "target": _TARGET, "level": NUMBER,
        "plans": listed(
            shaped(
                {
                    "n": COUNT,
                    "detectable_share": nullable(SHARE),
                    "precision": listed(
                        shaped(
                            {
                                "share": SHARE, "std_error": NUMBER, "half_width": NUMBER,
                                "central_std_error": NUMBER,
                            }
                        )
                    ),
                }
            )
        ),
    },
    {
        "margin": NUMBER,
        "reports_for_margin": listed(shaped({"share": SHARE, "reports": COUNT, "central_reports": COUNT})),
    },
)  # fmt: skip

_REPORT: Final = shaped(
    {
        "metric": TEXT, "version": COUNT, "params": TEXT, "window": TEXT, "data": {},
    },
    {"dimensions": mapped(TEXT)},
    "One randomised answer; each is judged by itself.",
)  # fmt: skip

_BATCH: Final = shaped(
    {
        "batch": {"type": "string", "pattern": "^[A-Za-z0-9_-]{21}[AQgw]$"},
        "until": DAY,
        "reports": {"type": "array", "items": {}, "minItems": 1, "maxItems": MAX_BATCH_REPORTS},
    }
)

_BATCH_ANSWER: Final = shaped(
    {
        "accepted": COUNT,
        "duplicate": FLAG,
        "rejected": listed(shaped({"index": COUNT, "type": TEXT, "detail": TEXT})),
    }
)

_KEYS: Final = shaped(
    {
        "keys": listed(
            shaped(
                {
                    "name": TEXT,
                    "role": {"type": "string", "enum": list(Role)},
                    "id": {"type": "string", "pattern": "^[0-9a-f]{12}$"},
                    "created": nullable(DAY),
                    "expires": nullable(DAY),
                    "quota": nullable(TEXT),
                    "expired": FLAG,
                }
            )
        )
    }
)

SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": _PROBLEM,
    "Registry": shaped({"schema": COUNT, "project": TEXT, "metrics": mapped({"type": "object"})}),
    "Metric": _METRIC,
    "Metrics": shaped({"project": TEXT, "metrics": listed(ref("Metric"))}),
    "Window": _WINDOW,
    "Value": _VALUE,
    "SupportTotal": _SUPPORT_TOTAL,
    "Estimate": _ESTIMATE,
    "Estimates": _ESTIMATES,
    "Quality": _QUALITY,
    "Privacy": _PRIVACY,
    "Ledger": _LEDGER,
    "Status": _STATUS_ANSWER,
    "PlanRequest": _PLAN_REQUEST,
    "Plan": _PLAN,
    "Report": _REPORT,
    "Batch": _BATCH,
    "BatchAnswer": _BATCH_ANSWER,
    "Keys": _KEYS,
}
"""By name in the components of the document."""
