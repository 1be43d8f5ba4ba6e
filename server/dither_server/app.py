"""The WSGI application.

Run it with ``gunicorn -c python:dither_server.gunicorn_config``; it is configured by the variables ``DITHER_*``.
"""

import logging
import os
import sys
from types import ModuleType
from typing import Final

from flask import Flask

from dither_server import (
    health,
    ingest,
    keys_api,
    monitoring,
    openapi_api,
    operator_api,
    problems,
    registry_api,
    status_api,
)
from dither_server.dashboard import routes as dashboard
from dither_server.service import Clock, build_service, utc_now
from dither_server.settings import ConfigurationError, Settings
from dither_server.store_rules import StoreUnavailable

APP_LOAD_ERROR: Final = 4
"""Exit status by which gunicorn's master learns that no worker will ever start, and stops."""

_LOG: Final = logging.getLogger(__name__)


def create_app(settings: Settings, *, clock: Clock = utc_now) -> Flask:
    """The application over the store that the settings name.

    A store that does not answer is no error here: requests get 503 until it does, and it is prepared then.

    Args:
        settings: see `Settings.from_env`.
        clock: gives the time, aware, in UTC.

    Raises:
        ConfigurationError: a file cannot be read, or the store answers and must not be used (`StoreRefused`).
    """
    service = build_service(settings, clock)
    app = Flask("dither_server", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = ingest.READ_LIMIT_BYTES
    app.url_map.merge_slashes = False  # else a doubled slash would be answered by a redirect
    app.extensions["dither"] = service
    problems.install(app)
    if settings.role != "operator":
        ingest.install(app, service)
    for room in _rooms(settings.role):
        app.register_blueprint(room.blueprint(service))
    try:
        service.store.catalogue()
    except StoreUnavailable as error:
        _LOG.warning("starting without the store, it is prepared when it answers: %s", error)
    return app


def _rooms(role: str) -> tuple[ModuleType, ...]:
    """The modules whose routes a process of this role has; those of the other side do not exist in it."""
    for_devices = (registry_api,)
    for_people = (operator_api, keys_api, status_api, monitoring, dashboard)
    return {
        "ingest": (*for_devices, openapi_api, health),
        "operator": (*for_people, openapi_api, health),
        "all": (*for_devices, *for_people, openapi_api, health),
    }[role]


def create_app_from_env() -> Flask:
    """The application for gunicorn. A wrong configuration ends the process with one line and status 4."""
    try:
        return create_app(Settings.from_env(os.environ))
    except ConfigurationError as error:
        sys.stderr.write(f"dither: {error}\n")
        raise SystemExit(APP_LOAD_ERROR) from None
