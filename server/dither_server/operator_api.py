"""What is asked and what came out: the registry (public), the metrics and their published estimates (operators)."""

import hashlib

from flask import Blueprint, Response, request

from dither_protocol.labels import NAME
from dither_protocol.registry import Metric, Registry
from dither_server.answers import encode, json_answer, json_bytes
from dither_server.auth import Role
from dither_server.problems import Problem
from dither_server.published import Selection, estimates_document
from dither_server.service import Service
from dither_server.store_rules import Published

_REGISTRY_MAX_AGE_S = 300


def blueprint(service: Service) -> Blueprint:
    """The reading routes over one service."""
    routes = Blueprint("operator_api", __name__)
    registry_body, registry_headers = _registry_answer(service.registry)

    def authorize_operator() -> None:
        service.keyring.authorize(request.headers.get("Authorization"), Role.OPERATOR)

    @routes.get("/v1/registry")
    def get_registry() -> Response:
        """The registry as devices read it: what is asked of them is no secret."""
        answer = json_bytes(registry_body, headers=registry_headers)
        return answer.make_conditional(request)  # type: ignore[return-value]  # it returns the answer itself

    @routes.get("/v1/metrics")
    def get_metrics() -> Response:
        authorize_operator()
        return json_answer(
            {"project": service.registry.project, "metrics": [_describe(m) for m in service.registry]}
        )

    @routes.get("/v1/metrics/<name>")
    def get_metric(name: str) -> Response:
        authorize_operator()
        metric = service.registry.metrics.get(name)
        if metric is None:
            raise _unknown_metric()
        return json_answer(_describe(metric))

    @routes.get("/v1/metrics/<name>/estimates")
    def get_estimates(name: str) -> Response:
        authorize_operator()
        selection = Selection.from_query(request.args)
        known = NAME.fullmatch(name)
        published = service.store.published(name, selection.takes_field) if known else Published()
        if not published.versions and name not in service.registry.metrics:
            raise _unknown_metric()
        return json_answer(estimates_document(name, published, selection))

    return routes


def _unknown_metric() -> Problem:
    return Problem("unknown-metric", "neither the registry nor the store knows a metric of this name")


def _registry_answer(registry: Registry) -> tuple[bytes, dict[str, str]]:
    body = encode(registry.document)
    tag = hashlib.sha256(body).hexdigest()[:32]
    return body, {"ETag": f'"{tag}"', "Cache-Control": f"public, max-age={_REGISTRY_MAX_AGE_S}"}


def _describe(metric: Metric) -> dict[str, object]:
    """A metric with everything that its estimates depend on."""
    oracle = metric.mechanism
    return {
        "name": metric.name,
        "version": metric.version,
        "params": metric.params_hash,
        "type": metric.type,
        "description": metric.description,
        "owner": metric.owner,
        "labels": metric.labels,
        "mechanism": {
            "name": oracle.name,
            "epsilon": oracle.epsilon,
            "d": oracle.d,
            "p": oracle.p,
            "q": oracle.q,
        },
        "period": metric.period,
        "collection": metric.collection,
        "dimensions": metric.dimensions,
        "expires": metric.expires,
        "min_reports": metric.min_reports,
        "late_days": metric.late_days,
        "use_case": metric.use_case,
    }
