"""The OpenAPI document says what the application does: every route, every status, every answer."""

import copy
import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dither_protocol.registry import parse_registry
from dither_server.app import create_app
from dither_server.openapi.operations import OPERATIONS
from dither_server.problems import KINDS
from support.dashboard import Site, fill, running_site
from support.server import INGEST_KEY, OPERATOR_KEY, bearer
from support.server import settings as server_settings
from support.signing import SigningKey, signed
from support.store import running_store

CASES = 2_000
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
_SEED = 20_261_129
_CASES_OF_EACH = 44


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A live service with estimates of every kind, of several versions and windows."""
    with running_store() as valkey, running_site(tmp_path_factory.mktemp("site"), valkey) as found:
        fill(found)
        yield found


@pytest.fixture(scope="module")
def document(site: Site) -> dict[str, Any]:
    """The document as that service gives it."""
    found: dict[str, Any] = site.server.get("/v1/openapi.json", key=None).json()
    return found


def test_every_route_is_in_the_document_and_nothing_else(site: Site, tmp_path: Path) -> None:
    """By path and method, for each role a process may have; HEAD and OPTIONS come with every GET by themselves."""
    for role in ("all", "ingest", "operator"):
        app = create_app(server_settings(tmp_path, site.valkey.url, registry_text=_text(site), role=role))
        routes = {
            (re.sub(r"<([^>]+)>", r"{\1}", rule.rule), method.lower())
            for rule in app.url_map.iter_rules()
            if rule.rule.startswith("/v1/")
            for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        }
        described = app.test_client().get("/v1/openapi.json").json
        assert described is not None
        assert {
            (path, method) for path, methods in described["paths"].items() for method in methods
        } == routes
    assert OPERATIONS.keys() == create_paths(site, tmp_path)


def create_paths(site: Site, tmp_path: Path) -> set[str]:
    """The paths of a process of both sides."""
    app = create_app(server_settings(tmp_path, site.valkey.url, registry_text=_text(site)))
    found = app.test_client().get("/v1/openapi.json").json
    assert found is not None
    return set(found["paths"])


def _text(site: Site) -> str:
    return (site.server.log.parent / "registry.toml").read_text()


def test_examples_are_what_they_are_examples_of(document: dict[str, Any]) -> None:
    """Each parameter has one, and it fits its schema; so does that of each body and each problem."""
    components = {"components": document["components"]}
    checked = 0
    for methods in document["paths"].values():
        for operation in methods.values():
            contents = [operation.get("requestBody", {}).get("content", {})]
            contents += [answer.get("content", {}) for answer in operation["responses"].values()]
            medias = [media for content in contents for media in content.values() if "example" in media]
            for each in [*operation["parameters"], *medias]:
                jsonschema_rs.validate(each["schema"] | components, each["example"])
                checked += 1
    assert checked > 50


def test_every_type_of_problem_is_in_the_document(document: dict[str, Any]) -> None:
    """All but those of routes outside of it, and those of paths and methods that are not there."""
    said = {
        name
        for methods in document["paths"].values()
        for operation in methods.values()
        for answer in operation["responses"].values()
        for media in answer.get("content", {}).values()
        for part in media["schema"].get("allOf", ())
        for name in part.get("properties", {}).get("type", {}).get("enum", ())
    }
    assert KINDS.keys() - said == {"not-ready", "method-not-allowed"}


def test_real_answers_are_what_the_document_says(site: Site, document: dict[str, Any]) -> None:
    """Every GET with a 200 on data of every kind: random names rarely hit a metric."""
    components = {"components": document["components"]}
    metrics = [each["name"] for each in site.server.get("/v1/metrics").json()["metrics"]]
    queries = ["", "?limit=1", "?rollup=7", "?level=0.9", "?simultaneous=true", "?dimensions=*"]
    for path, methods in document["paths"].items():
        for name in metrics if "{name}" in path else [""]:
            for query in queries if path.endswith("/estimates") else [""]:
                if "get" in methods and path != "/v1/registry/signed":  # this one is not signed
                    answer = site.server.get(path.replace("{name}", name) + query)
                    assert answer.status_code == 200, answer.text
                    schema = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
                    jsonschema_rs.validate(schema | components, answer.json(), validate_formats=True)


def test_a_signed_registry_is_what_the_document_says(
    site: Site, document: dict[str, Any], tmp_path: Path
) -> None:
    """The envelope of a server that has one, and the problem of one that has none."""
    envelope = signed(parse_registry(_text(site)).document, 3, SigningKey()).decode()
    app = create_app(server_settings(tmp_path, site.valkey.url, registry_text=envelope))
    methods = document["paths"]["/v1/registry/signed"]["get"]["responses"]
    for client, status in ((app.test_client(), 200), (None, 404)):
        answer = (
            client.get("/v1/registry/signed") if client else site.server.get("/v1/registry/signed", key=None)
        )
        assert answer.status_code == status
        (media,) = methods[str(status)]["content"].values()
        found = answer.json if client else answer.json()
        jsonschema_rs.validate(media["schema"] | {"components": document["components"]}, found)


def _without_keys(document: dict[str, Any]) -> dict[str, Any]:
    """The same without a word about keys: the test presents the right one itself."""
    found = copy.deepcopy(document)
    del found["components"]["securitySchemes"]
    for methods in found["paths"].values():
        for operation in methods.values():
            del operation["security"]
    return found


def _narrowed(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The whole, and for each query parameter one with it alone: wrong ones beside it would hide its faults."""
    yield document
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            elsewhere = [each for each in operation["parameters"] if each["in"] != "query"]
            for parameter in operation["parameters"]:
                if parameter["in"] == "query":
                    alone = operation | {"parameters": [*elsewhere, parameter]}
                    yield document | {"paths": {path: {method: alone}}}


def _operations(document: dict[str, Any]) -> Iterator[Any]:
    config = schemathesis.Config.from_dict(
        {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}}
    )
    for some in _narrowed(_without_keys(document)):
        schema = schemathesis.openapi.from_dict(some, config=config)
        yield from (result.ok() for result in schema.get_all_operations())


def _strategies(operation: Any, names: list[str]) -> Iterator[tuple[st.SearchStrategy[Case], int]]:
    """Cases of an operation with how many to try: right and wrong ones, about metrics of any name and real ones."""
    if not (len(operation.query) or len(operation.path_parameters) or operation.body):
        yield operation.as_strategy(), 1  # there is nothing to vary, and nothing to get wrong
        return
    for mode in GenerationMode:
        if len(operation.query) != 1:
            yield operation.as_strategy(generation_mode=mode), _CASES_OF_EACH
        if len(operation.query):
            about = [{"name": name} for name in names] if len(operation.path_parameters) else [None]
            real = [operation.as_strategy(generation_mode=mode, path_parameters=each) for each in about]
            yield st.one_of(real), _CASES_OF_EACH


def test_the_whole_api_keeps_to_the_document(site: Site, document: dict[str, Any]) -> None:
    """2,000 requests, right and wrong ones: no 5xx, no status that is not documented, answers as described."""
    names = [each["name"] for each in site.server.get("/v1/metrics").json()["metrics"]]
    sent = 0

    def run(strategy: st.SearchStrategy[Case], cases: int, key: str, session: requests.Session) -> None:
        @seed(_SEED)
        @settings(
            max_examples=cases,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=strategy)
        def send(case: Case) -> None:
            nonlocal sent
            sent += 1
            case.call_and_validate(
                base_url=site.server.url, session=session, headers=bearer(key), checks=_CHECKS, timeout=60
            )

        send()

    with requests.Session() as session:
        for operation in _operations(document):
            key = INGEST_KEY if operation.path == "/v1/reports" else OPERATOR_KEY
            for strategy, cases in _strategies(operation, names):
                run(strategy, cases, key, session)
    assert sent >= CASES


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /v1/metrics?" + b"x" * 10_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET /v1/metrics HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 10_000 + b"\r\n\r\n", 431),
        (b"GET /v1/metrics HTTP/1.1\r\nHost: x\r\nBroken header\r\n\r\n", 400),
        (b"NOT HTTP\r\n\r\n", 400),
    ],
)
def test_what_never_reaches_a_route_is_a_problem_too(site: Site, sent: bytes, status: int) -> None:
    """A query of ten megabytes is refused without being read; the answer repeats nothing of it."""
    answer = _exchange(site.server.port, sent)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"application/problem+json" in head
    found = json.loads(body)
    assert (found["type"], found["status"], found["retryable"]) == ("request-refused", status, False)
    assert b"xxxx" not in body
    assert b"Broken" not in body


def _exchange(port: int, sent: bytes) -> bytes:
    """What comes back, even where the other side stops reading and ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        parts = []
        with suppress(OSError):  # it has heard enough, and ends the connection
            connection.sendall(sent)
        with suppress(OSError):  # reset after the answer: not all of it was read
            while part := connection.recv(65_536):
                parts.append(part)
        return b"".join(parts)
