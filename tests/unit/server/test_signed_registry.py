"""A signed registry on the server: served as it was signed, and never one that goes back."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dither_client.transport import entity_tag
from dither_protocol.registry import registry_from_document
from dither_protocol.registry.envelope import parse_envelope
from dither_protocol.storage import META_KEY, versions_key
from dither_server.app import create_app
from dither_server.settings import ConfigurationError
from dither_server.store_rules import StoreRefused
from support.server import REGISTRY, registry, settings
from support.signing import SigningKey, signed
from support.store import Store

KEY = SigningKey()


def _document(description: str = "Asked once") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(registry().document))
    document["metrics"]["first_use"]["description"] = description
    return document


def _start(folder: Path, store: Store, text: str | bytes) -> FlaskClient:
    """A server with this registry file."""
    text = text.decode() if isinstance(text, bytes) else text
    return create_app(settings(folder, store.url, registry_text=text)).test_client()


def _noted(store: Store) -> tuple[str | None, ...]:
    with store.client(decode=True) as client:
        return tuple(client.hmget(META_KEY, "registry_revision", "registry_digest"))


def test_both_forms_are_served(store: Store, tmp_path: Path) -> None:
    """The plain one for everybody, the envelope for devices that trust a key: with the bytes that were signed."""
    envelope = signed(_document(), 7, KEY)
    client = _start(tmp_path, store, envelope)
    assert registry_from_document(client.get("/v1/registry").json).metrics == registry().metrics
    answer = client.get("/v1/registry/signed")
    assert answer.status_code == 200
    assert (answer.content_type, answer.headers["Cache-Control"]) == (
        "application/json",
        "public, max-age=300",
    )
    assert parse_envelope(answer.data) == parse_envelope(envelope)
    for route in ("/v1/registry", "/v1/registry/signed"):  # devices send no tag but this back
        served = client.get(route)
        assert served.headers["ETag"] == entity_tag(served.data)
    again = client.get("/v1/registry/signed", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    assert client.get("/v1/registry").headers["ETag"] != answer.headers["ETag"]


def test_an_unsigned_registry_has_no_signed_form(store: Store, tmp_path: Path) -> None:
    """A problem that says so; the plain form is there as ever."""
    client = _start(tmp_path, store, REGISTRY)
    answer = client.get("/v1/registry/signed")
    assert (answer.status_code, answer.json["type"], answer.json["detail"]) == (
        404, "not-found", "the registry is not signed",
    )  # fmt: skip
    assert client.get("/v1/registry").status_code == 200
    assert _noted(store) == (None, None)


def test_a_revision_never_goes_back(store: Store, tmp_path: Path) -> None:
    """An older one is refused at the start, and changes nothing; a later one goes on."""
    _start(tmp_path, store, signed(_document(), 7, KEY))
    assert _noted(store) == ("7", parse_envelope(signed(_document(), 7, KEY)).digest)
    before = store.dump()
    with pytest.raises(StoreRefused, match="knows revision 7 of the registry, and this is revision 6"):
        _start(tmp_path, store, signed(_document(), 6, KEY))
    assert store.dump() == before
    _start(tmp_path, store, signed(_document("Asked just once"), 8, KEY))
    assert _noted(store)[0] == "8"
    largest = 2**53 - 1
    _start(tmp_path, store, signed(_document(), largest, KEY))
    with pytest.raises(StoreRefused, match=f"knows revision {largest}"):
        _start(tmp_path, store, signed(_document(), largest - 1, KEY))


def test_one_revision_has_one_content(store: Store, tmp_path: Path) -> None:
    """Devices would have two registries under one number. The same again is no other, by another key neither."""
    _start(tmp_path, store, signed(_document(), 7, KEY))
    with pytest.raises(StoreRefused, match="revision 7 of the registry with other content"):
        _start(tmp_path, store, signed(_document("Other words"), 7, KEY))
    _start(tmp_path, store, signed(_document(), 7, KEY))
    _start(tmp_path, store, signed(_document(), 7, KEY, SigningKey()))
    assert _noted(store)[0] == "7"


def test_a_later_revision_with_another_meaning_is_refused(store: Store, tmp_path: Path) -> None:
    """A signature does not excuse it. It is not noted either: the revision before it starts again."""
    _start(tmp_path, store, signed(_document(), 7, KEY))
    document = _document()
    document["metrics"]["browser"]["epsilon"] = 2.0
    with pytest.raises(StoreRefused, match="changed without a new version"):
        _start(tmp_path, store, signed(document, 8, KEY))
    assert _noted(store)[0] == "7"
    _start(tmp_path, store, signed(_document(), 7, KEY))


def test_going_back_to_an_unsigned_one_is_said(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is allowed, for whoever lost the key: devices that pin one keep what they have."""
    _start(tmp_path, store, signed(_document(), 7, KEY))
    with caplog.at_level(logging.WARNING):
        _start(tmp_path, store, REGISTRY)
    assert "revision 7 of it was: devices that pin a key keep that" in caplog.text


def test_a_broken_envelope_is_a_wrong_configuration(store: Store, tmp_path: Path) -> None:
    """Named like any other registry that breaks a rule; nothing is written into the store."""
    envelope = json.loads(signed(_document(), 7, KEY))
    for broken in (envelope | {"revision": 0}, envelope | {"signatures": []}, {}):
        with pytest.raises(ConfigurationError, match="registry: envelope"):
            _start(tmp_path, store, json.dumps(broken))
    with store.client(decode=True) as client:
        assert client.smembers(versions_key("browser")) == set()
