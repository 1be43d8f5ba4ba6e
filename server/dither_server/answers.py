"""How every answer leaves: JSON bytes with the same few headers."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from flask import Response, request

JSON: Final = "application/json"
_NOSNIFF: Final = ("X-Content-Type-Options", "nosniff")
_NO_STORE: Final = ("Cache-Control", "no-store")

JSON_HEADERS: Final = (("Content-Type", JSON), _NOSNIFF, _NO_STORE)
"""What an answer of JSON has that says nothing else."""

encode: Final = msgspec.json.Encoder().encode
"""JSON bytes of plain objects; `msgspec.Raw` inside them is copied as it is."""


def json_bytes(
    body: bytes, status: int = 200, *, mimetype: str = JSON, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer whose body is JSON already. It is not to be stored unless ``headers`` has a Cache-Control."""
    fields = [_NOSNIFF, *(headers or {}).items()]
    if "Cache-Control" not in (headers or {}):
        fields.append(_NO_STORE)
    return Response(body, status, fields, content_type=mimetype)


def json_answer(document: Any, status: int = 200) -> Response:
    """An answer from plain objects."""
    return json_bytes(encode(document), status)


def tagged(
    body: bytes,
    *,
    mimetype: str = JSON,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> Response:
    """An answer to a GET with an ETag; 304 without a body where the asker has it already.

    Only whoever asked may keep it, and asks again before using it.

    Args:
        body: of the answer.
        mimetype: of the body.
        headers: beside the usual ones.
        content: what the tag is of, where the body also holds the time of the answer; the tag is a weak one then.
    """
    tag = f'"{hashlib.sha256(body if content is None else content).hexdigest()[:32]}"'
    fields = {
        "ETag": tag if content is None else f"W/{tag}",
        "Cache-Control": "private, no-cache",
        "Vary": "Accept, Authorization",
    }
    answer = json_bytes(body, mimetype=mimetype, headers=fields | dict(headers or {}))
    return answer.make_conditional(request)  # type: ignore[return-value]  # it returns the answer itself


def tagged_json(document: Any) -> Response:
    """The same from plain objects."""
    return tagged(encode(document))
