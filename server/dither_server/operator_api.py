"""What came out: the metrics, their published estimates, and what became of every report. For viewers and admins."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from flask import Blueprint, Response, request

from dither_protocol.labels import NAME
from dither_protocol.registry import Metric
from dither_protocol.storage import UNKNOWN
from dither_server.answers import JSON, encode, json_answer, tagged, tagged_json
from dither_server.auth import Role
from dither_server.conservation import View, ledger_document
from dither_server.csv_export import estimates_csv
from dither_server.documents import read_estimates
from dither_server.estimates_query import EstimatesQuery
from dither_server.metric_document import metric_document
from dither_server.plans import read_plan_request
from dither_server.privacy import privacy_view
from dither_server.privacy_document import privacy_document
from dither_server.problems import Problem
from dither_server.published import check_dimensions, estimates_document
from dither_server.quality import quality_document
from dither_server.refusals import read_refused
from dither_server.restating import restated_page, windows_of_one_answer
from dither_server.selection import Selection, interval, refuse_unknown
from dither_server.service import Service
from dither_server.statistics_plugin import planned
from dither_server.store_rules import Published

CSV: Final = "text/csv"
CSV_TYPE: Final = f"{CSV}; charset=utf-8; header=present"
_LEDGER_BUDGET_S: Final = 10.0
_INSTANT: Final = timedelta(seconds=1)


def blueprint(service: Service) -> Blueprint:
    """The reading routes over one service."""
    routes = Blueprint("operator_api", __name__)
    reader = _Reader(service)

    @routes.before_request
    def authorize_viewer() -> None:
        service.keyring.authorize(request.headers.get("Authorization"), Role.VIEWER)

    @routes.get("/v1/metrics")
    def get_metrics() -> Response:
        refuse_unknown(_query(), ())
        metrics = [reader.describe(metric) for metric in service.registry]
        return tagged_json({"project": service.registry.project, "metrics": metrics})

    @routes.get("/v1/metrics/<name>")
    def get_metric(name: str) -> Response:
        refuse_unknown(_query(), ())
        metric = service.registry.metrics.get(name)
        if metric is None:
            raise _unknown_metric()
        return tagged_json(reader.describe(metric))

    @routes.get("/v1/metrics/<name>/estimates")
    def get_estimates(name: str) -> Response:
        query = EstimatesQuery.read(name, _query())
        published = reader.published(name, query)
        document = estimates_document(
            name,
            published,
            rollup=query.selection.rollup is not None,
            simultaneous=query.intervals.simultaneous,
        )
        cursor = query.cursor(published.last)
        if request.accept_mimetypes.best_match((JSON, CSV)) == CSV:
            return tagged(_csv(document), mimetype=CSV_TYPE, headers=_link(cursor))
        return tagged(encode(document | {"next": cursor}), headers=_link(cursor))

    @routes.get("/v1/metrics/<name>/quality")
    def get_quality(name: str) -> Response:
        query = EstimatesQuery.read(name, _query(), intervals=False)
        published = reader.published(name, query)
        cursor = query.cursor(published.last)
        document = reader.quality(name, published, query.selection)
        return tagged(encode(document | {"next": cursor}), headers=_link(cursor))

    @routes.get("/v1/privacy")
    def get_privacy() -> Response:
        refuse_unknown(_query(), ())
        view = privacy_view(service.registry, service.clock().date())
        return tagged_json(privacy_document(service.registry, view))

    @routes.get("/v1/ledger")
    def get_ledger() -> Response:
        view = View.from_query(_query(), service.store.catalogue(), service.clock())
        found = service.store.conservation(view, _LEDGER_BUDGET_S)
        known = view.metric in (None, UNKNOWN, *service.registry.metrics)
        if not known and not found.accounts:
            raise _unknown_metric()
        document = ledger_document(found, view, tuple(service.registry.metrics))
        refused = service.store.read(read_refused)
        document["rejected_by_version"] = (
            None if refused is None else [asdict(row) for row in refused if view.metric in (None, row.metric)]
        )
        content = encode({key: value for key, value in document.items() if key != "as_of"})
        return tagged(encode(document), content=content)

    @routes.post("/v1/plans")
    def post_plans() -> Response:
        refuse_unknown(_query(), ())
        if request.mimetype != JSON:
            raise Problem("unsupported-media-type", f"send {JSON}", "Content-Type")
        if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise Problem("unsupported-encoding", "send no encoding", "Content-Encoding")
        asked = read_plan_request(request.get_data(cache=False))
        oracle = asked.oracle(service.registry)
        group = asked.group(service.registry)
        return json_answer(
            {"metric": asked.metric} | planned(oracle, asked.reports, asked.margin, asked.level, group)
        )

    return routes


class _Reader:
    """What the routes read from the store."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self, metric: Metric) -> dict[str, object]:
        """A metric with every version of it that is accepted."""
        versions = self._service.store.catalogue().versions(metric.name)
        return metric_document(metric, [version for _, version in sorted(versions.items())])

    def published(self, name: str, query: EstimatesQuery) -> Published:
        """The estimates that are asked for, with the intervals that are asked for.

        Raises:
            Problem: unknown-metric; query-invalid for dimensions that it never had.
        """
        found = self._read(name, query) if NAME.fullmatch(name) else Published()
        if not found.versions and name not in self._service.registry.metrics:
            raise _unknown_metric()
        check_dimensions(query.selection.dimensions, found)
        return found if query.intervals.as_published else restated_page(found, query.intervals)

    def _read(self, name: str, query: EstimatesQuery) -> Published:
        """What is published; where intervals are computed anew, no more windows than one answer may have."""
        store, selection = self._service.store, query.selection
        if not query.intervals.as_published:
            most = windows_of_one_answer(store.catalogue().versions(name).values(), selection)
            limits = [limit for limit in (selection.limit, most) if limit is not None]
            selection = replace(selection, limit=min(limits))
        return store.published(name, selection)

    def quality(self, name: str, published: Published, asked: Selection) -> dict[str, object]:
        """The page of windows beside the accounts of all windows since the page before it."""
        after, last = (_start(label) for label in (asked.after, published.last))
        windows = Selection(
            start=asked.start if after is None else after + _INSTANT,
            end=asked.end if last is None else last + _INSTANT,
        )
        view = View(self._service.clock(), {}, name, windows)
        return quality_document(name, published, self._service.store.conservation(view, _LEDGER_BUDGET_S))


def _start(label: str | None) -> datetime | None:
    found = None if label is None else interval(label)
    return None if found is None else found.start


def _query() -> Mapping[str, str]:
    """The parameters of the request's address.

    Raises:
        Problem: query-invalid where one is given twice.
    """
    for name, values in request.args.lists():
        if len(values) > 1:
            raise Problem(
                "query-invalid", "is given more than once", name if NAME.fullmatch(name) else "query"
            )
    return request.args


def _unknown_metric() -> Problem:
    return Problem("unknown-metric", "neither the registry nor the store knows a metric of this name")


def _csv(document: Mapping[str, object]) -> bytes:
    raw = [each for version in document["versions"] for each in version["estimates"]]  # type: ignore[attr-defined]
    estimates, damaged = read_estimates([*raw, *document["combined"]])  # type: ignore[misc]  # both are lists
    if damaged:
        raise Problem("internal-error", "some of the estimates cannot be read by this server; JSON has them")
    return estimates_csv(estimates).encode()


def _link(cursor: str | None) -> dict[str, str]:
    """Where the next page is (RFC 8288)."""
    if cursor is None:
        return {}
    return {"Link": f'<?{urlencode(request.args.to_dict() | {"cursor": cursor})}>; rel="next"'}
