"""``GET /v1/keys``: the keys that this process knows, for admins: after a rotation, whether it has seen the change."""

from flask import Blueprint, Response, request

from dither_server.answers import tagged_json
from dither_server.auth import Role, StoredKey
from dither_server.selection import refuse_unknown
from dither_server.service import Service


def blueprint(service: Service) -> Blueprint:
    """The route over one service."""
    routes = Blueprint("keys_api", __name__)

    @routes.get("/v1/keys")
    def get_keys() -> Response:
        """Names and roles; of the keys themselves no more than the beginning of their hashes."""
        service.keyring.authorize(request.headers.get("Authorization"), Role.ADMIN)
        refuse_unknown(request.args, ())
        today = service.clock().date()
        return tagged_json(
            {"keys": [_describe(key) | {"expired": key.expired(today)} for key in service.keyring.keys]}
        )

    return routes


def _describe(key: StoredKey) -> dict[str, object]:
    return {
        "name": key.name,
        "role": key.role.value,
        "id": key.key_id,
        "created": key.created,
        "expires": key.expires,
        "quota": None if key.quota is None else str(key.quota),
    }
