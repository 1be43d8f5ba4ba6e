"""Keys and signed registries for tests: made by the library that the SDK checks them with."""

from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dither_protocol.registry import registry_from_document
from dither_protocol.registry.envelope import (
    canonical_document,
    encode_envelope,
    key_id,
    public_key_text,
    signed_bytes,
)


class SigningKey:
    """A fresh Ed25519 key.

    Attributes:
        id: its name in an envelope.
        public: its public half, 32 bytes.
        text: the same as apps pin it.
    """

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()
        self.id = key_id(self.public)
        self.text = public_key_text(self.public)

    def sign(self, message: bytes) -> bytes:
        """The signature of ``message``, 64 bytes."""
        return self._private.sign(message)


def signed(document: Mapping[str, Any], revision: int, *keys: SigningKey) -> bytes:
    """The envelope of a registry's document by these keys."""
    canonical = canonical_document(registry_from_document(document))
    message = signed_bytes(revision, canonical)
    return encode_envelope(revision, canonical, {key.id: key.sign(message) for key in keys})
