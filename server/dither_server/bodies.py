"""From the bytes of a request to JSON, within hard limits. Pure."""

import zlib
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, Final

import msgspec

from dither_protocol.errors import BatchError, BatchProblem

_GZIP: Final = 16 + zlib.MAX_WBITS
_LARGE_BYTES: Final = 256 << 10
_ONE_LARGE: Final = Lock()
_AT_ONCE: Final = nullcontext()


class BodyTooLarge(Exception):
    """The body inflates to more than ``limit_bytes``."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the body inflates to more than {limit_bytes} bytes")


def inflated_size(raw: bytes) -> int:
    """What a gzip member says its content has, bytes (RFC 1952 section 2.3.1): `inflate` believes it no further."""
    return int.from_bytes(raw[-4:], "little")


def inflate(raw: bytes, limit_bytes: int) -> bytes:
    """One gzip member, whole, and nothing after it.

    Never holds more than one byte of output above ``limit_bytes``, nor above what `turn` lets pass by `inflated_size`.

    Raises:
        BodyTooLarge: there is more inside.
        BatchError: not gzip, cut short, followed by something else, or larger than it says.
    """
    machine = zlib.decompressobj(_GZIP)
    most = min(limit_bytes, max(inflated_size(raw), _LARGE_BYTES))
    try:
        body = machine.decompress(raw, most + 1)
    except zlib.error:
        raise _malformed("is not gzip, as its Content-Encoding says") from None
    if len(body) > limit_bytes:
        raise BodyTooLarge(limit_bytes)
    if len(body) > most:
        raise _malformed("is larger than its gzip stream says")
    if not machine.eof:
        raise _malformed("ends inside its gzip stream")
    if machine.unused_data:
        raise _malformed("goes on after its gzip stream")
    return body


def read_json(body: bytes) -> object:
    """JSON as plain objects; NaN, Infinity, numbers beyond double precision and deep nesting are refused.

    Raises:
        BatchError: it is not JSON, or too deep.
    """
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise _malformed("is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError):
        raise _malformed("is not valid JSON") from None


def turn(size_bytes: int) -> AbstractContextManager[Any]:
    """Let large bodies be inflated and read one by one: JSON becomes objects of up to thirty times its size."""
    return _ONE_LARGE if size_bytes > _LARGE_BYTES else _AT_ONCE


def _malformed(detail: str) -> BatchError:
    return BatchError(BatchProblem.MALFORMED_BODY, "body", detail)
