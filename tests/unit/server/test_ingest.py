"""POST /v1/reports against a real store: what is kept, what is answered, and that refusals leave no trace."""

import gzip
import json
import threading
import time
from datetime import timedelta

import pytest

from dither_protocol.storage import PartitionKeys, decode_entry, partition_of, partition_tags
from dither_protocol.wire import MAX_BODY_BYTES
from dither_server import ingest
from dither_server.app import create_app
from dither_server.bodies import inflate, turn
from support.server import INGEST_KEY, NOW, OPERATOR_KEY, TODAY, batch, bearer, report, settings

ID = bytes(range(16))
KEYS = PartitionKeys(partition_tags(8)[partition_of(ID, 8)])


def _post(client, document, key=INGEST_KEY, **headers):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    sent = {"Content-Type": "application/json"} | (bearer(key) if key else {})
    return client.post(
        "/v1/reports", data=body, headers=sent | {k.replace("_", "-"): v for k, v in headers.items()}
    )


def _outcome(store, metric="dark_mode", window="2126-11-29"):
    with store.client(decode=True) as redis:
        return redis.hgetall(KEYS.outcome(metric, window))


def test_a_batch_is_kept_as_an_entry_with_its_id_and_its_accounts(client, store):
    """After a 202 the stream, the backlog, the id and the outcomes agree."""
    answer = _post(client, batch(report(data=1), report(data=0), batch_id=ID))
    assert (answer.status_code, answer.json) == (202, {"accepted": 2, "duplicate": False, "rejected": []})
    with store.client() as redis:
        ((_, fields),) = redis.xrange(KEYS.stream)
        assert redis.smembers(KEYS.seen("2126-12-02")) == {ID}
        assert redis.expiretime(KEYS.seen("2126-12-02")) == 4_952_102_400  # 2126-12-05T00:00Z
        assert int(redis.get(KEYS.backlog)) == len(fields[b"b"])
    ((name, width, count, packed),) = decode_entry(fields[b"b"])
    assert (name, width, count, bytes(packed)) == ("dark_mode:1:2126-11-29:", 4, 2, b"\1\0\0\0\0\0\0\0")
    assert _outcome(store) == {"received": "2", "accepted": "2"}


def test_a_retry_changes_nothing_but_the_duplicate_count(client, store):
    """The same batch again is a duplicate: no second entry, and received = accepted + duplicate."""
    document = batch(report(), report(data=7), batch_id=ID)
    _post(client, document)
    before = store.dump()
    answer = _post(client, document)
    assert (answer.status_code, answer.json["accepted"], answer.json["duplicate"]) == (202, 0, True)
    assert [(found["index"], found["type"]) for found in answer.json["rejected"]] == [(1, "payload-invalid")]
    after = store.dump()
    assert {key for key in after if after[key] != before.get(key)} == {
        KEYS.outcome("dark_mode", "2126-11-29").encode(),
        KEYS.ever("dark_mode").encode(),
    }
    assert _outcome(store) == {
        "received": "4",
        "accepted": "1",
        "rejected:payload-invalid": "1",
        "duplicate": "2",
    }


def test_a_retry_is_accounted_for_in_every_bucket(client, store):
    """A batch about several metrics is a duplicate under each of them."""
    document = batch(
        report(), report(data=5), report("first_use"), report("browser"), report("browser"), batch_id=ID
    )
    _post(client, document)
    _post(client, document)
    assert _outcome(store)["duplicate"] == "2"
    assert _outcome(store, "first_use", "once") == {"received": "2", "accepted": "1", "duplicate": "1"}
    assert _outcome(store, "browser") == {"received": "4", "accepted": "2", "duplicate": "2"}


def test_a_late_retry_is_a_duplicate_under_the_bucket_of_now(client, store, clock):
    """A retry whose window has closed meanwhile is still recognised, and its accounts still add up."""
    document = batch(report(), until=TODAY + timedelta(days=9), batch_id=ID)
    _post(client, document)
    clock.now = NOW + timedelta(days=8)
    answer = _post(client, document)
    assert answer.json["duplicate"]
    assert [found["type"] for found in answer.json["rejected"]] == ["report-too-old"]
    assert _outcome(store) == {"received": "1", "accepted": "1"}
    assert _outcome(store, "_unknown", "_unknown") == {"received": "1", "duplicate": "1"}


def test_one_bad_report_rejects_only_itself(client, store):
    """Rejections come by index with a reason and a detail; the rest is accepted."""
    answer = _post(client, batch(report(), report(metric="nope"), report(params="00000000"), batch_id=ID))
    assert answer.status_code == 202
    assert answer.json["accepted"] == 1
    assert answer.json["rejected"] == [
        {"index": 1, "type": "unknown-metric", "detail": "metric: is not in the registry"},
        {"index": 2, "type": "params-mismatch", "detail": "params: is not the hash of this version"},
    ]
    assert _outcome(store) == {"received": "2", "accepted": "1", "rejected:params-mismatch": "1"}
    assert _outcome(store, "_unknown", "_unknown") == {"received": "1", "rejected:unknown-metric": "1"}


def test_a_batch_of_rejections_is_remembered_without_an_entry(client, store):
    """Where every report is refused, the id and the accounts are kept and the stream is not touched."""
    document = batch(report(metric="nope"), batch_id=ID)
    assert _post(client, document).json["duplicate"] is False
    assert _post(client, document).json["duplicate"] is True
    with store.client() as redis:
        assert not redis.exists(KEYS.stream, KEYS.backlog)
    assert _outcome(store, "_unknown", "_unknown") == {
        "received": "2", "duplicate": "1", "rejected:unknown-metric": "1",
    }  # fmt: skip


def test_hostile_names_and_windows_make_no_keys(client, store):
    """A thousand made-up metrics and windows share one bucket."""
    made_up = [report(metric=f"m{n}") for n in range(500)] + [
        report(window=f"{n}-01-01") for n in range(2000, 2200)
    ]
    _post(client, batch(*made_up, batch_id=ID))
    with store.client(decode=True) as redis:
        assert set(redis.keys("*outcome*")) == {KEYS.outcome("_unknown", "_unknown"), KEYS.outcomes}
        assert redis.smembers(KEYS.outcomes) == {"_unknown:_unknown"}


def test_gzip_is_accepted(client):
    """A compressed batch is a batch."""
    body = gzip.compress(json.dumps(batch()).encode())
    assert _post(client, body, Content_Encoding="gzip").json["accepted"] == 1
    assert _post(client, batch(), Content_Encoding="identity").json["accepted"] == 1


def test_large_bodies_are_inflated_one_after_the_other(client, monkeypatch):
    """One that waits for its turn is as small as it was sent: few bytes may hold many."""
    begun = threading.Event()

    def watched(raw, limit_bytes):
        begun.set()
        return inflate(raw, limit_bytes)

    monkeypatch.setattr(ingest, "inflate", watched)
    body = gzip.compress(json.dumps(batch()).encode() + b" " * (4 << 20))
    sent = threading.Thread(target=_post, args=(client, body), kwargs={"Content_Encoding": "gzip"})
    with turn(2 << 20):
        sent.start()
        assert not begun.wait(0.1)
    sent.join(60)
    assert begun.is_set()


REFUSED = [
    (b"", {}, 400, "malformed-body", "body"),
    (b"{", {}, 400, "malformed-body", "body"),
    (b"[]", {}, 400, "malformed-body", "body"),
    (b'{"batch": NaN}', {}, 400, "malformed-body", "body"),
    (b"[" * 50_000, {}, 400, "malformed-body", "body"),
    (
        json.dumps(batch()).replace('"data": 1', '"data": ' + "9" * 6_000).encode(),
        {},
        400,
        "malformed-body",
        "body",
    ),
    ({}, {}, 400, "malformed-body", "batch"),
    ({**batch(), "batch": "AAAA"}, {}, 400, "malformed-body", "batch"),
    ({**batch(), "batch": 5}, {}, 400, "malformed-body", "batch"),
    ({**batch(), "reports": []}, {}, 400, "malformed-body", "reports"),
    ({**batch(), "reports": {}}, {}, 400, "malformed-body", "reports"),
    ({"batch": batch()["batch"], "reports": [report()]}, {}, 400, "malformed-body", "until"),
    (batch(until="2126-02-30"), {}, 400, "malformed-body", "until"),
    (batch(until="tomorrow"), {}, 400, "malformed-body", "until"),
    (batch(until="2126-11-28"), {}, 422, "until-past", "until"),
    (batch(until="2127-01-09"), {}, 422, "until-too-far", "until"),
    (batch(*[report()] * 1_001), {}, 413, "too-many-reports", "reports"),
    (b" " * (MAX_BODY_BYTES + 1), {}, 413, "body-too-large", "body"),
    (b" " * (MAX_BODY_BYTES + 2), {}, 413, "body-too-large", "body"),
    (gzip.compress(bytes((8 << 20) + 1)), {"Content_Encoding": "gzip"}, 413, "body-too-large", "body"),
    (b"{}", {"Content_Encoding": "gzip"}, 400, "malformed-body", "body"),
    (gzip.compress(b"{}")[:-3], {"Content_Encoding": "gzip"}, 400, "malformed-body", "body"),
    (batch(), {"Content_Encoding": "br"}, 415, "unsupported-encoding", "Content-Encoding"),
    (batch(), {"Content_Encoding": "gzip, gzip"}, 415, "unsupported-encoding", "Content-Encoding"),
    (batch(), {"Content_Type": "text/plain"}, 415, "unsupported-media-type", "Content-Type"),
    (batch(), {"Content_Type": ""}, 415, "unsupported-media-type", "Content-Type"),
    (batch(), {"key": None}, 401, "unauthorized", None),
    (batch(), {"key": "guess"}, 401, "unauthorized", None),
    (batch(), {"key": OPERATOR_KEY}, 403, "forbidden", None),
]


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_batch_leaves_no_trace(client, store, case):
    """Each bad request is one clear problem that names the field, and no key of the store changes."""
    document, how, status, slug, field = case
    before = store.dump()
    answer = _post(client, document, **how)
    assert (answer.status_code, answer.json["type"]) == (status, slug)
    assert (answer.mimetype, answer.json.get("field")) == ("application/problem+json", field)
    assert answer.json["retryable"] is False
    assert store.dump() == before
    if status == 415 and field == "Content-Encoding":
        assert answer.headers["Accept-Encoding"] == "gzip, identity"


def test_a_body_of_exactly_the_limit_is_read(client):
    """The limit itself is allowed."""
    text = json.dumps(batch()).encode()
    assert _post(client, text + b" " * (MAX_BODY_BYTES - len(text))).status_code == 202


def test_a_full_partition_takes_nothing_and_says_when_to_come_back(store, tmp_path, clock):
    """Over the high-water mark a batch is answered 503, nothing is changed, and a known batch is still a duplicate."""
    app = create_app(settings(tmp_path, store.url, high_water_bytes=1, partitions=1), clock=clock)
    first = batch()
    assert _post(app.test_client(), first).status_code == 202
    before = store.dump()
    answer = _post(app.test_client(), batch())
    assert (answer.status_code, answer.json["type"], answer.json["retryable"]) == (503, "overloaded", True)
    assert int(answer.headers["Retry-After"]) > 0
    assert store.dump() == before
    assert _post(app.test_client(), first).json["duplicate"] is True


def test_a_store_without_memory_takes_nothing_and_is_asked_again(store, client):
    """An out-of-memory reply of the store is 503, nothing is changed, and it works again afterwards."""
    document = batch(batch_id=ID)
    with store.client() as redis:
        before = store.dump()
        redis.config_set("maxmemory", 1)
        try:
            answer = _post(client, document)
        finally:
            redis.config_set("maxmemory", 256 << 20)
        assert (answer.status_code, answer.json["type"]) == (503, "store-unavailable")
        assert store.dump() == before
    assert _post(client, document).json == {"accepted": 1, "duplicate": False, "rejected": []}


def test_a_store_that_forgot_its_scripts_is_given_them_again(store, client):
    """SCRIPT FLUSH, as at a failover, costs nothing but a round trip."""
    assert _post(client, batch()).status_code == 202
    with store.client() as redis:
        redis.script_flush()
    assert _post(client, batch()).status_code == 202


def test_the_same_batch_in_many_threads_is_accepted_once(store, client):
    """However many tries of one batch run at once, exactly one is new."""
    document = batch(batch_id=ID)
    app = client.application
    found = []

    def send():
        found.append(_post(app.test_client(), document).json["accepted"])

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [0] * 7 + [1]
    assert _outcome(store) == {"received": "8", "accepted": "1", "duplicate": "7"}


def test_batches_spread_over_the_partitions(store, client):
    """Random ids fill every partition, so that one worker does not get everything."""
    admitted = 0
    deadline = time.monotonic() + 60
    # A store that is slower than its second is 503 for a moment.
    while admitted < 200 and time.monotonic() < deadline:
        admitted += _post(client, batch()).status_code == 202
    assert admitted == 200
    with store.client() as redis:
        assert len(redis.keys("*:stream")) == 8


def test_other_paths_and_methods_are_problems_too(client):
    """The framework's own errors have the same form, and 405 names the methods."""
    answer = client.put("/v1/reports")
    assert (answer.status_code, answer.json["type"]) == (405, "method-not-allowed")
    assert "POST" in answer.headers["Allow"]
    for path in ("/nope", "/v1/reports/", "/v1//reports", "/v1/static/x"):
        answer = client.get(path)
        assert (answer.status_code, answer.json["type"], answer.mimetype) == (
            404, "not-found", "application/problem+json",
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", " application/json"])
def test_a_content_type_may_say_more(client, kind):
    """Its case and its parameters do not matter (RFC 9110 section 8.3.1)."""
    assert _post(client, batch(), Content_Type=kind).status_code == 202


@pytest.mark.parametrize("length", ["", "x", "-1", "1e3", "²", "0" * 5_000, "9" * 5_000, str(MAX_BODY_BYTES)])
def test_a_length_that_is_not_that_of_the_body_is_no_batch(client, store, length):
    """What no web server should hand on is refused all the same, and leaves no trace."""
    before = store.dump()
    answer = client.post(
        "/v1/reports",
        data=json.dumps(batch()).encode(),
        headers={"Content-Type": "application/json"} | bearer(INGEST_KEY),
        environ_overrides={"CONTENT_LENGTH": length},
    )
    assert answer.status_code in (400, 413), answer.text
    assert answer.mimetype == "application/problem+json"
    assert store.dump() == before


def test_the_answer_has_the_headers_of_all_answers(client):
    """Nothing keeps it, nothing guesses what it is."""
    answer = _post(client, batch())
    assert dict(answer.headers) == {
        "Content-Type": "application/json",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        "Content-Length": str(len(answer.data)),
    }


def test_the_framework_alone_gives_the_same_route(client, store):
    """Its view is the route that stands before it."""
    app = client.application
    before = app.wsgi_app
    app.wsgi_app = type(app).wsgi_app.__get__(app)
    document = batch()
    assert _post(client, document).json == {"accepted": 1, "duplicate": False, "rejected": []}
    app.wsgi_app = before
    assert _post(client, document).json["duplicate"] is True


def test_a_fault_of_ours_is_logged_and_says_nothing(client, monkeypatch, caplog):
    """500, as everywhere."""
    monkeypatch.setattr("dither_server.ingest.read_json", lambda body: 1 // 0)
    answer = _post(client, batch())
    assert (answer.status_code, answer.json["type"]) == (500, "internal-error")
    assert "ZeroDivisionError" in caplog.text
    assert "Zero" not in answer.text
