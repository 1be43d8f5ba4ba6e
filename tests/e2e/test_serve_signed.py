"""`dither serve` with a signed registry: an operator points it at the file, and devices can check who signed it."""

import json
import urllib.request
from pathlib import Path

from dither_cli.service import Service
from dither_client.signatures import verify
from dither_protocol.registry import parse_registry
from dither_protocol.registry.envelope import parse_envelope
from support.serve_process import REGISTRY
from support.signing import SigningKey, signed


def test_a_signed_registry_is_served_in_both_forms(tmp_path: Path) -> None:
    """The envelope verifies by the key that signed it, and the plain form says the same."""
    key, plain = SigningKey(), parse_registry(REGISTRY)
    file = tmp_path / "registry.signed.json"
    file.write_bytes(signed(plain.document, 3, key))
    with Service.start(file, state_dir=tmp_path / "state", workers=1) as service:
        assert service.project == plain.project
        answers = {}
        for path in ("/v1/registry", "/v1/registry/signed"):
            with urllib.request.urlopen(service.base_url + path, timeout=60) as answer:
                answers[path] = answer.read()
    envelope = parse_envelope(answers["/v1/registry/signed"])
    assert envelope.trusted_by({key.id: key.public}, verify) == [key.id]
    assert envelope.revision == 3
    assert json.loads(answers["/v1/registry"]) == json.loads(envelope.document)
