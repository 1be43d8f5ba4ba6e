"""The routes of the dashboard."""

import hashlib
import logging
from collections.abc import Callable
from typing import Final

from flask import Blueprint, Response, make_response, redirect, request

from dither_protocol.labels import NAME
from dither_server.answers import encode, json_bytes
from dither_server.csv_export import estimates_csv
from dither_server.dashboard.assets import Asset, load_assets
from dither_server.dashboard.desk import Desk
from dither_server.dashboard.headers import harden
from dither_server.dashboard.health_page import health_view
from dither_server.dashboard.login import Login, SignedOut, login_link
from dither_server.dashboard.metric_page import MetricView, metric_view
from dither_server.dashboard.overview import overview_view
from dither_server.dashboard.queries import MetricQuery
from dither_server.dashboard.rendering import Page, Renderer
from dither_server.dashboard.session_secret import SessionSecret
from dither_server.privacy import privacy_view
from dither_server.problems import Problem, problem_of
from dither_server.service import Service
from dither_server.store_rules import StoreRefused, StoreUnavailable

LIVE: Final = "/live"
"""Before the address of a page: the same page as JSON, for the script that keeps it up to date."""

_FOR_EVER: Final = "public, max-age=31536000, immutable"
_LOG: Final = logging.getLogger(__name__)

Reader = Callable[..., Page]


def blueprint(service: Service) -> Blueprint:
    """All of it, over one service.

    Raises:
        FileNotFoundError: plotly's script is not installed.
    """
    routes = Blueprint("dashboard", __name__)
    assets = load_assets()
    renderer = Renderer(assets, service.registry.project)
    secret = SessionSecret(service.store)
    secret.look()
    login = Login(service, renderer, secret)
    pages = _Pages(Desk(service), renderer)
    routes.after_request(harden)
    routes.register_error_handler(Exception, _Errors(renderer, login))
    routes.add_url_rule("/login", "enter", login.enter, methods=["GET"])
    routes.add_url_rule("/login", "submit", login.submit, methods=["POST"])
    routes.add_url_rule("/logout", "leave", login.leave, methods=["POST"])

    def add_page(rule: str, read: Reader) -> None:
        def show(**arguments: str) -> Response:
            session = login.session()
            page = read(**arguments)
            live = LIVE + request.full_path.rstrip("?")
            return make_response(renderer.document(page, live=live, session=session, path=request.path))

        def update(**arguments: str) -> Response:
            login.session()
            return _live(read(**arguments))

        routes.add_url_rule(rule, f"show {rule}", show, methods=["GET"])
        routes.add_url_rule(LIVE + rule, f"update {rule}", update, methods=["GET"])

    add_page("/", pages.overview)
    add_page("/metrics/<name>", pages.metric)
    add_page("/privacy", pages.privacy)
    add_page("/health", pages.health)

    @routes.get("/metrics/<name>/<any('estimates.csv', 'history.csv'):file>")
    def get_csv(name: str, file: str) -> Response:
        """The window shown, or all windows of the chart along time."""
        login.session()
        view = pages.metric_view(name)
        found = view.all_estimates if file == "history.csv" else view.window_estimates
        answer = make_response(estimates_csv(found))
        answer.content_type = "text/csv; charset=utf-8; header=present"
        answer.headers["Content-Disposition"] = f'attachment; filename="{name}-{file}"'
        return answer

    @routes.get("/static/<name>")
    def get_asset(name: str) -> Response:
        """A file that pages load. No session is needed: it is public."""
        if name not in assets:
            raise Problem("not-found", "there is no such file")
        return _asset_answer(assets[name])

    return routes


class _Pages:
    """The content of each page, at the time of the request."""

    def __init__(self, desk: Desk, renderer: Renderer) -> None:
        self._desk = desk
        self._renderer = renderer

    def overview(self) -> Page:
        _refuse_any_query()
        view = overview_view(self._desk)
        takes_reports = self._desk.service.settings.role == "all"
        endpoint = request.host_url.rstrip("/")
        main = self._renderer.fragment(
            "overview.html", view=view, endpoint=endpoint, takes_reports=takes_reports
        )
        return Page("Overview", main, said=view.said)

    def metric(self, name: str) -> Page:
        view = self.metric_view(name)
        main = self._renderer.fragment("metric.html", view=view, endpoint=request.host_url.rstrip("/"))
        return Page(name, main, view.charts, view.said)

    def metric_view(self, name: str) -> MetricView:
        query = MetricQuery.read(request.args)
        view = metric_view(self._desk, name, query, f"/metrics/{name}") if NAME.fullmatch(name) else None
        if view is None:
            raise Problem("unknown-metric", "neither the registry nor the store knows a metric of this name")
        return view

    def privacy(self) -> Page:
        _refuse_any_query()
        service = self._desk.service
        view = privacy_view(service.registry, service.clock().date())
        return Page("Privacy", self._renderer.fragment("privacy.html", view=view))

    def health(self) -> Page:
        _refuse_any_query()
        view = health_view(self._desk)
        return Page("Health", self._renderer.fragment("health.html", view=view), said=view.said)


def _refuse_any_query() -> None:
    if request.args:
        raise Problem("query-invalid", "this page takes no parameters")


class _Errors:
    """Every error as a page; of a live address as a problem, which the script reads."""

    def __init__(self, renderer: Renderer, login: Login) -> None:
        self._renderer = renderer
        self._login = login

    def __call__(self, error: Exception) -> Response:
        live = request.path.startswith(LIVE)
        if isinstance(error, SignedOut):
            if live:
                return Problem("unauthorized", "the session is over").response()
            return redirect(login_link(request), 303)  # type: ignore[return-value]
        problem = problem_of(error)
        if problem.type == "internal-error":
            _LOG.error("a page failed", exc_info=error)
        answer = problem.response()
        if live:
            return answer
        try:
            session = self._login.session()
        except (SignedOut, StoreUnavailable, StoreRefused):
            session = None
        main = self._renderer.fragment("error.html", problem=problem, status=answer.status_code)
        html = self._renderer.document(Page("Error", main), live="", session=session, path="")
        page = make_response(html, answer.status_code)
        if "Retry-After" in answer.headers:
            page.headers["Retry-After"] = answer.headers["Retry-After"]
        return page


def _live(page: Page) -> Response:
    """The page as JSON; 304 without a body where the asker has it already."""
    body = encode({"title": page.title, "main": page.main, "charts": page.charts, "said": page.said})
    tag = hashlib.sha256(body).hexdigest()[:32]
    answer = json_bytes(body, headers={"ETag": f'"{tag}"', "Cache-Control": "no-store"})
    return answer.make_conditional(request)  # type: ignore[return-value]  # it returns the answer itself


def _asset_answer(asset: Asset) -> Response:
    packed = request.accept_encodings.quality("gzip") > 0
    answer = make_response(asset.packed if packed else asset.body)
    answer.content_type = asset.mimetype
    if packed:
        answer.content_encoding = "gzip"
    answer.headers["Vary"] = "Accept-Encoding"
    answer.headers["Cache-Control"] = _FOR_EVER if request.args.get("v") == asset.tag else "no-cache"
    answer.set_etag(asset.tag + ("-gzip" if packed else ""))
    return answer.make_conditional(request)  # type: ignore[return-value]
