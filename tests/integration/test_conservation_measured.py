"""Measuring conservation is exact between any two steps of others, and says what it could not measure."""

import random
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dither_protocol.storage import PartitionKeys, encode_entry, partition_tags
from dither_server.app import create_app
from support.books import (
    KEYS,
    TODAY,
    Interleaved,
    cell_reports,
    count_all,
    ledger_of,
    life,
    measure_now,
    row_of,
    send,
    waiting_partition,
)
from support.cluster import Cluster, running_cluster
from support.server import NOW, OPERATOR_KEY, Clock, bearer, report, settings
from support.store import Store
from support.worker_store import new_worker

pytestmark = pytest.mark.usefixtures("engine")


def test_the_measure_is_exact_whatever_happens_between_its_steps(client: FlaskClient, valkey: Store) -> None:
    """Uploads, retries and commits between any two reads: every account balances, and nothing is left out."""
    draw = random.Random(5)  # noqa: S311  # a story, no privacy
    with valkey.client() as redis:
        happens = life(client, new_worker(valkey), draw)
        for _ in range(60):
            send(client)  # so that there is more than a page of entries
        seen = set()
        for _ in range(40):
            found = measure_now(Interleaved(redis, happens))
            assert (found.imbalance, found.unsettled, found.unreadable) == (0, [], [])
            seen.add(bool(found.accounts[TODAY].in_flight))
        assert seen == {True, False}
        count_all(new_worker(valkey))
        total = measure_now(redis)
    assert not sum(terms.in_flight for terms in total.accounts.values())
    assert sum(terms.counted for terms in total.accounts.values()) == cell_reports(valkey)


def test_many_accounts_and_entries_are_read_in_steps(client: FlaskClient, valkey: Store) -> None:
    """More than fit into one step: all of them are there, each once."""
    windows = [f"2126-11-{day:02d}T{hour:02d}" for day in range(23, 30) for hour in range(24)][:160]
    with valkey.client() as redis:
        for keys in KEYS:
            with redis.pipeline() as pipe:
                for window in windows:
                    entry = encode_entry([(f"toolbar:1:{window}:", [b"\0\0"] * 3)])
                    for _ in range(8):
                        pipe.xadd(keys.stream, {b"b": entry})
                    account = keys.outcome("toolbar", window)
                    pipe.hset(account, mapping={"received": 24, "accepted": 24})
                    pipe.sadd(keys.outcomes, f"toolbar:{window}")
                pipe.execute()
    row = row_of(ledger_of(client, "?metric=toolbar"), "toolbar")
    assert (row["in_flight"], row["received"], row["imbalance"]) == (160 * 48, 160 * 48, 0)
    assert [each["window"] for each in row["windows"]] == windows
    assert {each["in_flight"] for each in row["windows"]} == {48}


def test_the_ledger_may_be_asked_for_a_part(client: FlaskClient) -> None:
    """One metric, a range of windows; what is not understood is refused, and an unknown metric not found."""
    send(client, report(), report(window="2126-11-27"), report("browser", 3), {})
    assert [row["metric"] for row in ledger_of(client, "?metric=browser")["metrics"]] == ["browser"]
    part = row_of(ledger_of(client, "?from=2126-11-26&to=2126-11-27"))
    assert [row["window"] for row in part["windows"]] == ["2126-11-27"]
    assert part["received"] == 1
    assert row_of(ledger_of(client, "?metric=_unknown"), "_unknown")["rejected"] == {"malformed-report": 1}
    for query, status, slug in (
        ("?window=x", 400, "query-invalid"),
        ("?metric=none", 404, "unknown-metric"),
        ("?metric=*", 404, "unknown-metric"),
        ("?metric=browse%3F", 404, "unknown-metric"),
    ):
        answer = client.get("/v1/ledger" + query, headers=bearer(OPERATOR_KEY))
        assert (answer.status_code, answer.json["type"]) == (status, slug)


def test_an_old_window_is_listed_while_it_has_reports_in_flight(client: FlaskClient, valkey: Store) -> None:
    """Counting that was down for weeks is not forgotten; afterwards its reports are in the sums alone."""
    send(client, report())
    client.application.extensions["dither"].clock.now = NOW.replace(month=12, day=29)
    for query in ("", "?metric=dark_mode"):
        row = row_of(ledger_of(client, query))
        assert (row["in_flight"], row["received"], row["imbalance"]) == (1, 1, 0)
        assert [each["window"] for each in row["windows"]] == ["2126-11-29"]
    count_all(new_worker(valkey))
    row = row_of(ledger_of(client))
    assert (row["counted"], row["windows"]) == (1, [])
    assert row_of(ledger_of(client, "?metric=dark_mode"))["windows"] == []
    assert row_of(ledger_of(client, "?from=2126-11&to=2126-11"))["counted"] == 1


def test_entries_that_an_archive_keeps_and_the_mark_of_a_prune_are_understood(
    client: FlaskClient, valkey: Store
) -> None:
    """Counted entries stay in the stream, and the checkpoint has a suffix: both without effect on the books."""
    with valkey.client() as redis:
        for keys in KEYS:
            redis.set(keys.archived, "0-0")
        for _ in range(30):
            send(client)
        count_all(new_worker(valkey))
        assert sum(redis.xlen(keys.stream) for keys in KEYS) == 30
        for keys in KEYS:
            redis.append(keys.checkpoint, ".1")
    send(client)
    row = row_of(ledger_of(client))
    assert (row["counted"], row["in_flight"], row["imbalance"]) == (30, 1, 0)


def test_a_store_that_fails_over_between_two_steps_raises_no_alarm(stocked: Any) -> None:
    """A replica that lacked the newest entry takes over while that entry was read already: all is as it was before."""
    keys = waiting_partition(stocked)
    steps: list[None] = []

    def fail_over() -> None:
        steps.append(None)
        if len(steps) == 4:  # the end of the stream was read, and the accounts come next
            ((entry, _),) = stocked.xrevrange(keys.stream, count=1)
            with stocked.pipeline() as pipe:
                pipe.xdel(keys.stream, entry)
                for window, reports in (("2126-11-29", -2), ("2126-11-28", -1)):
                    for word in ("received", "accepted"):
                        pipe.hincrby(keys.outcome("dark_mode", window), word, reports)
                pipe.execute()

    found = measure_now(Interleaved(stocked, fail_over), [keys])
    assert len(steps) > 5
    assert (found.imbalance, found.unsettled) == (0, [])
    assert found.accounts[TODAY].in_flight == 2 * stocked.xlen(keys.stream)


def test_what_is_not_read_in_time_is_unsettled_and_no_imbalance(stocked: Any) -> None:
    """Without time every partition is; where a stream grows faster than it is read, that one is, and no other."""
    found = measure_now(stocked, budget_s=0)
    assert (found.unsettled, found.accounts, found.imbalance) == ([0, 1], {}, 0)
    entry = encode_entry([("dark_mode:1:2126-11-29:", [b"\1\0\0\0"])])

    def grow() -> None:
        with stocked.pipeline(transaction=False) as pipe:
            for _ in range(600):
                pipe.xadd(KEYS[0].stream, {b"b": entry})
            pipe.execute()

    found = measure_now(Interleaved(stocked, grow), budget_s=3)
    assert (found.unsettled, found.imbalance) == ([0], 0)
    assert found.accounts[TODAY].received > 0
    assert found.backlog_bytes.keys() == {0, 1}


def test_on_a_cluster_a_master_that_is_away_takes_its_own_partitions_only(tmp_path: Path) -> None:
    """They are unsettled while it is away, and balance when it is back."""
    with running_cluster() as cluster:
        made = settings(tmp_path, cluster.url, partitions=6)
        client = create_app(made, clock=Clock()).test_client()
        for _ in range(40):
            send(client)
        whole = ledger_of(client)
        assert (whole["balanced"], whole["unsettled"], row_of(whole)["in_flight"]) == (True, [], 40)
        _lose_and_bring_back(cluster, client)


def _lose_and_bring_back(cluster: Cluster, client: FlaskClient) -> None:
    lost = [
        number for number, tag in enumerate(partition_tags(6))
        if cluster.node_of(PartitionKeys(tag).stream) is cluster.nodes[1]
    ]  # fmt: skip
    cluster.nodes[1].kill()
    part = ledger_of(client)
    assert (part["balanced"], part["unsettled"]) == (True, lost)
    assert 0 < row_of(part)["in_flight"] < 40
    cluster.nodes[1].start()
    cluster.wait_until_whole()
    assert row_of(ledger_of(client))["in_flight"] == 40
