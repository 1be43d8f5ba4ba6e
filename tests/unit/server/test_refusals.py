"""Refused reports by version: exact, from a closed set, and beside the ledger, which they never touch."""

from typing import Any

from flask.testing import FlaskClient

from dither_protocol.storage import PartitionKeys, partition_of, partition_tags
from dither_protocol.wire import parse_envelope
from dither_server.admission import admit
from dither_server.admit_call import admit_call
from dither_server.catalogue import Catalogue
from dither_server.refusals import RefusedReports, read_refused
from support.server import NOW, OPERATOR_KEY, batch, bearer, registry, report
from support.store import Store

ID = bytes(range(16))
KEYS = [PartitionKeys(tag) for tag in partition_tags(8)]
OWN = KEYS[partition_of(ID, 8)]
LATE = report(window="2126-11-20")
HOSTILE = (report(version=99), report(version=10**30), report("browser", metric="made_up"), "no report")


def _post(client: FlaskClient, *reports: object, batch_id: bytes | None = None) -> None:
    answer = client.post("/v1/reports", json=batch(*reports, batch_id=batch_id), headers=bearer())
    assert answer.status_code == 202, answer.text


def _ledger(client: FlaskClient, **query: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/ledger", query_string=query, headers=bearer(OPERATOR_KEY)).json
    return found


def test_each_refused_report_is_counted_under_its_version(client: FlaskClient) -> None:
    """Over all partitions and windows; a report about a closed window under its own metric, too."""
    for _ in range(20):
        _post(client, report(), report(data=7), report("browser", 9), LATE)
    assert _ledger(client)["rejected_by_version"] == [
        {"metric": "browser", "version": 2, "reason": "payload-invalid", "reports": 20},
        {"metric": "dark_mode", "version": 1, "reason": "payload-invalid", "reports": 20},
        {"metric": "dark_mode", "version": 1, "reason": "report-too-old", "reports": 20},
    ]
    (one,) = _ledger(client, metric="browser")["rejected_by_version"]
    assert (one["metric"], one["reports"]) == ("browser", 20)


def test_the_ledger_is_as_exact_as_before(client: FlaskClient) -> None:
    """Each refused report stands in it once, whatever stands beside it; nothing is out of balance."""
    for _ in range(5):
        _post(client, report(), report(data=7), LATE, *HOSTILE)
    found = _ledger(client)
    assert (found["balanced"], found["imbalance"], found["unreadable"]) == (True, 0, [])
    rows = {each["metric"]: each for each in found["metrics"]}
    assert rows["dark_mode"]["rejected"] == {"payload-invalid": 5}
    assert sum(rows["_unknown"]["rejected"].values()) == 25
    assert rows["_unknown"]["rejected"]["report-too-old"] == 5


def test_a_retry_counts_no_refusal_again(client: FlaskClient, store: Store) -> None:
    """The same batch is a duplicate: its refused reports were counted when it came first."""
    for _ in range(3):
        _post(client, report(), report(data=7), batch_id=ID)
    with store.client() as redis:
        assert redis.hgetall(OWN.refused) == {b"dark_mode:1:payload-invalid": b"1"}


def test_what_nobody_knows_makes_no_name(client: FlaskClient, store: Store) -> None:
    """Made-up metrics and versions are refused under none: the hash is not even there."""
    _post(client, *HOSTILE, batch_id=ID)
    assert _ledger(client)["rejected_by_version"] == []
    with store.client() as redis:
        assert not any(redis.exists(keys.refused) for keys in KEYS)


def test_a_batch_without_refusals_asks_the_store_for_nothing_more() -> None:
    """Neither a key nor an argument; one with refusals names the hash once."""
    catalogue = Catalogue(registry())
    (plain, plain_arguments), (more, more_arguments) = (
        admit_call(OWN, admit(catalogue, parse_envelope(batch(*reports)), NOW), 1)
        for reports in ([report(), report()], [report(), report(data=7), report(data=8)])
    )
    assert len(plain) == 6
    assert len(plain_arguments) == 8
    assert more == [*plain, OWN.refused]
    assert more_arguments[-2:] == ["dark_mode:1:payload-invalid", 2]


def test_damaged_numbers_are_not_shown_and_stop_no_upload(client: FlaskClient, store: Store) -> None:
    """A key of another type, or what is no number: null instead of a sum without a part; batches come in."""
    with store.client() as redis:
        redis.set(OWN.refused, "no hash")
        _post(client, report(data=7), batch_id=ID)
        assert _ledger(client)["rejected_by_version"] is None
        assert _ledger(client)["balanced"]
        for name, value in (("dark_mode:1:payload-invalid", "many"), ("no version", "1"), ("a:b:c", "1")):
            redis.delete(OWN.refused)
            redis.hset(OWN.refused, name, value)
            assert _ledger(client)["rejected_by_version"] is None


def test_reasons_of_a_later_server_are_one(store: Store) -> None:
    """The labels stay a closed set."""
    with store.client() as redis:
        redis.hset(OWN.refused, mapping={"m:1:later": 2, "m:1:still-later": 3, "m:1:payload-invalid": 4})
        assert read_refused(redis, KEYS) == [
            RefusedReports("m", 1, "_other", 5),
            RefusedReports("m", 1, "payload-invalid", 4),
        ]
