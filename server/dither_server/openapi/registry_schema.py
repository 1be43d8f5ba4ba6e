"""The signed form of a registry as a schema."""

from typing import Final

from dither_protocol.registry.envelope import FORMAT, MAX_REVISION, MAX_SIGNATURES
from dither_server.openapi.shapes import Schema, said, shaped

_SIGNATURE: Final = shaped(
    {
        "key": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
        "signature": said(
            {"type": "string", "pattern": "^[A-Za-z0-9_-]{86}$"},
            "Ed25519 (RFC 8032), base64url: of the line `dither registry, signed form 1`, a line with the revision in "
            "decimal, and the bytes of `document`.",
        ),
    }
)
SIGNED_REGISTRY: Final[Schema] = shaped(
    {
        "dither_registry": {"type": "integer", "const": FORMAT},
        "revision": said(
            {"type": "integer", "minimum": 1, "maximum": MAX_REVISION}, "A later registry has a higher one."
        ),
        "document": said(
            {"type": "string", "pattern": "^\\{[ -~]*\\}$"},
            "The registry as JSON: text, since its bytes are signed.",
        ),
        "signatures": {"type": "array", "items": _SIGNATURE, "minItems": 1, "maxItems": MAX_SIGNATURES},
    }
)
