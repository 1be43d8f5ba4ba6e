"""``GET /v1/registry``: what is asked of devices, plain and signed. They read it without a key: it is no secret."""

import hashlib
from typing import Final

from flask import Blueprint, Response, request

from dither_protocol.registry.envelope import SignedRegistry, encode_envelope
from dither_server.answers import encode, json_bytes
from dither_server.problems import Problem
from dither_server.service import Service

_MAX_AGE_S: Final = 300


def blueprint(service: Service) -> Blueprint:
    """The routes over one service."""
    routes = Blueprint("registry_api", __name__)
    plain = encode(service.registry.document)
    signed = None if service.signed is None else _envelope(service.signed)

    @routes.get("/v1/registry")
    def get_registry() -> Response:
        """The registry as devices read it."""
        return _public(plain)

    @routes.get("/v1/registry/signed")
    def get_signed_registry() -> Response:
        """The same as its owner signed it, for devices that trust a key and no server."""
        if signed is None:
            raise Problem("not-found", "the registry is not signed")
        return _public(signed)

    return routes


def _envelope(signed: SignedRegistry) -> bytes:
    return encode_envelope(signed.revision, signed.document, signed.signatures)


def _public(body: bytes) -> Response:
    """An answer that whoever is on the way may keep for a while."""
    tag = hashlib.sha256(body).hexdigest()[:32]
    headers = {"ETag": f'"{tag}"', "Cache-Control": f"public, max-age={_MAX_AGE_S}"}
    return json_bytes(body, headers=headers).make_conditional(request)  # type: ignore[return-value]  # itself
