"""Looks at the whole ledger: exact while others work, at a bounded price, and nothing stays hidden from them."""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dither_protocol.storage import encode_entry
from dither_server.app import create_app
from dither_server.looking import SAMPLE, SLICE, STEPS
from dither_server.recent import EVERY
from support.books import (
    KEYS,
    PARTITIONS,
    TODAY,
    Interleaved,
    cell_reports,
    count_all,
    imbalance_of,
    ledger_of,
    life,
    look_now,
    plant,
    row_of,
    send,
    waiting_partition,
)
from support.server import NOW, OPERATOR_KEY, Clock, bearer, report, settings
from support.store import Store
from support.worker_store import new_worker

pytestmark = pytest.mark.usefixtures("engine")

MANY = [
    f"{year}-{month:02d}-{day:02d}"
    for year in range(2101, 2112)
    for month in range(1, 13)
    for day in range(1, 28)
]
"""Windows that closed long ago, more than three looks compare in a partition."""
LOOKS = -(-len(MANY) // (SLICE * STEPS)) + 1


def _another_server(valkey: Store, folder: Path) -> FlaskClient:
    """Another process over the same store."""
    folder.mkdir()
    return create_app(settings(folder, valkey.url, partitions=PARTITIONS), clock=Clock()).test_client()


def test_a_look_is_exact_whatever_happens_between_its_steps(client: FlaskClient, valkey: Store) -> None:
    """Uploads, retries and commits between any two reads: settled each time, never out, and at the end all is there."""
    draw = random.Random(6)  # noqa: S311  # a story, no privacy
    with valkey.client() as redis:
        happens = life(client, new_worker(valkey), draw)
        for _ in range(60):
            send(client)  # so that there is more than a page of entries
        seen = set()
        for _ in range(20):
            found = look_now(Interleaved(redis, happens))
            assert (found.imbalance, found.unsettled, found.unreadable) == (0, [], [])
            seen.add(bool(found.by_metric()["dark_mode"].in_flight))
        assert True in seen
        count_all(new_worker(valkey))
        total = look_now(redis)
    sums = total.by_metric().values()
    assert not sum(terms.in_flight for terms in sums)
    assert sum(terms.counted for terms in sums) == cell_reports(valkey)
    assert total.accounts == {}


def test_a_loss_and_a_surplus_in_old_windows_are_found_by_every_process(
    client: FlaskClient, stocked: Any, valkey: Store, tmp_path: Path
) -> None:
    """Within some looks; then each process knows, the alarm rings, and it ends when they are mended."""
    plant(stocked, KEYS[0], MANY)
    places = [(KEYS[0].outcome("toolbar", MANY[index]), by) for index, by in ((1234, 1), (-1, -1))]
    for key, by in places:
        stocked.hincrby(key, "counted", by)
    looks = 0
    while row_of(ledger_of(client), "toolbar")["imbalance"] < 2:
        looks += 1
        assert looks < LOOKS
    assert imbalance_of(client, "toolbar") == 2
    row = row_of(ledger_of(_another_server(valkey, tmp_path / "other")), "toolbar")
    assert (row["imbalance"], row["accepted"]) == (2, row["counted"])
    assert {each["window"] for each in row["windows"]} == {MANY[1234], MANY[-1]}
    assert "imbalance" in _alarms(client, "toolbar")
    scrape = client.get("/metrics", headers=bearer(OPERATOR_KEY)).text
    assert 'dither_alarm{alarm="imbalance",metric="toolbar"} 1.0' in scrape
    for key, by in places:
        stocked.hincrby(key, "counted", -by)
    assert imbalance_of(client, "toolbar") == 0
    assert not stocked.exists(*[keys.suspects for keys in KEYS])


def test_a_look_compares_a_bounded_part_and_the_looks_all(stocked: Any) -> None:
    """One look reads at most its slices of a partition; so many looks in a row read every account."""
    plant(stocked, KEYS[0], MANY)
    look_now(stocked)
    stocked.config_resetstat()
    for _ in range(LOOKS):
        before = stocked.info("commandstats")
        look_now(stocked)
        after = stocked.info("commandstats")
        read = after["cmdstat_hgetall"]["calls"] - before.get("cmdstat_hgetall", {"calls": 0})["calls"]
        assert read < 1.2 * SLICE * STEPS + 200
    assert stocked.info("commandstats")["cmdstat_hgetall"]["calls"] >= len(MANY)


def test_a_lost_report_shows_at_the_next_look_whatever_its_window(
    client: FlaskClient, stocked: Any, valkey: Store
) -> None:
    """By the sums of its metric, even where no slice ever comes to its account."""
    plant(stocked, KEYS[0], MANY, metric="dark_mode")
    keys = waiting_partition(stocked)
    ((entry, _),) = stocked.xrange(keys.stream, count=1)
    stocked.xdel(keys.stream, entry)
    count_all(new_worker(valkey))
    for each in KEYS:
        stocked.srem(each.outcomes, "dark_mode:2126-11-29", "dark_mode:2126-11-28")
    row = row_of(ledger_of(client))
    assert (row["imbalance"], row["windows"]) == (3, [])


def test_many_windows_in_flight_are_settled_and_balanced(client: FlaskClient, stocked: Any) -> None:
    """Where counting was down a part of them is read by itself; the sums are of all."""
    windows: Sequence[str] = MANY[: 3 * SAMPLE]
    with stocked.pipeline() as pipe:
        for window in windows:
            pipe.xadd(KEYS[0].stream, {b"b": encode_entry([(f"toolbar:1:{window}:", [b"\0\0"] * 3)])})
            pipe.hset(KEYS[0].outcome("toolbar", window), mapping={"received": 3, "accepted": 3})
            pipe.sadd(KEYS[0].outcomes, f"toolbar:{window}")
        for word in ("received", "accepted"):
            pipe.hincrby(KEYS[0].ever("toolbar"), word, 3 * len(windows))
        pipe.execute()
    ledger = ledger_of(client)
    row = row_of(ledger, "toolbar")
    assert (ledger["balanced"], ledger["unsettled"], row["in_flight"]) == (True, [], 3 * len(windows))
    assert SAMPLE - 2 <= len(row["windows"]) <= SAMPLE  # two more are those of the other metric
    stocked.hincrby(
        KEYS[0].outcome("toolbar", windows[7]), "counted", 3
    )  # it says that none of its three waits
    looks = 0
    while row_of(ledger_of(client), "toolbar")["imbalance"] != 3:
        looks += 1
        assert looks < 100  # each misses it with a probability of 2/3


def test_rows_tell_of_the_last_weeks_and_balance(client: FlaskClient, stocked: Any, valkey: Store) -> None:
    """What there was when the note was taken is left out of the rows, and in none of the counters; alarms follow."""
    send(client, *[report(data=7)] * 500)
    assert _alarms(client) == {"rejected"}
    before = row_of(ledger_of(client))
    week_ago = int(time.time()) - EVERY.days * 86_400 - 1
    for _ in range(2):
        for keys in KEYS:
            stocked.hset(keys.audit, "next_at", week_ago)
        ledger_of(client)
    after = row_of(ledger_of(client))
    assert (after["received"], after["accepted"], after["rejected"]) == (60, 60, {"payload-invalid": 0})
    assert (after["in_flight"], after["imbalance"], before["in_flight"]) == (60, 0, 60)
    assert _alarms(client) == set()
    count_all(new_worker(valkey))
    assert (row_of(ledger_of(client))["counted"], imbalance_of(client)) == (60, 0)
    scrape = client.get("/metrics", headers=bearer(OPERATOR_KEY)).text
    assert f'dither_reports_total{{metric="dark_mode",outcome="received"}} {before["received"]}.0' in scrape


def test_sums_that_could_not_be_read_are_no_base(client: FlaskClient, stocked: Any) -> None:
    """Damaged when the note was taken, and mended since: nothing is out of balance a week later."""
    week_ago, key = int(time.time()) - EVERY.days * 86_400 - 1, waiting_partition(stocked).ever("dark_mode")
    kept = stocked.hgetall(key)
    stocked.hset(key, "counted", "damage")
    for keys in KEYS:
        stocked.hset(keys.audit, "next_at", week_ago)
    assert not ledger_of(client)["balanced"]
    stocked.hset(key, mapping=kept)
    for keys in KEYS:
        stocked.hset(keys.audit, "next_at", week_ago)
    assert ledger_of(client)["balanced"]
    assert ledger_of(client)["balanced"]


def _alarms(client: FlaskClient, metric: str = "dark_mode") -> set[str]:
    page: Any = client.get("/v1/status", headers=bearer(OPERATOR_KEY)).json
    return {each["kind"] for each in page["alarms"] if each["metric"] == metric}


@pytest.mark.parametrize("number", [2**53, 2**60 + 1])
def test_numbers_beyond_doubles_are_compared_exactly(client: FlaskClient, stocked: Any, number: int) -> None:
    """One report is missed among 2^60."""
    plant(stocked, KEYS[0], MANY[:1])  # nothing of it is in flight: a slice alone comes to it
    account = KEYS[0].outcome("toolbar", MANY[0])
    for word in ("received", "accepted", "counted"):
        stocked.hincrby(account, word, number)
    assert imbalance_of(client, "toolbar") == 0
    stocked.hincrby(account, "counted", -1)
    assert imbalance_of(client, "toolbar") == 1


def test_a_full_store_is_watched_and_takes_notes(client: FlaskClient, stocked: Any, engine: str) -> None:
    """Looks need no free memory, so a fault is remembered there as well."""
    if engine == "redis":
        pytest.skip("a full Redis refuses every transaction, one that only reads as well: the ledger is 503")
    stocked.hincrby(KEYS[0].outcome(*TODAY), "counted", 2)
    stocked.config_set("maxmemory", "1mb")
    try:
        assert imbalance_of(client) == 2
        assert stocked.smembers(KEYS[0].suspects) == {":".join(TODAY).encode()}
    finally:
        stocked.config_set("maxmemory", "256mb")


def test_a_store_that_takes_no_writes_is_watched(client: FlaskClient, stocked: Any) -> None:
    """A replica that nobody promoted yet answers the same; it only takes no notes."""
    stocked.hincrby(KEYS[0].outcome(*TODAY), "counted", 2)
    stocked.config_set("min-replicas-to-write", "1")
    try:
        assert row_of(ledger_of(client))["imbalance"] == 2
        assert not stocked.exists(KEYS[0].suspects)
    finally:
        stocked.config_set("min-replicas-to-write", "0")


@pytest.mark.parametrize("kind", ["audit", "suspects"])
def test_damaged_notes_show(client: FlaskClient, stocked: Any, kind: str) -> None:
    """A key of another type: it is named, the other partition is measured as ever, and its removal mends it."""
    ledger_of(client)
    key = getattr(KEYS[0], kind)
    stocked.delete(key)
    stocked.set(key, "damage")
    ledger = ledger_of(client)
    assert (ledger["unreadable"], ledger["imbalance"]) == ([key], 1)
    assert row_of(ledger)["received"] > 0
    stocked.delete(key)
    assert ledger_of(client)["balanced"]


def test_windows_that_a_prune_forgot_are_suspected_no_longer(client: FlaskClient, stocked: Any) -> None:
    """An account that is gone balances; and the rows keep its reports."""
    account = KEYS[0].outcome(*TODAY)
    stocked.hincrby(account, "counted", 2)
    assert imbalance_of(client) == 2
    received = row_of(ledger_of(client))["received"]
    stocked.delete(account)
    stocked.srem(KEYS[0].outcomes, ":".join(TODAY))
    flying = row_of(ledger_of(client))["imbalance"]
    assert flying == _in_flight(stocked)
    assert row_of(ledger_of(client))["received"] == received


def _in_flight(redis: Any) -> int:
    """Reports about `TODAY` in the first partition's stream: without their account they are out of balance."""
    return 2 * int(redis.xlen(KEYS[0].stream))


def test_the_clock_of_the_server_does_not_matter(client: FlaskClient, stocked: Any) -> None:
    """Notes are dated by the store: a server whose clock is years ahead leaves the rows as they are."""
    before = row_of(ledger_of(client))
    client.application.extensions["dither"].clock.now = NOW.replace(year=2130)
    for _ in range(3):
        ledger_of(client)
    assert row_of(ledger_of(client)) == before
