"""``GET /v1/registry``: what is asked of devices. They read it without a key: it is no secret."""

import hashlib
from typing import Final

from flask import Blueprint, Response, request

from dither_protocol.registry import Registry
from dither_server.answers import encode, json_bytes
from dither_server.service import Service

_MAX_AGE_S: Final = 300


def blueprint(service: Service) -> Blueprint:
    """The route over one service."""
    routes = Blueprint("registry_api", __name__)
    body, headers = _registry_answer(service.registry)

    @routes.get("/v1/registry")
    def get_registry() -> Response:
        """The registry as devices read it."""
        answer = json_bytes(body, headers=headers)
        return answer.make_conditional(request)  # type: ignore[return-value]  # it returns the answer itself

    return routes


def _registry_answer(registry: Registry) -> tuple[bytes, dict[str, str]]:
    body = encode(registry.document)
    tag = hashlib.sha256(body).hexdigest()[:32]
    return body, {"ETag": f'"{tag}"', "Cache-Control": f"public, max-age={_MAX_AGE_S}"}
