"""What is broken on purpose shows in the books, at once and for good, and stops nothing."""

from typing import Any

import pytest
from flask.testing import FlaskClient

from support.books import (
    KEYS,
    TODAY,
    cell_reports,
    count_all,
    imbalance_of,
    ledger_of,
    row_of,
    send,
    waiting_partition,
)
from support.server import report
from support.store import Store
from support.worker_store import new_worker

pytestmark = pytest.mark.usefixtures("engine")


def test_a_lost_entry_shows_at_once_and_for_good(client: FlaskClient, valkey: Store, stocked: Any) -> None:
    """An entry that is deleted from the stream: three reports are missing, before counting and after."""
    keys = waiting_partition(stocked)
    ((entry, _),) = stocked.xrange(keys.stream, count=1)
    assert stocked.xdel(keys.stream, entry) == 1
    assert imbalance_of(client) == 3
    assert not ledger_of(client)["balanced"]
    assert [row["imbalance"] for row in row_of(ledger_of(client))["windows"]] == [1, 2]
    count_all(new_worker(valkey))
    assert imbalance_of(client) == 3


def test_an_entry_too_many_shows_at_once_and_for_good(
    client: FlaskClient, valkey: Store, stocked: Any
) -> None:
    """One that stands in the stream twice would be counted twice."""
    keys = waiting_partition(stocked)
    ((_, fields),) = stocked.xrange(keys.stream, count=1)
    stocked.xadd(keys.stream, fields)
    assert imbalance_of(client) == 3
    count_all(new_worker(valkey))
    assert imbalance_of(client) == 3


@pytest.mark.parametrize(
    "word", ["received", "accepted", "counted", "duplicate", "dead", "rejected:payload-invalid"]
)
def test_a_lost_or_added_number_of_any_account_shows(client: FlaskClient, stocked: Any, word: str) -> None:
    """Every term stands against the others."""
    stocked.hincrby(KEYS[0].outcome(*TODAY), word, 2)
    assert imbalance_of(client) == 2
    stocked.hincrby(KEYS[0].outcome(*TODAY), word, -3)
    assert imbalance_of(client) == 1


def test_a_loss_here_and_a_surplus_there_show_both(client: FlaskClient, stocked: Any) -> None:
    """The sums would agree; each partition is compared by itself."""
    for keys, difference in zip(KEYS, (1, -1), strict=True):
        stocked.hincrby(keys.outcome(*TODAY), "counted", difference)
    row = row_of(ledger_of(client))
    assert row["accepted"] == row["counted"] + row["in_flight"]
    assert (row["imbalance"], imbalance_of(client)) == (2, 2)


def test_a_lost_checkpoint_shows(client: FlaskClient, stocked: Any) -> None:
    """With a checkpoint of an earlier moment trimmed entries are missing; ahead of the counting, entries are lost."""
    keys = waiting_partition(stocked)
    last = stocked.xrevrange(keys.stream, count=1)[0][0]
    stocked.set(keys.checkpoint, last)
    assert imbalance_of(client) == 3 * stocked.xlen(keys.stream)


@pytest.mark.parametrize("existing", [False, True])
def test_a_damaged_account_stops_nothing_and_shows(
    client: FlaskClient, valkey: Store, existing: bool
) -> None:
    """A key of another type: uploads are 202 and are counted as ever, and the gauge is not zero, then or later."""
    if existing:
        send(client, *[report()] * 3)
    damaged = [keys.outcome(*TODAY) for keys in KEYS]
    with valkey.client() as redis:
        for key in damaged:
            redis.delete(key)
            redis.set(key, "damage")
    before = cell_reports(valkey)
    for _ in range(10):
        assert send(client, report(), report("browser", 3))["accepted"] == 2
    assert imbalance_of(client) >= 10
    count_all(new_worker(valkey))
    assert cell_reports(valkey) == before + 20 + 3 * existing
    assert imbalance_of(client) == len(damaged)
    ledger = ledger_of(client)
    assert (sorted(ledger["unreadable"]), ledger["balanced"]) == (sorted(damaged), False)
    assert row_of(ledger, "browser")["imbalance"] == 0
    assert row_of(ledger, "browser")["counted"] == 10


@pytest.mark.parametrize("field", [("received", "many"), ("word", "1")])
def test_an_account_that_nobody_wrote_shows(
    client: FlaskClient, stocked: Any, field: tuple[str, str]
) -> None:
    """A number that is none, a word that no script writes: the key is named."""
    stocked.hset(KEYS[0].outcome(*TODAY), *field)
    assert imbalance_of(client) >= 1
    assert ledger_of(client)["unreadable"] == [KEYS[0].outcome(*TODAY)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("outcomes", None),
        ("stream", None),
        ("checkpoint", None),
        ("checkpoint", "damage"),
        ("backlog", None),
        ("backlog", "damage"),
    ],
)
def test_a_damaged_key_of_a_partition_shows(
    client: FlaskClient, stocked: Any, kind: str, text: str | None
) -> None:
    """Of another type, or with a text that is none: it is named, and the other partition is measured as ever."""
    key = getattr(KEYS[0], kind)
    stocked.delete(key)
    if text is None:
        stocked.zadd(key, {"damage": 1})
    else:
        stocked.set(key, text)
    ledger = ledger_of(client)
    assert (ledger["unreadable"], ledger["balanced"], ledger["imbalance"]) == ([key], False, 1)
    assert row_of(ledger, "_unknown")["imbalance"] == 1
    assert row_of(ledger)["received"] > 0
    assert row_of(ledger)["imbalance"] == 0
