"""Estimates over HTTP: pages, other levels, CSV, tags."""

import csv
import io
import json

import numpy as np
import pytest

from dither_estimator import estimate
from dither_estimator.plan import plan_document
from dither_estimator.publication import encode_document, estimate_document, value_rows, window_scope
from dither_protocol import shuffled_epsilon
from dither_protocol.storage import (
    companion_field,
    estimate_field,
    estimates_key,
    metric_key,
    published_key,
    published_member,
    versions_key,
)
from dither_protocol.windows import parse_window
from dither_server import statistics_plugin
from support.server import INGEST_KEY, OPERATOR_KEY, bearer, registry

DAYS = tuple(f"2126-11-{day}" for day in range(20, 29))
BROWSER = registry().metrics["browser"]
LINUX = (("os", "linux"),)
PATH = "/v1/metrics/browser/estimates"
GETS = ("/v1/openapi.json", "/v1/registry", "/v1/metrics", "/v1/metrics/browser", PATH, "/v1/metrics/browser/quality",
        "/v1/privacy", "/v1/ledger", "/v1/keys")  # fmt: skip


def _counters(day):
    number = int(day[-2:])
    return np.array([400 + number, 200, 200, 100, 100 - number]), 1_000


def _publish(store, *days, dimensions=None, changes=None):
    """Put the estimator's documents where the worker does."""
    with store.client() as redis:
        for day in days:
            window = parse_window("day", day)
            scope = window_scope(window, BROWSER.closes_at(window), final=True)
            document = {"revision": 1, "watermark": "2126-11-29T00:00:00Z"}
            document |= estimate_document(BROWSER, scope, dimensions, *_counters(day))
            field = estimate_field(dimensions)
            values = {field: encode_document(document | (changes or {})), companion_field(field): "1 0 1"}
            redis.hset(estimates_key("browser", 2, day), mapping=values)
            member = published_member(2, day)
            redis.zadd(published_key("browser"), {member: window.start.timestamp()})


def _get(client, path=PATH, key=OPERATOR_KEY, headers=None, **query):
    return client.get(path, query_string=query, headers=bearer(key) | (headers or {}))


def _labels(answer):
    (version,) = answer.json["versions"]
    return [each["window"]["label"] for each in version["estimates"]]


def test_pages_together_are_the_whole_and_stay_so_while_windows_appear(client, store):
    """Each window is on one page, in order, with all its cells; one that appears meanwhile moves no other."""
    _publish(store, *DAYS[1:6])
    _publish(store, DAYS[2], dimensions=LINUX)
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        answer = _get(client, limit="2", **({"cursor": cursor} if cursor else {}))
        found += _labels(answer)
        cursor = answer.json["next"]
        assert ("Link" in answer.headers) is (cursor is not None)
        pages += 1
        if pages == 1:
            _publish(store, DAYS[0], *DAYS[6:])  # one before the page that was read, and later ones
    assert found == [DAYS[1], DAYS[2], DAYS[2], *DAYS[3:]]
    assert (pages, _labels(_get(client))) == (4, [DAYS[0], *found])


def test_a_link_leads_to_the_next_page(client, store):
    """For CSV, which has no other place for it."""
    _publish(store, *DAYS)
    answer = _get(client, limit="4", dimensions="*", headers={"Accept": "text/csv"})
    link = answer.headers["Link"].removeprefix("<").partition(">")[0]
    following = client.get(PATH + link, headers=bearer(OPERATOR_KEY))
    assert _labels(following) == list(DAYS[4:8])


@pytest.mark.parametrize("simultaneous", ["false", "true"])
@pytest.mark.parametrize("level", ["0.8", "0.95", "0.999"])
def test_another_level_gives_the_estimators_numbers(client, store, level, simultaneous):
    """Equal to the last digit, in JSON and CSV; what the estimate is about stays."""
    _publish(store, DAYS[0])
    query = {"level": level, "simultaneous": simultaneous}
    (document,) = _get(client, **query).json["versions"][0]["estimates"]
    counters, n = _counters(DAYS[0])
    truth = estimate(BROWSER.mechanism, counters, n, float(level), simultaneous=simultaneous == "true")
    assert document["values"] == value_rows(BROWSER.labels, truth)
    assert (document["level"], document["simultaneous"]) == (float(level), simultaneous == "true")
    assert (document["n"], document["revision"], document["window"]["label"]) == (n, 1, DAYS[0])
    rows = list(csv.DictReader(io.StringIO(_get(client, headers={"Accept": "text/csv"}, **query).text)))
    for row, value in zip(rows, document["values"], strict=True):
        assert [float(row[name]) for name in ("lower", "upper")] == value["interval"]
        assert row["interval_method"] == value["interval_method"]
        assert (float(row["level"]), row["simultaneous"]) == (float(level), str(simultaneous == "true"))


def test_csv_has_the_numbers_of_json_with_all_they_need(client, store):
    """One row for each value, and beside it n, error, interval, method, level, target, mechanism and the rest (C3)."""
    _publish(store, *DAYS[:2])
    _publish(store, DAYS[0], dimensions=LINUX)
    answer = _get(client, headers={"Accept": "text/csv;q=0.9, application/json;q=0.5"})
    assert answer.content_type == "text/csv; charset=utf-8; header=present"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    documents = _get(client).json["versions"][0]["estimates"]
    flat = [(document, value) for document in documents for value in document["values"]]
    for row, (document, value) in zip(rows, flat, strict=True):
        assert (row["value"], row["window"]) == (value["value"], document["window"]["label"])
        assert (float(row["estimate"]), float(row["std_error"])) == (value["estimate"], value["std_error"])
        assert [float(row["lower"]), float(row["upper"])] == value["interval"]
        assert (float(row["norm_sub"]), row["present"]) == (value["norm_sub"], str(value["present"]))
        assert (row["n"], row["level"], row["target"]) == ("1000", "0.95", "population")
        assert (row["mechanism"], row["epsilon"], row["versions"]) == ("grr", "1.0", "2")
        assert (row["revision"], row["status"], row["interval_method"]) == ("1", "final", "wilson")
        assert row["watermark"].startswith("2126-11-29T00:00:00")
    assert {row["dimensions"] for row in rows} == {"*", "os=linux"}


def test_an_estimate_without_counts_keeps_its_published_level(client, store):
    """One that an earlier estimator published: at its level it is shown, at others refused, and nothing is guessed."""
    _publish(store, DAYS[0])
    _publish(store, DAYS[1], changes={"values": [{"value": "chrome", "estimate": 0.5}]})
    assert _get(client).status_code == 200
    answer = _get(client, level="0.9")
    assert (answer.status_code, answer.json["type"]) == (409, "level-unavailable")


def test_without_the_estimator_other_levels_are_not_there(client, store, monkeypatch):
    """Where its package is not beside the server: 501 and words, while published numbers are shown as ever."""
    _publish(store, DAYS[0])
    monkeypatch.setattr(statistics_plugin, "entry_points", lambda group: [])
    statistics_plugin.statistics.cache_clear()
    for answer in (
        _get(client, level="0.9"),
        client.post("/v1/plans", json={"epsilon": 1, "values": 4}, headers=bearer(OPERATOR_KEY)),
    ):
        assert (answer.status_code, answer.json["type"]) == (501, "statistics-not-installed")
    assert _get(client, level="0.95").status_code == 200


@pytest.mark.parametrize("path", GETS)
def test_what_is_known_already_is_not_sent_again(client, store, path):
    """Every GET has an ETag; with it the answer is 304 without a body, until something changes."""
    first = _get(client, path)
    tag = first.headers["ETag"]
    again = _get(client, path, headers={"If-None-Match": tag})
    assert (again.status_code, again.data, again.headers["ETag"]) == (304, b"", tag)
    assert "no-store" not in first.headers["Cache-Control"]
    if path in (PATH, "/v1/metrics/browser/quality"):
        _publish(store, DAYS[0])
        assert _get(client, path, headers={"If-None-Match": tag}).status_code == 200


def test_the_tag_of_the_ledger_is_about_its_numbers_alone(client, clock):
    """It says the time of reading, which alone is no news."""
    tag = _get(client, "/v1/ledger").headers["ETag"]
    assert tag.startswith("W/")
    clock.now = clock.now.replace(minute=30)
    assert _get(client, "/v1/ledger", headers={"If-None-Match": tag}).status_code == 304
    client.post(
        "/v1/reports", json={"batch": "A" * 22, "until": "2126-11-30", "reports": [{}]}, headers=bearer()
    )
    assert _get(client, "/v1/ledger", headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    ("dimensions", "words"),
    [
        ("colour=red", "no dimension 'colour'"),
        ("os=linux,colour=red", "no dimension 'colour'"),
        ("os=beos", "'os' has no such value"),
        ("", "every dimension"),
    ],
)
def test_unknown_dimensions_are_named(client, dimensions, words):
    """Where nothing could ever be found, an empty answer would mislead."""
    answer = _get(client, dimensions=dimensions)
    assert (answer.status_code, answer.json["field"]) == (400, "dimensions")
    assert words in answer.json["detail"]
    hostile = _get(client, dimensions="<script>=1")
    assert hostile.status_code == 400
    assert "script" not in hostile.text


def test_dimensions_of_an_earlier_version_are_known(client, store):
    """They have estimates, whatever the registry says now."""
    with store.client() as redis:
        definition = redis.get(metric_key("browser", 2)).replace(b'"linux"', b'"beos"')
        redis.set(metric_key("browser", 1), definition)
        assert _get(client, dimensions="os=beos").status_code == 400
        redis.sadd(versions_key("browser"), 1)
    assert _get(client, dimensions="os=beos").status_code == 200


@pytest.mark.parametrize(
    "path", ["/v1/metrics", "/v1/privacy", PATH, "/v1/metrics/browser/quality", "/v1/ledger"]
)
def test_a_parameter_is_known_and_given_once(client, path):
    """Of two that contradict each other none is chosen."""
    assert client.get(f"{path}?nope=1", headers=bearer(OPERATOR_KEY)).json["field"] == "nope"
    answer = client.get(f"{path}?from=2126-11-01&from=2126-11-02", headers=bearer(OPERATOR_KEY))
    assert (answer.status_code, answer.json["type"]) == (400, "query-invalid")


def test_quality_says_how_far_to_trust(client, store):
    """Errors expected and published, cells that are suppressed, how far fakes reach, what became of the reports."""
    _publish(store, *DAYS[:3])
    _publish(store, DAYS[0], dimensions=LINUX)
    _publish(store, DAYS[0], dimensions=(("os", "macos"),), changes={"values": [], "status": "suppressed"})
    answer = _get(client, "/v1/metrics/browser/quality", limit="2").json
    oracle = BROWSER.mechanism
    (version,) = answer["versions"]
    assert version["fakes"] == {"share": 0.01, "margin": 0.01 * max(1 - oracle.q, oracle.p) / oracle.gap}
    first, second = answer["windows"]
    assert first["cells"] == {"published": 1, "suppressed": 1, "suppressed_share": 0.5}
    assert second["cells"] == {"published": 1, "suppressed": 0, "suppressed_share": 0.0}
    counters, n = _counters(DAYS[0])
    truth = estimate(oracle, counters, n)
    assert first["rmse"] == pytest.approx(np.sqrt((truth.std_error**2).mean()))
    assert first["half_width"]["largest"] == pytest.approx((truth.upper - truth.lower).max() / 2)
    assert first["expected_rmse"] == pytest.approx(np.sqrt(oracle.n_variance(1 / oracle.d) / n))
    assert first["support_total"] == {"total": 1_000, "expected": 1_000.0, "std_dev": 0.0, "flagged": False}
    bound = shuffled_epsilon(oracle.epsilon, n // 1_000 * 1_000, 1e-8)
    assert 1_000 <= n < 10_000
    assert first["shuffled"] == {
        "epsilon": bound.epsilon,
        "delta": bound.delta,
        "assumption": bound.assumption,
    }
    last = _get(client, "/v1/metrics/browser/quality", limit="2", cursor=answer["next"]).json
    assert [each["window"]["label"] for each in last["windows"]] == [DAYS[2]]


def test_quality_counts_what_was_refused(client):
    """Also in a window without an estimate."""
    reports = [{"metric": "browser", "version": 2, "params": "00000000", "window": "2126-11-29", "data": 0}]
    client.post(
        "/v1/reports", json={"batch": "A" * 22, "until": "2126-11-30", "reports": reports}, headers=bearer()
    )
    (account,) = _get(client, "/v1/metrics/browser/quality").json["accounts"]
    assert (account["window"], account["rejected"]) == ("2126-11-29", {"params-mismatch": 1})
    assert account["rejected_share"] == 1.0


def test_privacy_adds_up_what_a_device_spends(client):
    """By metric and together, per day and for life, beside the limits; hourly ones count for every hour."""
    answer = _get(client, "/v1/privacy").json
    by_name = {each["metric"]: each for each in answer["metrics"]}
    assert by_name["toolbar"]["reports_per_day"] == 24
    assert by_name["toolbar"]["epsilon_per_day"] == 48.0
    assert by_name["browser"]["combinations"] == 3
    assert answer["per_day"] == {"spent": 1.0 + 3.0 + 48.0 + 1.0, "limit": None, "over": False}
    assert answer["lifetime"]["spent"] is None
    assert by_name["retired"]["epsilon_per_day"] == 0.0  # registry check, without a date, counts it
    assert registry().worst_case_per_day() == 54.0


def test_privacy_says_what_a_device_spends_in_every_span(client):
    """Day, week, year, life, by metric and together; the plain sum has a name, and no end is null."""
    answer = _get(client, "/v1/privacy").json
    assert answer["first_day"] == "2126-11-29"  # a Friday
    spans = {each["metric"]: each["spans"] for each in answer["metrics"]}
    year = {"dark_mode": 366, "browser": 366 * 3, "toolbar": 366 * 24, "retired": 0, "first_use": 1}
    assert {name: by["year"]["reports"] for name, by in spans.items()} == year
    assert spans["toolbar"]["week"]["epsilon"] == 24 * 7 * 2.0
    assert spans["toolbar"]["life"] == {"reports": None, "epsilon": None, "bounds": []}
    together = answer["spans"]["week"]
    assert (together["reports"], together["epsilon"]) == (7 + 21 + 168 + 1, 7 + 21 + 336 + 1)
    assert together["bounds"][0]["name"] == "basic"
    assert (together["limit"], together["over"], together["at_most"]) == (None, False, 365.0)


def test_metrics_name_their_versions(client):
    """The current one is marked."""
    (version,) = _get(client, "/v1/metrics/browser").json["versions"]
    assert (version["version"], version["current"], version["params"]) == (2, True, BROWSER.params_hash)


def _plan(client, body, **headers):
    given = {"Content-Type": "application/json"} | bearer(OPERATOR_KEY) | headers
    return client.post("/v1/plans", data=body if isinstance(body, bytes) else json.dumps(body), headers=given)


def test_a_plan_is_what_the_estimator_plans(client):
    """Of numbers, or of a metric of the registry."""
    answer = _plan(client, {"metric": "browser", "reports": [1_000, 50_000], "margin": 0.02, "level": 0.9})
    assert answer.json == {"metric": "browser"} | plan_document(BROWSER.mechanism, [1_000, 50_000], 0.02, 0.9)
    numbers = {"mechanism": "grr", "epsilon": 1, "values": 5, "reports": [1_000], "level": 0.9}
    same = _plan(client, numbers).json
    assert (same["metric"], same["plans"]) == (None, answer.json["plans"][:1])


@pytest.mark.parametrize(
    ("body", "status", "type_", "field"),
    [
        (b"{", 400, "malformed-body", "body"),
        (b"[]", 400, "malformed-body", "body"),
        (b"[" * 5_000, 400, "malformed-body", "body"),
        ({"epsilon": "1", "values": 4}, 400, "malformed-body", "epsilon"),
        ({"epsilon": 0, "values": 4}, 400, "malformed-body", "epsilon"),
        ({"epsilon": 1, "values": 10**9}, 400, "malformed-body", "values"),
        ({"epsilon": 1, "values": 4, "reports": []}, 400, "malformed-body", "reports"),
        ({"epsilon": 1, "values": 4, "reports": [0]}, 400, "malformed-body", "reports"),
        ({"epsilon": 1, "values": 4, "reports": [True]}, 400, "malformed-body", "reports"),
        ({"epsilon": 1, "values": 4, "level": 0.5}, 400, "malformed-body", "level"),
        ({"epsilon": 1, "values": 4, "margin": 1}, 400, "malformed-body", "margin"),
        (b" " * 20_000, 413, "body-too-large", "body"),
        ({"values": 4}, 422, "plan-invalid", "epsilon"),
        ({"epsilon": 1}, 422, "plan-invalid", "values"),
        ({"metric": "nope"}, 422, "plan-invalid", "metric"),
        ({"metric": "browser", "epsilon": 1}, 422, "plan-invalid", "metric"),
        ({"epsilon": 1, "values": 4, "mechanism": "laplace"}, 422, "plan-invalid", "mechanism"),
        ({"epsilon": 0.001, "values": 4, "margin": 1e-9}, 422, "plan-invalid", "margin"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(client, body, status, type_, field):
    """Each wrong member is named; nothing of the body is repeated."""
    answer = _plan(client, body)
    assert (answer.status_code, answer.json["type"], answer.json["field"]) == (status, type_, field)
    assert "laplace" not in answer.text


def test_plans_are_for_those_who_read(client):
    """Not for the key in the app, and in JSON alone."""
    body = {"epsilon": 1, "values": 4}
    assert _plan(client, body, **bearer(INGEST_KEY)).status_code == 403
    assert _plan(client, body, **{"Content-Type": "text/plain"}).status_code == 415
    assert _plan(client, body, **{"Content-Encoding": "gzip"}).status_code == 415
