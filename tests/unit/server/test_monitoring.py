"""The scrape: labels from closed sets only, for operators alone, and an answer whatever the store does."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dither_protocol.errors import Rejection
from dither_protocol.storage import META_KEY, METRICS_KEY, PartitionKeys, partition_tags
from dither_server.alarms import METRIC_KINDS, SERVICE_KINDS
from dither_server.app import create_app
from support.server import INGEST_KEY, NOW, OPERATOR_KEY, Clock, batch, bearer, registry, report, settings
from support.worker_store import new_worker

KEYS = PartitionKeys(partition_tags(8)[0])
OUTCOMES = ("received", "accepted", "counted", "duplicate", "dead", "rejected")


def _scrape(client):
    answer = client.get("/metrics", headers=bearer(OPERATOR_KEY))
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("key", "status"), [(None, 401), ("guess", 401), (INGEST_KEY, 403), (OPERATOR_KEY, 200)]
)
@pytest.mark.parametrize("path", ["/metrics", "/v1/ledger"])
def test_only_operators_see_the_numbers(client, path, key, status):
    """How the numbers of a small metric grow tells when its reports came."""
    assert client.get(path, headers=bearer(key) if key else {}).status_code == status


def test_every_metric_of_the_registry_has_its_series_from_the_start(client):
    """An alert on a series that is not there yet would never fire, and a counter that begins above 0 shows no rise."""
    found = _scrape(client)
    assert found["dither_store_up",] == 1
    for metric in (*registry().metrics, "_unknown"):
        assert all(found["dither_reports_total", metric, outcome] == 0 for outcome in OUTCOMES)
        assert all(found["dither_rejected_reports_total", metric, reason] == 0 for reason in Rejection)
        assert found["dither_in_flight_reports", metric] == 0
        assert found["dither_conservation_imbalance_reports", metric] == 0
    for name in ("stream_backlog_bytes", "oldest_uncounted_seconds", "dead_entries"):
        of_partitions = {each[1]: n for each, n in found.items() if each[0] == f"dither_{name}"}
        assert of_partitions == dict.fromkeys(map(str, range(8)), 0)
    for name in ("conservation_unsettled_partitions", "unreadable_keys", "workers", "publisher_up"):
        assert found[f"dither_{name}",] == 0
    assert found["dither_stream_high_water_bytes",] > 0
    assert ("dither_build_info", "0.1.0") in found


def test_reports_show_by_metric_and_outcome(client):
    """What was sent is what is scraped; another process would say the same, since the store says it."""
    client.post("/v1/reports", json=batch(report(), report(data=7), {}), headers=bearer())
    found = _scrape(client)
    assert found["dither_reports_total", "dark_mode", "received"] == 2
    assert found["dither_reports_total", "dark_mode", "accepted"] == 1
    assert found["dither_reports_total", "dark_mode", "rejected"] == 1
    assert found["dither_rejected_reports_total", "dark_mode", "payload-invalid"] == 1
    assert found["dither_rejected_reports_total", "_unknown", "malformed-report"] == 1
    assert found["dither_in_flight_reports", "dark_mode"] == 1
    assert sum(n for name, n in found.items() if name[0] == "dither_stream_backlog_bytes") > 0
    assert max(n for name, n in found.items() if name[0] == "dither_oldest_uncounted_seconds") > 0


def test_totals_do_not_fall_when_a_window_is_forgotten(client, store):
    """The counters have it all, and `rate()` sees no restart; of its windows the ledger shows those that are kept."""
    sent = batch(report(), report(data=7))
    for _ in range(2):
        client.post("/v1/reports", json=sent, headers=bearer())
    new_worker(store).count()
    before = _scrape(client)
    assert [before["dither_reports_total", "dark_mode", outcome] for outcome in OUTCOMES] == [
        4,
        1,
        1,
        2,
        0,
        1,
    ]
    with store.client() as redis:
        for keys in map(PartitionKeys, partition_tags(8)):
            redis.delete(keys.outcomes, keys.outcome("dark_mode", "2126-11-29"))
    after = _scrape(client)
    ledger = client.get("/v1/ledger?metric=dark_mode", headers=bearer(OPERATOR_KEY)).json
    assert (ledger["metrics"][0]["received"], ledger["balanced"]) == (0, True)
    assert client.get("/v1/ledger", headers=bearer(OPERATOR_KEY)).json["balanced"]
    assert {name: n for name, n in after.items() if name[0].endswith("_total")} == {
        name: n for name, n in before.items() if name[0].endswith("_total")
    }


def test_a_damaged_sum_is_left_out_and_said_to_be(client, store):
    """A sum without a part would fall, and look like a restart; that of other metrics stands."""
    client.post("/v1/reports", json=batch(report(), report("browser", 2)), headers=bearer())
    with store.client() as redis:
        redis.delete(KEYS.ever("dark_mode"))
        redis.set(KEYS.ever("dark_mode"), "no hash")
        redis.hset(KEYS.ever("toolbar"), "received", "many")
    found = _scrape(client)
    assert not [name for name in found if name[0].endswith("_total") and name[1] in ("dark_mode", "toolbar")]
    assert found["dither_reports_total", "browser", "received"] == 1
    assert found["dither_unreadable_keys",] == 2
    assert client.post("/v1/reports", json=batch(), headers=bearer()).status_code == 202


def test_labels_are_of_closed_sets(client, store):
    """Accounts of no known metric and a reason that this version has not share one label each."""
    with store.client() as redis:
        redis.sadd(METRICS_KEY, "left")
        redis.hset(KEYS.ever("left"), mapping={"received": 5, "rejected:new-reason": 4})
        redis.hset(KEYS.ever("never_announced"), mapping={"received": 7})
        for metric in ("left", 'evil"} 1\nforged{x="', "later"):
            redis.sadd(KEYS.outcomes, f"{metric}:2126-11-29")
            redis.hset(KEYS.outcome(metric, "2126-11-29"), mapping={"received": 3, "rejected:new-reason": 2})
    found = _scrape(client)
    known = {*registry().metrics, "_unknown", "left"}
    assert {name[1] for name in found if name[0].endswith("_total")} == known
    assert {name[1] for name in found if name[0].endswith("reports")} == known | {"_other"}
    assert {name[2] for name in found if name[0] == "dither_rejected_reports_total"} == {*Rejection, "_other"}
    assert found["dither_reports_total", "left", "received"] == 5
    assert found["dither_rejected_reports_total", "left", "_other"] == 4
    assert found["dither_conservation_imbalance_reports", "left"] == 1
    assert found["dither_conservation_imbalance_reports", "_other"] == 2
    assert found["dither_conservation_imbalance_reports", "browser"] == 0


def test_alarms_ring_as_on_the_pages(client, clock):
    """Every alarm has its series, at 0 where it does not ring."""
    client.post("/v1/reports", json=batch(report(), report(data=7)), headers=bearer())
    found = {name[1:]: n for name, n in _scrape(client).items() if name[0] == "dither_alarm"}
    assert set(found) == {(kind, "") for kind in SERVICE_KINDS} | {
        (kind, metric) for kind in METRIC_KINDS for metric in registry().metrics
    }
    ringing = {("no-worker", ""), ("rejected", "dark_mode"), ("expired", "retired")}
    assert {alarm for alarm, n in found.items() if n} == ringing
    page = client.get("/v1/status", headers=bearer(OPERATOR_KEY)).json
    assert {(alarm["kind"], alarm["metric"] or "") for alarm in page["alarms"]} == ringing


def test_what_is_published_shows_by_metric(store, tmp_path):
    """Of the last window: how many reports, when it began, up to when everything was counted."""
    client = create_app(settings(tmp_path, store.url), clock=Clock(NOW)).test_client()
    for window, reports in (("2126-11-28", 3), ("2126-11-29", 2)):
        client.post("/v1/reports", json=batch(*[report(window=window)] * reports), headers=bearer())
    worker = new_worker(store)
    while worker.tick():
        pass
    found = _scrape(client)
    assert found["dither_estimate_reports", "dark_mode"] == 2
    began = NOW.replace(hour=0, minute=0, second=0).timestamp()
    assert found["dither_estimate_window_start_timestamp_seconds", "dark_mode"] == began
    assert found["dither_estimate_watermark_timestamp_seconds", "dark_mode"] > 1e9
    assert ("dither_estimate_reports", "browser") not in found
    assert found["dither_publisher_up",] == 1
    assert found["dither_alarm", "suppressed", "dark_mode"] == 1


def test_the_registry_shows_what_a_device_can_spend(store, tmp_path):
    """By metric for one report, a day and life; over all metrics, beside the limits."""
    text = """
schema = 1
project = "p"
[privacy]
max_epsilon_per_day = 8.0
max_epsilon_lifetime = 20.0
[metrics.hourly]
version = 1
type = "boolean"
description = "Asked each hour"
epsilon = 0.5
mechanism = "rr"
period = "hour"
[metrics.daily]
version = 1
type = "boolean"
description = "Asked each day"
epsilon = 1.5
mechanism = "rr"
expires = 2126-12-01
"""
    client = create_app(settings(tmp_path, store.url, registry_text=text), clock=Clock(NOW)).test_client()
    found = _scrape(client)
    spent = {name[1:]: n for name, n in found.items() if name[0] == "dither_privacy_epsilon"}
    assert spent == {
        ("hourly", "report"): 0.5,
        ("hourly", "day"): 12.0,
        ("daily", "report"): 1.5,
        ("daily", "day"): 1.5,
        ("daily", "lifetime"): 4.5,
    }
    assert found["dither_privacy_worst_case_epsilon", "day"] == 13.5
    assert ("dither_privacy_worst_case_epsilon", "lifetime") not in found  # one metric never expires
    limits = {name[1]: n for name, n in found.items() if name[0] == "dither_privacy_limit_epsilon"}
    assert limits == {"day": 8.0, "lifetime": 20.0}
    ends = NOW.replace(month=12, day=2, hour=0, minute=0, second=0).timestamp()
    assert found["dither_metric_expires_timestamp_seconds", "daily"] == ends


def _of_the_store(client):
    """What a scrape says of the store."""
    of_registry = ("dither_build_info", "dither_privacy_", "dither_metric_expires_")
    return {name: n for name, n in _scrape(client).items() if not name[0].startswith(of_registry)}


def test_a_store_that_is_not_there_is_a_scrape_that_says_so(tmp_path):
    """200 with few series: the scrape itself has worked, and an alert needs them."""
    client = create_app(settings(tmp_path, f"unix://{tmp_path}/none.sock")).test_client()
    assert _of_the_store(client) == {("dither_store_up",): 0, ("dither_alarm", "not-ready", ""): 1}
    assert client.get("/v1/ledger", headers=bearer(OPERATOR_KEY)).status_code == 503


def test_a_store_that_is_not_fit_is_not_up(store, tmp_path):
    """One of another layout comes to stand in the place of a store that was away: it is not measured."""
    place = tmp_path / "s.sock"
    client = create_app(settings(tmp_path, f"unix://{place}")).test_client()
    with store.client() as redis:
        redis.hset(META_KEY, "layout", "99")
    place.symlink_to(store.folder / "s.sock")
    assert _of_the_store(client) == {("dither_store_up",): 0, ("dither_alarm", "not-ready", ""): 1}
    assert client.get("/v1/ledger", headers=bearer(OPERATOR_KEY)).status_code == 503
