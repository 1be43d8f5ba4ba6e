"""How every answer leaves: JSON bytes with the same few headers."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from flask import Response

JSON: Final = "application/json"
_NOSNIFF: Final = ("X-Content-Type-Options", "nosniff")
_NO_STORE: Final = ("Cache-Control", "no-store")

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
