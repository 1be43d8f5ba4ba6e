"""``GET /v1/openapi.json``: what this API offers. Without a key: it tells nothing about anybody's metrics."""

import re
from functools import cache
from typing import Final

from flask import Blueprint, Response, current_app, request

from dither_server.answers import encode, tagged
from dither_server.monitoring import server_version
from dither_server.openapi.document import openapi_document
from dither_server.selection import refuse_unknown
from dither_server.service import Service

_ARGUMENT: Final = re.compile(r"<(?:[^:<>]+:)?([^<>]+)>")


def blueprint(_: Service) -> Blueprint:
    """The route. The document has the paths of this very application, which may be of one side alone."""
    routes = Blueprint("openapi_api", __name__)

    @cache
    def body() -> bytes:
        rules = {_ARGUMENT.sub(r"{\1}", rule.rule) for rule in current_app.url_map.iter_rules()}
        return encode(openapi_document(rules, server_version()))

    @routes.get("/v1/openapi.json")
    def get_document() -> Response:
        """OpenAPI 3.1."""
        refuse_unknown(request.args, ())
        return tagged(body())

    return routes
