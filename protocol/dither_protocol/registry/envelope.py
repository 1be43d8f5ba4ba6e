r"""A signed registry: an envelope around the exact bytes of its document, with a revision that only grows.

::

    {"dither_registry": 1, "revision": 7, "document": "{\"schema\":1,...}",
     "signatures": [{"key": "0f1e2d3c4b5a6978", "signature": "<base64url of 64 bytes>"}]}

``document`` is text, not an object: its bytes are what is signed, so nobody has to agree on how to write JSON. What an
Ed25519 signature is of stands in `signed_bytes`. There may be several signatures, of which a device needs one by a key
that it trusts: so a new key can come before the old one goes.

Standard library only: the signatures themselves are made and checked by whoever has a library for it.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dither_protocol.errors import MechanismError, RegistryError
from dither_protocol.mechanisms.forms import decode_base64url, encode_base64url
from dither_protocol.registry import fields
from dither_protocol.registry.document import parse_registry, registry_from_document
from dither_protocol.registry.model import Registry

FORMAT: Final = 1
MAX_ENVELOPE_BYTES: Final = 8 << 20
MAX_REVISION: Final = 2**53 - 1  # every JSON reader has it exactly
MAX_SIGNATURES: Final = 8
SIGNATURE_BYTES: Final = 64
PUBLIC_KEY_BYTES: Final = 32
PUBLIC_KEY_PREFIX: Final = "dither-pub-"

_DOMAIN: Final = b"dither registry, signed form 1\n"
"""So that a signature of anything else by the same key is none of a registry."""
_KEY_ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_CHECK_BYTES: Final = 4
_ENVELOPE_KEYS: Final = frozenset({"dither_registry", "revision", "document", "signatures"})
_SIGNATURE_KEYS: Final = frozenset({"key", "signature"})

Verify = Callable[[bytes, bytes, bytes], bool]
"""``verify(public_key, signature, message)``: whether an Ed25519 signature (RFC 8032) is good."""


@dataclass(frozen=True, slots=True)
class SignedRegistry:
    """An envelope that keeps to the format. Whether its signatures are good is another question: `trusted_by`.

    Attributes:
        revision: whole number from 1; a later registry has a higher one.
        document: the bytes of the registry's JSON, as they were signed.
        signatures: signature by key id.
        registry: what the document says.
    """

    revision: int
    document: bytes
    signatures: Mapping[str, bytes]
    registry: Registry

    @property
    def digest(self) -> str:
        """SHA-256 of the document in hex: two documents of one revision must not differ."""
        return hashlib.sha256(self.document).hexdigest()

    @property
    def message(self) -> bytes:
        """What is signed."""
        return signed_bytes(self.revision, self.document)

    def trusted_by(self, keys: Mapping[str, bytes], verify: Verify) -> list[str]:
        """Ids of the trusted keys that signed it.

        Args:
            keys: trusted public keys by id.
            verify: checks one signature.

        Raises:
            RegistryError: none of the keys signed it, or one signature by them is wrong. Signatures by other keys
                say nothing, good or bad.
        """
        found = [key_id for key_id in self.signatures if key_id in keys]
        if not found:
            raise RegistryError("signatures", "there is none by a key that is trusted")
        for key_id in found:
            if not verify(keys[key_id], self.signatures[key_id], self.message):
                raise RegistryError("signatures", f"that by key {key_id} is wrong")
        return found


def canonical_document(registry: Registry) -> bytes:
    """The bytes of a registry's document: JSON in ASCII without spaces, keys in the order of the file."""
    text = json.dumps(registry.document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def signed_bytes(revision: int, document: bytes) -> bytes:
    """What a signature is of: what it is for, the revision in decimal, and the document, parted by line ends."""
    return _DOMAIN + str(revision).encode("ascii") + b"\n" + document


def encode_envelope(revision: int, document: bytes, signatures: Mapping[str, bytes]) -> bytes:
    """The bytes of an envelope, ending in a line end."""
    envelope = {
        "dither_registry": FORMAT,
        "revision": revision,
        "document": document.decode("ascii"),
        "signatures": [{"key": key, "signature": encode_base64url(raw)} for key, raw in signatures.items()],
    }
    return json.dumps(envelope, indent=1).encode("ascii") + b"\n"


def parse_envelope(data: bytes) -> SignedRegistry:
    """Read an envelope strictly; nothing of it is trusted yet.

    Raises:
        RegistryError: it is too large or no envelope, or its registry breaks a rule. Nothing of it is repeated
            but names of keys.
    """
    if len(data) > MAX_ENVELOPE_BYTES:
        raise RegistryError("envelope", f"must have at most {MAX_ENVELOPE_BYTES} bytes")
    envelope = fields.table("envelope", _json("envelope", data))
    fields.refuse_unknown("envelope", envelope, _ENVELOPE_KEYS)
    known = {key: fields.required("envelope", envelope, key) for key in sorted(_ENVELOPE_KEYS)}
    if fields.whole("envelope.dither_registry", known["dither_registry"]) != FORMAT:
        raise RegistryError("envelope.dither_registry", f"this version reads form {FORMAT}")
    document = _document(known["document"])
    return SignedRegistry(
        revision=fields.whole("envelope.revision", known["revision"], low=1, high=MAX_REVISION),
        document=document,
        signatures=_signatures(known["signatures"]),
        registry=registry_from_document(_json("envelope.document", document)),
    )


def is_envelope(data: bytes) -> bool:
    """Whether a registry file is the signed form: TOML never begins with a brace."""
    return data.lstrip(b" \t\r\n")[:1] == b"{"


def open_registry(data: bytes) -> tuple[Registry, SignedRegistry | None]:
    """A registry file in either form, with its envelope where it is the signed one.

    For files that are the reader's own: no signature is looked at.

    Raises:
        RegistryError: it breaks a rule.
    """
    if not is_envelope(data):
        return parse_registry(data), None
    signed = parse_envelope(data)
    return signed.registry, signed


def key_id(public_key: bytes) -> str:
    """The name of a public key: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:16]


def public_key_text(public_key: bytes) -> str:
    """A public key as one word: prefix, base64url of its 32 bytes and of the first 4 of their SHA-256."""
    return PUBLIC_KEY_PREFIX + encode_base64url(public_key + _check(public_key))


def parse_public_key(text: str) -> bytes:
    """The 32 bytes of a public key.

    Raises:
        ValueError: it is none, or was mistyped.
    """
    if not isinstance(text, str) or not text.startswith(PUBLIC_KEY_PREFIX):
        raise ValueError(f"a public key begins with {PUBLIC_KEY_PREFIX}")
    try:
        raw = decode_base64url(text.removeprefix(PUBLIC_KEY_PREFIX), PUBLIC_KEY_BYTES + _CHECK_BYTES)
    except MechanismError:
        raise ValueError("it is no public key, or was not copied whole") from None
    public_key = raw[:PUBLIC_KEY_BYTES]
    if raw[PUBLIC_KEY_BYTES:] != _check(public_key):
        raise ValueError("it is no public key: its check digits do not fit")
    return public_key


def _check(public_key: bytes) -> bytes:
    return hashlib.sha256(public_key).digest()[:_CHECK_BYTES]


def _document(value: object) -> bytes:
    if not isinstance(value, str) or not value.isascii():
        raise RegistryError("envelope.document", "must be a string of ASCII")
    return value.encode("ascii")


def _signatures(value: object) -> dict[str, bytes]:
    path = "envelope.signatures"
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_SIGNATURES:
        raise RegistryError(path, f"must be a list of 1 to {MAX_SIGNATURES} signatures")
    found: dict[str, bytes] = {}
    for position, item in enumerate(value):
        where = f"{path}[{position}]"
        given = fields.table(where, item)
        fields.refuse_unknown(where, given, _SIGNATURE_KEYS)
        key, text = (fields.required(where, given, name) for name in ("key", "signature"))
        if not isinstance(key, str) or not _KEY_ID.fullmatch(key) or key in found:
            raise RegistryError(f"{where}.key", "must be the id of a key, 16 hex digits, and no other's here")
        found[key] = _signature(f"{where}.signature", text)
    return found


def _signature(path: str, value: object) -> bytes:
    try:
        return decode_base64url(fields.text(path, value), SIGNATURE_BYTES)
    except MechanismError as error:
        raise RegistryError(path, str(error)) from None


def _json(path: str, data: bytes) -> Any:
    """Strict JSON: UTF-8, no key twice, no number that is none."""
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except RegistryError:
        raise
    except (ValueError, RecursionError):  # UnicodeDecodeError is one; so is a number of thousands of digits
        raise RegistryError(path, "is not strict JSON") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
