"""``GET /metrics``: what Prometheus scrapes, read from the store at each scrape.

No process counts anything by itself: so every gunicorn worker gives the same answer, and none has to live long. The
counters are sums that the store keeps (`dither_server.ever`): they never fall, whichever process answers. Requests
and their durations are not among them: each process would know its own alone, and takes that with it when it goes.

It wants a viewer's key: how the numbers of a small metric grow tells when its reports came.
"""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from flask import Blueprint, Response, request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dither_server.answers import json_bytes
from dither_server.auth import Role
from dither_server.series import Series, registry_series, survey_series
from dither_server.service import Service
from dither_server.survey import survey

SCRAPE_BUDGET_S: Final = 5.0
"""Half of the time after which Prometheus gives up by default."""


def blueprint(service: Service) -> Blueprint:
    """The route over one service."""
    routes = Blueprint("monitoring", __name__)
    collectors = CollectorRegistry()
    collectors.register(ServiceCollector(service))

    @routes.get("/metrics")
    def get_metrics() -> Response:
        """What the store holds now; an answer without it where the store is down."""
        service.keyring.authorize(request.headers.get("Authorization"), Role.VIEWER)
        return json_bytes(generate_latest(collectors), mimetype=CONTENT_TYPE_LATEST)

    return routes


class ServiceCollector(Collector):
    """The registry and the store, as they are at the scrape."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names are known when it collects, and no other collector is beside it."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Look once, within `SCRAPE_BUDGET_S`."""
        service = self._service
        found = survey(service, SCRAPE_BUDGET_S)
        yield _family(Series("dither_build_info", "The server.", ("version",), [((server_version(),), 1.0)]))
        for series in registry_series(service.registry, found.now):
            yield _family(series)
        for series in survey_series(found, service.registry, service.store.high_water_bytes):
            yield _family(series)


def server_version() -> str:
    """Of the installed distribution."""
    try:
        return version("dither")
    except PackageNotFoundError:  # run from a folder that was never installed
        return "unknown"


def _family(series: Series) -> Metric:
    kind = CounterMetricFamily if series.counter else GaugeMetricFamily
    family = kind(series.name, series.text, labels=series.labels)
    for labels, number in series.samples:
        family.add_metric(labels, number)
    return family
