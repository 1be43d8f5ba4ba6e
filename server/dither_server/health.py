"""``/healthz`` and ``/readyz``: terse, without a key, and not for the public side of a proxy."""

from flask import Blueprint, Response

from dither_server.answers import json_answer
from dither_server.problems import Problem
from dither_server.service import Service
from dither_server.store_rules import StoreRefused, StoreUnavailable


def blueprint(service: Service) -> Blueprint:
    """The health routes over one service."""
    routes = Blueprint("health", __name__)

    @routes.get("/healthz")
    def healthz() -> Response:
        """The process answers; whatever it depends on may be down."""
        return json_answer({"status": "ok"})

    @routes.get("/readyz")
    def readyz() -> Response:
        """A batch that came now would be taken; for people, estimates can be read, whatever the store cannot take.

        The registry was read before this route existed.
        """
        failing = (
            _failing_to_read(service)
            if service.settings.role == "operator"
            else service.store.failing_checks()
        )
        if failing:
            raise Problem("not-ready", "some checks fail", members={"failing": failing})
        return json_answer({"status": "ready"})

    return routes


def _failing_to_read(service: Service) -> list[str]:
    try:
        service.store.catalogue()
        service.store.counting_state(service.clock())
    except StoreRefused:
        return ["store-fit"]
    except StoreUnavailable:
        return ["store-readable"]
    return []
