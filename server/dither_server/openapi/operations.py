"""Every route under ``/v1``: who may call it, with what, and what comes back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dither_protocol.storage import ROLLUPS
from dither_server.estimates_query import DEFAULT_LIMIT, MAX_LIMIT, MAX_RESTATED_LIMIT, PUBLISHED_LEVEL
from dither_server.openapi.shapes import FLAG, TEXT, Schema, ref

_NAME: Final[Schema] = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "Name of a metric.",
    "schema": {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,63}$"},
    "example": "default_browser",
}
_BOUND: Final[Schema] = {
    "type": "string",
    "maxLength": 40,
    "pattern": "^[0-9]{4}-("
    "W[0-5][0-9]"
    "|[01][0-9]"
    "|[01][0-9]-[0-3][0-9]"
    "|[01][0-9]-[0-3][0-9]T[0-2][0-9]"
    "|[01][0-9]-[0-3][0-9][Tt][0-2][0-9](:[0-5][0-9]){2}([.][0-9]{1,9})?([Zz]|[+-][0-2][0-9]:[0-5][0-9])"
    ")$",
}


def _query(name: str, schema: Schema, description: str, example: Any) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": description, "example": example}


_RANGE: Final = (
    _query(
        "from", _BOUND,
        "First window: a label of any period, or an instant by RFC 3339 that windows begin at or after.",
        "2026-11-01",
    ),
    _query(
        "to", _BOUND, "Last window, included; or an instant that windows begin before.", "2026-11-30T00:00:00Z"
    ),
)  # fmt: skip
_PAGE: Final = (
    _query(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
        "Windows of one page, earliest first. With another `level`, or `simultaneous`, a page has at most "
        f"{MAX_RESTATED_LIMIT}, and fewer of many values: as many as are computed in a moment. `next` tells.",
        30,
    ),
    _query(
        "cursor",
        {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
        "`next` of the page before, of a query with the same parameters but `limit`.",
        "q0Zb1x3Yw5aSMjAyNi0xMS0yOQ",
    ),
)
_ESTIMATES: Final = (
    *_RANGE,
    _query(
        "dimensions",
        TEXT,
        "One cell, empty where the metric has none; or `*` for the sum over all.",
        "os=linux",
    ),
    _query(
        "rollup",
        {"type": "integer", "enum": list(ROLLUPS)},
        "Over so many consecutive windows, chosen by the last one; over all dimensions alone.",
        ROLLUPS[0],
    ),
    _query(
        "level",
        {"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 1, "default": PUBLISHED_LEVEL},
        "Of the intervals. Another than the published one is computed anew from the published counts.",
        0.99,
    ),
    _query("simultaneous", FLAG, "Intervals that cover all values of an estimate at once.", True),
    *_PAGE,
)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path.

    Attributes:
        id: names it.
        summary: what it does, in a sentence.
        problems: types that it may answer, beside those of `COMMON`.
        role: of the key that it needs; None for none.
        schema: name of the schema of its answer; None for any object.
        status: of its answer.
        parameters: by OpenAPI.
        request: name of the schema of its body; None where it has none.
        example: of that body.
        tagged: whether answers have an ETag.
        csv: whether it also answers text/csv.
        paged: whether answers may have a Link to the next page.
    """

    id: str
    summary: str
    problems: Sequence[str] = ()
    role: str | None = None
    schema: str | None = None
    status: int = 200
    parameters: Sequence[Schema] = ()
    request: str | None = None
    example: dict[str, Any] = field(default_factory=dict)
    tagged: bool = False
    csv: bool = False
    paged: bool = False

    @property
    def answer(self) -> Schema:
        """Schema of the answer."""
        return {"type": "object"} if self.schema is None else ref(self.schema)


COMMON: Final = ("request-refused", "internal-error")
_READING: Final = ("query-invalid", "unauthorized", "forbidden", "store-unavailable")
_ABOUT_ONE: Final = (*_READING, "unknown-metric", "not-found")

OPERATIONS: Final[dict[str, dict[str, Operation]]] = {
    "/v1/openapi.json": {
        "get": Operation(id="getDocument", summary="This document.", tagged=True),
    },
    "/v1/registry": {
        "get": Operation(
            id="getRegistry", summary="What is asked of devices.", schema="Registry", tagged=True
        ),
    },
    "/v1/registry/signed": {
        "get": Operation(
            id="getSignedRegistry",
            summary="The same as its owner signed it, for devices that trust a key; 404 where it is not signed.",
            schema="SignedRegistry",
            tagged=True,
            problems=("not-found",),
        ),
    },
    "/v1/reports": {
        "post": Operation(
            id="postReports",
            summary="Take a batch of randomised reports; 202 means that it is durable.",
            role="ingest",
            schema="BatchAnswer",
            status=202,
            request="Batch",
            example={
                "batch": "mC1h3sQ9Tz6Yk0cVw8rX2A",
                "until": "2026-12-02",
                "reports": [
                    {
                        "metric": "default_browser",
                        "version": 1,
                        "params": "3f9a1c2b",
                        "window": "2026-11-29",
                        "dimensions": {"os": "linux"},
                        "data": 3,
                    }
                ],
            },
            problems=(
                "malformed-body", "unauthorized", "forbidden", "body-too-large", "too-many-reports",
                "unsupported-media-type", "unsupported-encoding", "until-past", "until-too-far", "quota-exceeded",
                "store-unavailable", "overloaded",
            ),
        ),
    },
    "/v1/metrics": {
        "get": Operation(
            id="getMetrics", summary="The metrics of the registry.", role="viewer", schema="Metrics", tagged=True,
            problems=_READING,
        ),
    },
    "/v1/metrics/{name}": {
        "get": Operation(
            id="getMetric", summary="One metric of the registry.", role="viewer", schema="Metric", tagged=True,
            parameters=(_NAME,), problems=_ABOUT_ONE,
        ),
    },
    "/v1/metrics/{name}/estimates": {
        "get": Operation(
            id="getEstimates",
            summary="Published estimates, versions side by side, and those over several versions.",
            role="viewer",
            schema="Estimates",
            tagged=True,
            csv=True,
            paged=True,
            parameters=(_NAME, *_ESTIMATES),
            problems=(*_ABOUT_ONE, "level-unavailable", "statistics-not-installed"),
        ),
    },
    "/v1/metrics/{name}/quality": {
        "get": Operation(
            id="getQuality",
            summary="How far the estimates of a metric may be trusted, and what became of its reports.",
            role="viewer",
            schema="Quality",
            tagged=True,
            paged=True,
            parameters=(_NAME, *_RANGE, *_PAGE),
            problems=_ABOUT_ONE,
        ),
    },
    "/v1/privacy": {
        "get": Operation(
            id="getPrivacy", summary="What a device spends at most, by span of time, beside limits and guidance.",
            role="viewer", schema="Privacy", tagged=True, problems=_READING,
        ),
    },
    "/v1/ledger": {
        "get": Operation(
            id="getLedger",
            summary="What became of every report.",
            role="viewer",
            schema="Ledger",
            tagged=True,
            parameters=(_query("metric", TEXT, "Only this one.", "default_browser"), *_RANGE),
            problems=(*_READING, "unknown-metric"),
        ),
    },
    "/v1/status": {
        "get": Operation(
            id="getStatus", summary="How the service is, and what somebody should look at.", role="viewer",
            schema="Status", problems=("query-invalid", "unauthorized", "forbidden"),
        ),
    },
    "/v1/plans": {
        "post": Operation(
            id="postPlans",
            summary="How exact estimates will be, and how many reports a margin takes; nothing is kept.",
            role="viewer",
            schema="Plan",
            request="PlanRequest",
            example={"epsilon": 1.0, "values": 5, "reports": [100_000], "margin": 0.01},
            problems=(
                "query-invalid", "malformed-body", "unauthorized", "forbidden", "body-too-large",
                "unsupported-media-type", "unsupported-encoding", "plan-invalid", "statistics-not-installed",
            ),
        ),
    },
    "/v1/keys": {
        "get": Operation(
            id="getKeys", summary="The keys that this process knows.", role="admin", schema="Keys", tagged=True,
            problems=("query-invalid", "unauthorized", "forbidden"),
        ),
    },
}  # fmt: skip
"""By path, then by method."""
