"""The signed form of a registry: strict to read, and no byte of it can be changed unseen."""

import json
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dither_protocol import RegistryError, registry_from_document
from dither_protocol.registry.envelope import (
    MAX_ENVELOPE_BYTES,
    MAX_REVISION,
    PUBLIC_KEY_PREFIX,
    SignedRegistry,
    canonical_document,
    encode_envelope,
    is_envelope,
    key_id,
    open_registry,
    parse_envelope,
    parse_public_key,
    public_key_text,
    signed_bytes,
)
from support.protocol_samples import MARKER, browser_with, document, refused
from support.signing import SigningKey, signed

KEY, OTHER = SigningKey(), SigningKey()
GOOD = signed(document(), 7, KEY)


def verify(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """The library's own check."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def trusted(envelope: bytes, *keys: SigningKey) -> list[str]:
    """The trusted keys that signed it, of these."""
    return parse_envelope(envelope).trusted_by({key.id: key.public for key in keys}, verify)


def changed(**fields: Any) -> bytes:
    """`GOOD` with fields of the envelope replaced; None removes one."""
    envelope = json.loads(GOOD) | fields
    return json.dumps({key: value for key, value in envelope.items() if value is not None}).encode()


def test_what_is_signed_is_read_again_and_trusted() -> None:
    """The same registry, its revision, and the ids of the keys that the reader trusts."""
    found = parse_envelope(GOOD)
    assert isinstance(found, SignedRegistry)
    assert (found.revision, list(found.signatures)) == (7, [KEY.id])
    assert found.registry == registry_from_document(document())
    assert list(found.registry.metrics) == ["browser", "dark_mode"]
    assert found.document == canonical_document(found.registry)
    assert trusted(GOOD, KEY) == [KEY.id]
    assert trusted(GOOD, OTHER, KEY) == [KEY.id]


def test_two_keys_may_sign_and_one_is_enough() -> None:
    """So a new key comes before the old one goes: apps that know either of them accept it."""
    both = signed(document(), 8, KEY, OTHER)
    assert trusted(both, KEY) == [KEY.id]
    assert trusted(both, OTHER) == [OTHER.id]
    assert trusted(both, KEY, OTHER) == [KEY.id, OTHER.id]


def test_a_wrong_signature_by_a_trusted_key_is_never_outvoted() -> None:
    """A good one beside it does not help; a bad one by a key that nobody knows says nothing."""
    envelope = json.loads(signed(document(), 8, KEY, OTHER))
    envelope["signatures"][1]["signature"] = json.loads(GOOD)["signatures"][0]["signature"]
    spoiled = json.dumps(envelope).encode()
    with pytest.raises(RegistryError, match=f"that by key {OTHER.id} is wrong"):
        trusted(spoiled, KEY, OTHER)
    assert trusted(spoiled, KEY) == [KEY.id]


def test_a_key_that_is_not_trusted_is_none() -> None:
    """However good its signature is."""
    with pytest.raises(RegistryError, match="none by a key that is trusted"):
        trusted(GOOD, OTHER)
    with pytest.raises(RegistryError, match="none by a key that is trusted"):
        trusted(GOOD)


_DOCUMENT: str = json.loads(GOOD)["document"]
_SIGNATURE: dict[str, str] = json.loads(GOOD)["signatures"][0]


@pytest.mark.parametrize(
    "envelope",
    [
        changed(dither_registry=2),
        changed(revision=8),
        changed(revision=6),
        changed(document=_DOCUMENT.replace('"epsilon":1.0', '"epsilon":1.1')),
        changed(document=_DOCUMENT.replace('{"schema":1,', '{"schema": 1,')),
        changed(document=_DOCUMENT + " "),
        changed(document=_DOCUMENT.replace("example-editor", "example-writer")),
        changed(signatures=[_SIGNATURE | {"key": OTHER.id}]),
        changed(signatures=[_SIGNATURE | {"signature": "A" + _SIGNATURE["signature"][1:]}])
        if _SIGNATURE["signature"][0] != "A"
        else changed(signatures=[_SIGNATURE | {"signature": "B" + _SIGNATURE["signature"][1:]}]),
        changed(signatures=[]),
        changed(extra=1),
    ],
)
def test_no_field_can_be_changed(envelope: bytes) -> None:
    """Each alone, however little: refused by the format, or by the signature, with either key trusted."""
    with pytest.raises(RegistryError):
        trusted(envelope, KEY, OTHER)


def test_every_single_byte_of_the_document_counts() -> None:
    """Any one flipped bit in it, or in the signature, is found (a sample over the whole length)."""
    found = parse_envelope(GOOD)
    good = found.signatures[KEY.id]
    for position in range(0, len(found.document), 37):
        spoiled = bytearray(found.document)
        spoiled[position] ^= 1
        assert not verify(KEY.public, good, signed_bytes(found.revision, bytes(spoiled)))
    for position in range(len(good)):
        spoiled = bytearray(good)
        spoiled[position] ^= 1
        assert not verify(KEY.public, bytes(spoiled), found.message)
    assert verify(KEY.public, good, found.message)


def test_a_signature_of_the_document_alone_is_none_of_a_registry() -> None:
    """What is signed names its purpose and the revision: nothing signed for another end passes for it."""
    canonical = canonical_document(registry_from_document(document()))
    for message in (canonical, b"7\n" + canonical, b"other purpose\n7\n" + canonical):
        with pytest.raises(RegistryError, match="is wrong"):
            trusted(encode_envelope(7, canonical, {KEY.id: KEY.sign(message)}), KEY)


def test_revision_and_document_cannot_run_into_each_other() -> None:
    """The revision is digits alone and ends with its line, so no two pairs give the same bytes."""
    assert signed_bytes(1, b"2{}") != signed_bytes(12, b"{}")
    assert signed_bytes(12, b"{}") == b"dither registry, signed form 1\n12\n{}"


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"{",
    "not UTF-8": b"\xff\xfe{}",
    "a list": b"[]",
    "too large": b" " * MAX_ENVELOPE_BYTES + GOOD,
    "deep": b'{"document":' + b"[" * 200_000,
    "a number of 100,000 digits": b'{"revision":' + b"9" * 100_000 + b"}",
    "a key twice": GOOD.replace(b'"revision": 7', b'"revision": 6, "revision": 7'),
    "a key twice in the document": changed(document=_DOCUMENT.replace('{"schema":1,', '{"schema":1,"schema":1,')),
    "NaN": changed(document=_DOCUMENT.replace('"epsilon":1.0', '"epsilon":NaN')),
    "infinite": changed(document=_DOCUMENT.replace('"epsilon":1.0', '"epsilon":1e999')),
    "a deep document": changed(document="[" * 200_000),
    "a document that is none": changed(document="{}"),
    "a document that is no text": changed(document={"schema": 1}),
    "a document that is not ASCII": changed(document=_DOCUMENT.replace("Browser", "Br\u00f6wser")),
    "revision zero": changed(revision=0),
    "a negative revision": changed(revision=-1),
    "a broken revision": changed(revision=7.0),
    "a revision that is true": changed(revision=True),
    "a revision in quotes": changed(revision="7"),
    "a huge revision": changed(revision=MAX_REVISION + 1),
    "no revision": changed(revision=None),
    "no document": changed(document=None),
    "no signatures": changed(signatures=None),
    "signatures that are a table": changed(signatures={KEY.id: _SIGNATURE["signature"]}),
    "a signature that is text": changed(signatures=[_SIGNATURE["signature"]]),
    "nine signatures": changed(signatures=[_SIGNATURE | {"key": f"{n:016x}"} for n in range(9)]),
    "one key twice": changed(signatures=[_SIGNATURE, _SIGNATURE]),
    "a key that is a number": changed(signatures=[_SIGNATURE | {"key": 7}]),
    "a short key id": changed(signatures=[_SIGNATURE | {"key": KEY.id[:-1]}]),
    "a key id in capitals": changed(signatures=[_SIGNATURE | {"key": "ABCDEF0123456789"}]),
    "a short signature": changed(signatures=[_SIGNATURE | {"signature": _SIGNATURE["signature"][:-2]}]),
    "a padded signature": changed(signatures=[_SIGNATURE | {"signature": _SIGNATURE["signature"] + "=="}]),
    "a signature that is a list": changed(signatures=[_SIGNATURE | {"signature": []}]),
    "more in a signature": changed(signatures=[_SIGNATURE | {"algorithm": "none"}]),
}  # fmt: skip


@pytest.mark.parametrize("envelope", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_envelope_is_refused(envelope: bytes) -> None:
    """As one kind of error, whatever was sent."""
    with pytest.raises(RegistryError):
        parse_envelope(envelope)


def test_no_value_of_an_envelope_is_repeated() -> None:
    """Messages name places and rules."""
    for envelope in (
        changed(revision=MARKER),
        changed(document=MARKER),
        changed(signatures=[{"key": MARKER, "signature": MARKER}]),
        changed(signatures=[_SIGNATURE | {"signature": MARKER}]),
    ):
        with refused(RegistryError, ""):
            parse_envelope(envelope)


def test_the_largest_revision_is_one_that_every_reader_has_exactly() -> None:
    """2^53 - 1; it is signed and read as it is."""
    assert parse_envelope(signed(document(), MAX_REVISION, KEY)).revision == MAX_REVISION


def test_a_file_in_either_form_is_opened() -> None:
    """TOML has no envelope; the signed form has one, and the same registry."""
    registry, envelope = open_registry(GOOD)
    assert envelope is not None
    assert envelope.registry is registry
    toml = b'schema = 1\nproject = "p"\n[metrics.m]\nversion = 1\ntype = "boolean"\ndescription = "d"\nepsilon = 1.0\n'
    assert open_registry(toml)[1] is None
    assert is_envelope(b"\r\n\t " + GOOD)
    assert not is_envelope(b"# {\n" + toml)


def test_canonical_bytes_are_ascii_and_keep_the_order_of_the_file() -> None:
    """Metrics are shown in the order in which they were written."""
    registry = registry_from_document(browser_with(categories=["ünï", "other"]))
    canonical = canonical_document(registry)
    assert canonical.isascii()
    assert b" " not in canonical.replace(b"Browser that opens links", b"").replace(
        b"Is the dark theme on?", b""
    )
    assert canonical.index(b'"browser"') < canonical.index(b'"dark_mode"')
    assert registry_from_document(json.loads(canonical)) == registry


def test_a_public_key_is_one_word_that_shows_mistakes() -> None:
    """Its bytes come back; any changed, missing or added character is an error."""
    text = public_key_text(KEY.public)
    assert text.startswith(PUBLIC_KEY_PREFIX)
    assert len(text) == len(PUBLIC_KEY_PREFIX) + 48
    assert parse_public_key(text) == KEY.public
    assert key_id(KEY.public) == KEY.id
    body = text.removeprefix(PUBLIC_KEY_PREFIX)
    for position in range(0, 48, 5):
        other = "A" if body[position] != "A" else "B"
        with pytest.raises(ValueError, match="check digits"):
            parse_public_key(PUBLIC_KEY_PREFIX + body[:position] + other + body[position + 1 :])
    for broken in (
        "",
        "x",
        body,
        text[:-1],
        text + "A",
        text.replace("dither-pub-", "dither-priv-"),
        text + "\n",
    ):
        with pytest.raises(ValueError, match="public key"):
            parse_public_key(broken)
