"""The reading side: the registry for everyone, metrics and estimates for operators."""

import pytest

from dither_protocol.registry import registry_from_document
from dither_protocol.storage import (
    COMBINED,
    companion_field,
    estimates_key,
    published_key,
    published_member,
    rollups_key,
)
from dither_protocol.windows import parse_window
from dither_server.app import create_app
from support.server import INGEST_KEY, OPERATOR_KEY, REGISTRY, bearer, registry, settings

DAY = "2126-11-29"


def _publish(redis, metric, version, field, text, *, day=DAY):
    """Put a document where the worker does, with its companion and in the index."""
    redis.hset(estimates_key(metric, version, day), mapping={field: text, companion_field(field): "5 0 1"})
    start = parse_window("day", day).start.timestamp()
    redis.zadd(published_key(metric), {published_member(version, day): start})


def _get(client, path, key=OPERATOR_KEY, **headers):
    return client.get(path, headers=(bearer(key) if key else {}) | headers)


def test_the_registry_is_public_and_reads_back_as_itself(client):
    """What a device fetches gives each metric the hash that the server checks."""
    answer = _get(client, "/v1/registry", key=None)
    assert answer.status_code == 200
    found = registry_from_document(answer.json)
    assert {m.name: m.params_hash for m in found} == {m.name: m.params_hash for m in registry()}
    assert answer.headers["Cache-Control"] == "public, max-age=300"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_an_unchanged_registry_is_not_sent_again(client):
    """With the ETag of the last answer the next one is 304 without a body; with another one it is whole."""
    tag = _get(client, "/v1/registry").headers["ETag"]
    answer = _get(client, "/v1/registry", **{"If-None-Match": tag})
    assert (answer.status_code, answer.data, answer.headers["ETag"]) == (304, b"", tag)
    assert _get(client, "/v1/registry", **{"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/metrics/browser", "/v1/metrics/browser/estimates"])
@pytest.mark.parametrize(
    ("key", "status"), [(None, 401), ("guess", 401), (INGEST_KEY, 403), (OPERATOR_KEY, 200)]
)
def test_only_operators_read(client, path, key, status):
    """The key that is in every app reads nothing."""
    assert _get(client, path, key).status_code == status


def test_metrics_are_described_with_all_that_their_estimates_depend_on(client):
    """Mechanism, epsilon, p, q, domain and dimensions are shown for each metric, in the order of the file."""
    answer = _get(client, "/v1/metrics").json
    assert answer["project"] == "example-editor"
    assert [m["name"] for m in answer["metrics"]] == list(registry().metrics)
    found = _get(client, "/v1/metrics/browser").json
    assert found == answer["metrics"][1]
    oracle = registry().metrics["browser"].mechanism
    assert found["mechanism"] == {"name": "grr", "epsilon": 1.0, "d": 5, "p": oracle.p, "q": oracle.q}
    assert (found["labels"][0], found["dimensions"]) == ("chrome", {"os": ["linux", "macos", "windows"]})
    assert (found["expires"], answer["metrics"][3]["expires"]) == (None, "2126-11-20")


@pytest.mark.parametrize(
    "path", ["/v1/metrics/nope", "/v1/metrics/nope/estimates", "/v1/metrics/x:1/estimates"]
)
def test_an_unknown_metric_is_not_found(client, path):
    """A metric that nobody knows is a 404 of its own type, also where its name could not be one."""
    answer = _get(client, path)
    assert (answer.status_code, answer.json["type"]) == (404, "unknown-metric")


def test_estimates_come_as_published_with_versions_side_by_side(store, tmp_path):
    """Both versions of a metric are shown, each with its own documents, unchanged."""
    head = "[metrics.dark_mode]\nversion = "
    create_app(settings(tmp_path, store.url))
    newer = REGISTRY.replace(f"{head}1", f"{head}2")
    client = create_app(settings(tmp_path, store.url, registry_text=newer)).test_client()
    with store.client() as redis:
        for version in (1, 2):
            _publish(redis, "dark_mode", version, "", f'{{"n":{version}}}')
    answer = _get(client, "/v1/metrics/dark_mode/estimates").json
    assert answer["metric"] == "dark_mode"
    assert [(v["version"], v["estimates"]) for v in answer["versions"]] == [(1, [{"n": 1}]), (2, [{"n": 2}])]
    assert answer["versions"][0]["params"] == registry().metrics["dark_mode"].params_hash
    assert (answer["combined"], answer["combination"]["rule"]) == ([], "weighted-by-n")
    later = _get(client, "/v1/metrics/dark_mode/estimates?from=2126-11-30").json
    assert [v["estimates"] for v in later["versions"]] == [[], []]
    assert later["combination"]["rule"] == "single-version"


def test_combined_estimates_come_beside_the_versions(store, tmp_path):
    """What the worker published over both versions is passed on; with other labels it is withheld, and said why."""
    head = "[metrics.browser]\nversion = "
    create_app(settings(tmp_path, store.url))
    texts = {
        "weighted-by-n": REGISTRY.replace(f"{head}2", f"{head}3"),
        "side-by-side": REGISTRY.replace(f"{head}2", f"{head}4").replace('"edge", ', ""),
    }
    for version, (rule, text) in enumerate(texts.items(), start=3):
        client = create_app(settings(tmp_path, store.url, registry_text=text)).test_client()
        with store.client() as redis:
            for each in (2, version):
                _publish(redis, "browser", each, "*", f'{{"n":{each}}}')
            _publish(redis, "browser", COMBINED, "*", '{"n":5}')
        answer = _get(client, "/v1/metrics/browser/estimates").json
        assert answer["combination"]["rule"] == rule
        assert answer["combined"] == ([{"n": 5}] if rule == "weighted-by-n" else [])
    assert answer["combination"]["reason"] == "the versions have different labels"
    assert [v["estimates"] for v in answer["versions"]] == [[{"n": 2}], [{"n": 3}], [{"n": 4}]]


def test_rollups_are_asked_for_by_their_number_of_windows(store, tmp_path):
    """They come in place of the estimates of single windows; by their last window, over all dimensions."""
    client = create_app(settings(tmp_path, store.url)).test_client()
    with store.client() as redis:
        for day in ("2126-11-28", DAY):
            _publish(redis, "dark_mode", 1, "*", '{"n":1}', day=day)
            redis.hset(
                rollups_key("dark_mode", 1, 7), mapping={day: f'{{"last":"{day}"}}', f"n|{day}": "1 1 1"}
            )
    path = "/v1/metrics/dark_mode/estimates?rollup=7"
    assert _get(client, path).json["versions"][0]["estimates"] == [{"last": "2126-11-28"}, {"last": DAY}]
    ranged = _get(client, f"{path}&from={DAY}&to={DAY}&dimensions=*").json
    assert ranged["versions"][0]["estimates"] == [{"last": DAY}]
    assert _get(client, path.replace("7", "28")).json["versions"][0]["estimates"] == []


def test_a_metric_that_left_the_registry_is_still_read(store, tmp_path):
    """Results outlive the question."""
    create_app(settings(tmp_path, store.url))
    without = REGISTRY.replace("[metrics.dark_mode]", "[metrics.light_mode]")
    client = create_app(settings(tmp_path, store.url, registry_text=without)).test_client()
    assert _get(client, "/v1/metrics/dark_mode").status_code == 404
    assert _get(client, "/v1/metrics/dark_mode/estimates").status_code == 200


def test_a_wrong_query_is_refused(client):
    """A parameter that is not understood is an error and not ignored."""
    for query, field in (
        ("from=soon", "from"),
        ("since=2126-11-29", "since"),
        ("from=2126-11-30&to=2126-11-29", "from"),
        ("rollup=14", "rollup"),
        ("rollup=7&dimensions=os=linux", "dimensions"),
    ):
        answer = _get(client, f"/v1/metrics/browser/estimates?{query}")
        assert (answer.status_code, answer.json["type"], answer.json["field"]) == (
            400,
            "query-invalid",
            field,
        )
