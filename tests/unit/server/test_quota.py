"""Quotas: what is counted, what it costs the store, and that no more is ever given than there is."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from dither_protocol.storage import quota_key
from dither_server import auth
from dither_server.app import create_app
from dither_server.quota import MOST, PERIODS_S, Part, Quota, QuotaExceeded, Quotas, parse_quota
from dither_server.store import Store as ServerStore
from dither_server.store_rules import StoreUnavailable
from support.server import INGEST_KEY, Clock, batch, bearer, registry, report, settings
from support.store import Store

KEY_ID = auth.key_hash(INGEST_KEY)[:12]
OTHER_KEY = "ingest_other"
DAY = Quota(1_000, "day")
_MIDNIGHT_S = 30


@pytest.fixture(autouse=True)
def _not_at_midnight(store: Store) -> None:
    """No test here lasts into the next day, by the clock that counts."""
    with store.client() as client:
        left_s = 86_400 - client.time()[0] % 86_400
    if left_s < _MIDNIGHT_S:
        time.sleep(left_s)


@pytest.fixture
def server_store(store: Store, tmp_path: Path) -> Iterator[ServerStore]:
    """The store as a server uses it."""
    found = ServerStore(settings(tmp_path, store.url), registry())
    yield found
    found.close()


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("1000/minute", Quota(1_000, "minute")),
        ("6000/hour", Quota(6_000, "hour")),
        (f"{MOST}/day", Quota(MOST, "day")),
    ],
)
def test_a_quota_reads_back_as_it_is_written(text: str, quota: Quota) -> None:
    """The text of the keys file and the quota are the same thing."""
    assert parse_quota(text) == quota
    assert str(quota) == text
    assert quota.period_s == PERIODS_S[quota.period]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "6000/minute"),
        ("6000", "6000/minute"),
        ("6000/second", "minute, hour, day"),
        ("06000/day", "6000/minute"),
        ("-1/day", "6000/minute"),
        ("\uff16000/day", "6000/minute"),
        ("6e3/day", "6000/minute"),
        ("6000/day ", "6000/minute"),
        ("999/day", "1,000 reports, as many as a batch may have"),
        (f"{MOST + 1}/day", "1,000,000,000,000"),
        ("9" * 400 + "/day", "6000/minute"),
    ],
)
def test_what_is_no_quota_is_said(text: str, says: str) -> None:
    """A quota that a whole batch could never fit is refused, too: that batch would be sent again and again."""
    with pytest.raises(ValueError, match=says):
        parse_quota(text)


def test_the_store_gives_what_there_is_and_no_more(server_store: ServerStore) -> None:
    """As much as is wished for, then the rest, then nothing; what is refused takes nothing."""
    ask = server_store.take_quota
    given = [
        ask(KEY_ID, DAY, least, wished) for least, wished in ((1, 300), (400, 3), (301, 9), (1, 999), (1, 1))
    ]
    assert [part.reports for part in given] == [300, 400, 0, 300, 0]
    assert [part.left for part in given] == [700, 300, 300, 0, 0]
    assert len({part.period for part in given}) == 1
    assert all(0 < part.ends_in_s <= 86_400 for part in given)


@pytest.mark.parametrize("period", PERIODS_S)
def test_a_new_period_begins_with_everything(server_store: ServerStore, store: Store, period: str) -> None:
    """The store's clock says which period it is; of an earlier one nothing is left to count or to keep."""
    quota = Quota(1_000, period)
    first = server_store.take_quota(KEY_ID, quota, 1_000, 1_000)
    name = quota_key(KEY_ID, period)
    with store.client() as client:
        now_s = client.time()[0]
        assert first.period in (now_s // quota.period_s, now_s // quota.period_s - 1)
        assert 0 < client.pttl(name) <= quota.period_s * 1_000 + 1_000
        client.hincrby(name, "period", -1)
    assert server_store.take_quota(KEY_ID, quota, 1_000, 1_000).reports == 1_000
    assert server_store.take_quota("another", quota, 1_000, 1_000).reports == 1_000


def test_a_smaller_quota_holds_at_once(server_store: ServerStore) -> None:
    """What was taken under the larger one counts."""
    assert server_store.take_quota(KEY_ID, Quota(9_000, "day"), 2_000, 2_000).left == 7_000
    part = server_store.take_quota(KEY_ID, DAY, 1, 1)
    assert (part.reports, part.left) == (0, 0)


@pytest.mark.parametrize("reports", [1, 7, 1_000])
def test_processes_together_never_spend_more(server_store: ServerStore, reports: int) -> None:
    """Three processes of four threads each spend until all are refused: never more, and less by what they hold only."""
    quota = Quota(20_000, "day")
    processes = [Quotas(server_store.take_quota) for _ in range(3)]

    def spend(number: int) -> int:
        sent = 0
        try:
            while True:
                processes[number % 3].charge(KEY_ID, quota, reports)
                sent += reports
        except QuotaExceeded:
            return sent

    with ThreadPoolExecutor(12) as threads:
        spent = sum(threads.map(spend, range(12)))
    held = 3 * max(reports, quota.reports // 256)
    assert quota.reports - held <= spent <= quota.reports


def test_the_cost_does_not_grow_with_the_traffic(server_store: ServerStore) -> None:
    """However many batches come, the store is asked a few hundred times in a period, and never in vain twice."""
    asked = []

    def ask(*arguments: Any) -> Part:
        asked.append(arguments)
        return server_store.take_quota(*arguments)

    quotas = Quotas(ask)
    quota = Quota(100_000, "day")
    for _ in range(10_000):
        quotas.charge(KEY_ID, quota, 10)
    assert len(asked) <= 257
    for _ in range(1_000):
        with pytest.raises(QuotaExceeded):
            quotas.charge(KEY_ID, quota, 10)
        with pytest.raises(QuotaExceeded):
            quotas.check(KEY_ID, quota)
    assert len(asked) <= 258


def test_threads_of_a_process_ask_once_together() -> None:
    """While one asks, the others wait, and spend what it brings."""
    asked = []
    begin = Barrier(8)

    def ask(key_id: str, quota: Quota, least: int, wished: int) -> Part:
        asked.append(least)
        time.sleep(0.1)
        return Part(0, max(least, wished), 0, 60.0)

    quotas = Quotas(ask)

    def charge(_: int) -> None:
        begin.wait()
        quotas.charge(KEY_ID, Quota(256_000, "minute"), 125)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(charge, range(8)))
    assert asked == [125]


class _Periods:
    """A store whose periods the test begins, and one process over it."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.now_s = 0.0
        self.taken: dict[int, int] = {}
        self.late_s = 0.0
        self.process = Quotas(self.ask, lambda: self.now_s)

    def ask(self, key_id: str, quota: Quota, least: int, wished: int) -> Part:
        self.now_s += self.late_s
        period, gone_s = divmod(self.now_s, quota.period_s)
        left = quota.reports - self.taken.get(int(period), 0)
        part = min(left, max(least, wished)) if left >= least else 0
        self.taken[int(period)] = self.taken.get(int(period), 0) + part
        return Part(int(period), part, left - part, quota.period_s - gone_s)

    def charge(self, reports: int) -> Any:
        return self.process.charge(KEY_ID, self.quota, reports)


def test_what_was_taken_does_not_outlive_its_period() -> None:
    """In the next period a process starts with nothing, and takes anew."""
    store = _Periods(Quota(256_000, "minute"))
    store.charge(1)
    assert store.taken == {0: 1_000}
    store.now_s = 59.9
    store.charge(999)
    assert store.taken == {0: 1_000}
    store.now_s = 60.0
    store.charge(1)
    assert store.taken == {0: 1_000, 1: 1_000}


def test_a_period_that_begins_while_the_store_is_asked_is_noticed() -> None:
    """What is left of the old one is not spent in the new one."""
    store = _Periods(Quota(256_000, "minute"))
    store.now_s = 59.0
    store.charge(1)
    store.late_s = 2.0
    store.charge(1_500)  # 999 of the old period and 501 of the new one would be too few
    store.late_s = 0.0
    assert store.taken[1] == 1_000 + 1_000
    store.charge(500)
    assert store.taken[1] == 2_000
    store.charge(1)
    assert store.taken[1] == 3_000


def test_refusals_say_when_the_period_ends_and_the_next_one_has_everything() -> None:
    """A batch that does not fit is refused until then; a smaller one that fits is not."""
    store = _Periods(Quota(1_000, "minute"))
    store.charge(600)
    store.now_s = 45.0
    with pytest.raises(QuotaExceeded) as caught:
        store.charge(401)
    assert caught.value.ends_in_s == 15.0
    store.process.check(KEY_ID, store.quota)
    store.charge(400)
    with pytest.raises(QuotaExceeded):
        store.process.check(KEY_ID, store.quota)
    store.now_s = 60.0
    store.process.check(KEY_ID, store.quota)
    store.charge(1_000)
    assert store.taken == {0: 1_000, 1: 1_000}


def test_what_is_given_back_is_of_its_own_period() -> None:
    """A batch that was not admitted costs nothing, and gives the next period nothing."""
    store = _Periods(Quota(1_000, "minute"))
    store.process.give_back(store.charge(1_000))
    late = store.charge(1_000)
    assert store.taken == {0: 1_000}
    store.now_s = 60.0
    store.charge(900)
    store.process.give_back(late)
    with pytest.raises(QuotaExceeded):
        store.charge(101)


def test_without_a_quota_nobody_is_asked() -> None:
    """The default: no limit, and no cost."""
    store = _Periods(DAY)
    store.process.check(KEY_ID, None)
    charge = store.process.charge(KEY_ID, None, 10**9)
    store.process.give_back(charge)
    assert store.taken == {}


def test_a_store_that_fails_takes_nothing_from_the_quota() -> None:
    """The error goes to the caller; once the store is back everything is there."""
    store = _Periods(DAY)
    good, store.process._ask = store.process._ask, _down
    with pytest.raises(StoreUnavailable):
        store.charge(1)
    store.process._ask = good
    store.charge(1_000)


def _down(*_: object) -> Part:
    raise StoreUnavailable("timeout")


def _write_keys(folder: Path, quota: str | None) -> None:
    """The app's key with a quota, and one of another app without."""
    keys = [
        {"name": "app", "role": "ingest", "sha256": auth.key_hash(INGEST_KEY)}
        | ({"quota": quota} if quota else {}),
        {"name": "other", "role": "ingest", "sha256": auth.key_hash(OTHER_KEY)},
    ]
    (folder / "keys.json").write_text(json.dumps({"keys": keys}))


@pytest.fixture
def limited(store: Store, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    """The app, whose ingest key has a quota of 1,000 reports a day."""
    monkeypatch.setattr(auth, "LOOK_INTERVAL_S", 0.0)
    given = settings(tmp_path, store.url, partitions=1, high_water_bytes=20_000)
    _write_keys(tmp_path, "1000/day")
    return create_app(given, clock=clock).test_client()


def _post(client: FlaskClient, document: object, key: str = INGEST_KEY) -> TestResponse:
    return client.post("/v1/reports", json=document, headers=bearer(key))


def _accepted(client: FlaskClient, reports: int) -> dict[str, Any]:
    document = batch(*[report()] * reports)
    assert _post(client, document).status_code == 202
    return document


def test_a_batch_beyond_the_quota_is_refused_and_leaves_no_trace(limited: FlaskClient, store: Store) -> None:
    """429 with the time to come back; the quota is one app's alone; a smaller batch that fits is taken."""
    _accepted(limited, 990)
    before = store.dump()
    answer = _post(limited, batch(*[report()] * 11))
    assert (answer.status_code, answer.mimetype) == (429, "application/problem+json")
    assert (answer.json["type"], answer.json["retryable"]) == ("quota-exceeded", True)
    assert answer.json["detail"] == "more than 1000 reports in one day"
    assert 1 <= int(answer.headers["Retry-After"]) <= 86_400 + 8_640
    assert store.dump() == before
    assert _post(limited, batch(*[report()] * 11), OTHER_KEY).status_code == 202
    _accepted(limited, 10)
    assert _post(limited, batch()).status_code == 429


def test_rejected_reports_count(limited: FlaskClient) -> None:
    """Else made-up reports of every kind could be tried for nothing."""
    assert _post(limited, batch(*[report(metric="nope")] * 1_000)).json["accepted"] == 0
    assert _post(limited, batch()).status_code == 429


def test_a_retry_costs_nothing(limited: FlaskClient) -> None:
    """A device whose answer was lost sends the same batch again: it is one batch."""
    document = _accepted(limited, 400)
    for _ in range(5):
        assert _post(limited, document).json["duplicate"]
    _accepted(limited, 600)
    assert _post(limited, batch()).status_code == 429


def test_what_cannot_be_taken_costs_nothing(limited: FlaskClient) -> None:
    """A batch that is no batch, and one for which the store has no room."""
    for _ in range(3):
        assert _post(limited, {"reports": [1] * 1_000}).status_code == 400
    with_room = [report("toolbar", data="AAA")] * 500
    while (answer := _post(limited, batch(*with_room), OTHER_KEY)).status_code == 202:
        pass
    assert answer.json["type"] == "overloaded"
    for _ in range(3):
        assert _post(limited, batch(*[report()] * 1_000)).json["type"] == "overloaded"


def test_once_nothing_is_left_no_body_is_read(limited: FlaskClient) -> None:
    """A flood costs the server as little as can be: what is no batch at all is refused for the quota, unread."""
    _accepted(limited, 1_000)
    answer = limited.post("/v1/reports", data=b"{" * 1_000, headers=bearer())
    assert answer.status_code == 429


def test_another_quota_in_the_file_holds_at_once(limited: FlaskClient, tmp_path: Path) -> None:
    """Raised, lowered and taken away without a restart; what was sent under the other one counts."""
    _accepted(limited, 1_000)
    _write_keys(tmp_path, "1500/day")
    _accepted(limited, 490)
    assert _post(limited, batch(*[report()] * 11)).status_code == 429
    _write_keys(tmp_path, None)
    _accepted(limited, 1_000)
    _write_keys(tmp_path, "1200/day")
    assert _post(limited, batch()).status_code == 429


def test_a_quota_needs_the_store(limited: FlaskClient, store: Store) -> None:
    """Without it nothing can be counted, and nothing is taken."""
    _accepted(limited, 1)
    store.stop()
    try:
        answer = _post(limited, batch(*[report()] * 500))
        assert (answer.status_code, answer.json["type"]) == (503, "store-unavailable")
    finally:
        store.start()
