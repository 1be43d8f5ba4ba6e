"""From the tables to the document."""

from collections.abc import Collection
from typing import Any, Final

from dither_server.openapi.operations import COMMON, OPERATIONS, Operation
from dither_server.openapi.schemas import SCHEMAS
from dither_server.openapi.shapes import Schema, ref
from dither_server.problems import KINDS, PROBLEM_JSON

_SCHEMES: Final = {
    "ingest": ("ingestKey", "Sends reports, and reads nothing."),
    "viewer": ("viewerKey", "Reads; an admin's key does too."),
    "admin": ("adminKey", "Sees how the service is run as well."),
}
_BEFORE: Final = (414, 431)
"""Refusals of what never reaches a route: an address or header fields that are too long."""
_HEADERS: Final[dict[str, Schema]] = {
    "ETag": {"schema": {"type": "string"}, "description": "For If-None-Match."},
    "Link": {"schema": {"type": "string"}, "description": 'The next page, rel="next" (RFC 8288).'},
    "Retry-After": {
        "schema": {"type": "integer", "minimum": 1},
        "description": "Seconds to wait before the same request is sent again.",
    },
}


def openapi_document(paths: Collection[str], version: str) -> dict[str, Any]:
    """The document of an application that has these paths.

    Args:
        paths: such as ``/v1/metrics/{name}``; others are left out.
        version: of Dither.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dither",
            "version": version,
            "description": "Telemetry with local differential privacy. Members may be added to any object; what is "
            "there keeps its meaning.",
        },
        "paths": {
            path: {method: _operation(operation) for method, operation in methods.items()}
            for path, methods in OPERATIONS.items()
            if path in paths
        },
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": about}
                for name, about in _SCHEMES.values()
            },
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": list(operation.parameters),
        "security": [] if operation.role is None else [{_SCHEMES[operation.role][0]: []}],
        "responses": {
            str(operation.status): _success(operation),
            **_not_modified(operation),
            **_problems(operation),
        },
    }
    if operation.request is not None:
        content = {"schema": ref(operation.request), "example": operation.example}
        found["requestBody"] = {"required": True, "content": {"application/json": content}}
    return found


def _success(operation: Operation) -> dict[str, Any]:
    names = (["ETag"] if operation.tagged else []) + (["Link"] if operation.paged else [])
    content: dict[str, Any] = {"application/json": {"schema": operation.answer}}
    if operation.csv:
        content["text/csv"] = {"schema": {"type": "string"}}
    return {
        "description": operation.summary,
        "headers": {name: _HEADERS[name] for name in names},
        "content": content,
    }


def _not_modified(operation: Operation) -> dict[str, Any]:
    return {"304": {"description": "The asker has it already."}} if operation.tagged else {}


def _problems(operation: Operation) -> dict[str, Any]:
    """By status: which types it may be."""
    types: dict[int, list[str]] = {}
    for name in (*operation.problems, *COMMON):
        types.setdefault(KINDS[name].status, []).append(name)
    for status in _BEFORE:
        types[status] = ["request-refused"]
    return {str(status): _problem(names, status) for status, names in sorted(types.items())}


def _problem(names: list[str], status: int) -> dict[str, Any]:
    retryable = any(KINDS[name].retryable for name in names)
    schema = {"allOf": [ref("Problem"), {"properties": {"type": {"enum": names}}}]}
    kind = KINDS[names[0]]
    example = {
        "type": names[0],
        "title": kind.title,
        "status": status,
        "detail": "words for people",
        "retryable": kind.retryable,
    }
    return {
        "description": "; ".join(KINDS[name].title for name in names),
        "headers": {"Retry-After": _HEADERS["Retry-After"]} if retryable else {},
        "content": {PROBLEM_JSON: {"schema": schema, "example": example}},
    }
