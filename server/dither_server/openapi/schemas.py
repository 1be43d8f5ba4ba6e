"""What answers and requests hold."""

from typing import Final

from dither_protocol.errors import Rejection
from dither_protocol.mechanisms import AUTO, MAX_D, MAX_EPSILON, MECHANISMS, MIN_EPSILON
from dither_protocol.registry.document import MAX_METRICS
from dither_protocol.wire import MAX_REPORTS as MAX_BATCH_REPORTS
from dither_server.alarms import Kind, Level
from dither_server.auth import Role
from dither_server.openapi.memoized_schema import MEMOIZED_ESTIMATE, MEMOIZED_METRIC, MEMOIZED_PLAN
from dither_server.openapi.privacy_schema import PRIVACY
from dither_server.openapi.registry_schema import SIGNED_REGISTRY
from dither_server.openapi.shapes import (
    COUNT,
    DAY,
    FLAG,
    INSTANT,
    MECHANISM,
    NUMBER,
    PAIR,
    PERIOD,
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
from dither_server.openapi.utility_schema import CALIBRATION, SHUFFLED, UTILITY
from dither_server.plans import DEFAULT_REPORTS, MAX_PLANS, MAX_REPORTS
from dither_server.problems import KINDS
from dither_server.published import Rule
from dither_server.series import OTHER

_STATUS: Final = {"type": "string", "enum": ["open", "final", "suppressed"]}
_TARGET: Final = {"type": "string", "enum": ["population", "reporters"]}
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
    "mechanism": shaped({"name": MECHANISM, "epsilon": NUMBER, "d": COUNT, "p": SHARE, "q": SHARE}),
    "memoized": MEMOIZED_METRIC,
    "calibration": CALIBRATION,
    "period": PERIOD,
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
        "interval": said(PAIR, "Raw: not cut to [0, 1]."),
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
    {"version": COUNT, "n": COUNT, "mechanism": MECHANISM, "epsilon": NUMBER},
    {"p": SHARE, "q": SHARE, "support": listed(COUNT), "memoized": MEMOIZED_ESTIMATE},
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
        "mechanism": MECHANISM,
        "epsilon": NUMBER,
        "p": SHARE,
        "q": SHARE,
        "memoized": MEMOIZED_ESTIMATE,
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

_REASON: Final = {"type": "string", "enum": [*Rejection, OTHER]}

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
        "windows_left_out": said(COUNT, "Windows that are not listed: a ledger lists 1,000 at most."),
        "metrics": listed(
            shaped({"metric": TEXT, **_TERMS, "windows": listed(shaped({"window": TEXT, **_TERMS}))})
        ),
        "rejected_by_version": said(
            nullable(listed(shaped({"metric": TEXT, "version": COUNT, "reason": _REASON, "reports": COUNT}))),
            "Of known versions, over all windows since the store was created; no term of the equation. "
            "Null where they cannot be read.",
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
                    "version": COUNT, "mechanism": MECHANISM, "epsilon": NUMBER, "p": SHARE, "q": SHARE,
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
                    "utility": UTILITY, "shuffled": SHUFFLED,
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

_PLAN_REQUEST: Final[Schema] = shaped(
    {},
    {
        "metric": said(TEXT, "Of the registry; then neither `epsilon` nor `values`."),
        "epsilon": {"type": "number", "minimum": MIN_EPSILON, "maximum": MAX_EPSILON},
        "values": {"type": "integer", "minimum": 2, "maximum": MAX_D},
        "mechanism": {"type": "string", "enum": [AUTO, *MECHANISMS], "default": AUTO},
        "one_of": {
            "type": "integer",
            "minimum": 2,
            "maximum": MAX_METRICS,
            "description": "Metrics like it, of which a device answers one per window; `reports` are then devices.",
        },
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
        "metric": nullable(TEXT), "mechanism": MECHANISM, "epsilon": NUMBER, "values": COUNT,
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
                },
                {"devices": said(COUNT, "Of a group: so many devices make the `n` reports about this metric.")},
            )
        ),
    },
    {
        "memoized": MEMOIZED_PLAN,
        "one_of": shaped(
            {
                "members": COUNT,
                "interval_factor": said(NUMBER, "How much wider intervals are than with all reports, about."),
                "epsilon_charged": said(NUMBER, "Of each report: the largest of the group."),
                "epsilon_otherwise": said(NUMBER, "Of one answer to every member: their sum."),
            }
        ),
        "margin": NUMBER,
        "reports_for_margin": listed(
            shaped({"share": SHARE, "reports": COUNT, "central_reports": COUNT}, {"devices": COUNT})
        ),
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
    "SignedRegistry": SIGNED_REGISTRY,
    "Metric": _METRIC,
    "Metrics": shaped({"project": TEXT, "metrics": listed(ref("Metric"))}),
    "Window": _WINDOW,
    "Value": _VALUE,
    "SupportTotal": _SUPPORT_TOTAL,
    "Estimate": _ESTIMATE,
    "Estimates": _ESTIMATES,
    "Quality": _QUALITY,
    "Privacy": PRIVACY,
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
