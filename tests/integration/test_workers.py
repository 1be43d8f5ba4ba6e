"""Several workers on one store: they share the work, and whatever dies or stands still, nothing is counted twice."""

import random
import signal
import threading
import time
from collections.abc import Sequence

import pytest

from dither_estimator.store import Commit, Store, StoreUnavailableError
from dither_estimator.worker import EXIT_OK, Worker
from dither_protocol import storage
from support.store import Store as Valkey
from support.worker_fleet import (
    KEYS,
    PARTITIONS,
    RUN,
    SHORT_TTL,
    VALUES,
    append,
    assert_each_once,
    counted,
    eventually,
    open_store,
    shares,
    states,
    waiting,
    worker_fleet,
)

pytestmark = pytest.mark.usefixtures("engine", "_opened")

BATCH = 8


@pytest.fixture
def _opened(valkey: Valkey) -> None:
    open_store(valkey)


def _append_all(valkey: Valkey, reports: int, pause_s: float = 0.0) -> None:
    """So many reports in batches of eight, over all partitions."""
    for number, first in enumerate(range(0, reports, BATCH)):
        append(valkey, number % PARTITIONS, range(first, first + BATCH))
        if pause_s:
            time.sleep(pause_s)


def _drained(valkey: Valkey) -> bool:
    return waiting(valkey) == 0


def test_workers_share_take_over_and_give_back(valkey: Valkey) -> None:
    """Three share eight partitions; one is killed, one comes, one leaves: each time the shares even out."""
    with worker_fleet(valkey) as fleet:
        for name in ("a", "b", "c"):
            fleet.start(name)
        eventually(lambda: shares(valkey) == [2, 3, 3], "three workers share")
        assert sum(state.publishing for state in states(valkey)) == 1
        fleet.kill(next(state.name for state in states(valkey) if state.publishing))
        _append_all(valkey, 64)
        eventually(lambda: _drained(valkey) and shares(valkey) == [4, 4], "two take over")
        eventually(lambda: any(state.publishing for state in states(valkey)), "somebody publishes")
        fleet.start("d")
        eventually(lambda: shares(valkey) == [2, 3, 3], "a new one gets its share")
        assert fleet.stop("d") == EXIT_OK
        assert [state.name for state in states(valkey) if state.name == "d"] == []
        eventually(lambda: shares(valkey) == [4, 4], "what was given back is taken")
    assert_each_once(valkey, 64)


STANDS_STILL = """
import os, signal
from dither_estimator.store import Store
real = Store.apply
def apply(self, partition, commit):
    Store.apply = real
    os.kill(os.getpid(), signal.SIGSTOP)  # everything is read and counted, nothing is written
    return real(self, partition, commit)
Store.apply = apply
"""


def test_a_worker_that_stands_still_in_mid_commit_does_no_harm(valkey: Valkey) -> None:
    """SIGSTOP beyond its lease, another takes over, SIGCONT: its commit is refused, nothing is doubled or lost."""
    _append_all(valkey, 64)
    with worker_fleet(valkey) as fleet:
        fleet.start("slow", SHORT_TTL + STANDS_STILL + RUN)
        eventually(lambda: fleet.is_paused("slow"), "it stands still")
        fleet.start("fast", SHORT_TTL + RUN)
        eventually(lambda: _drained(valkey), "the other takes over")
        assert_each_once(valkey, 64)
        fleet.resume("slow")
        eventually(lambda: shares(valkey) == [4, 4], "it is back")
        assert_each_once(valkey, 64)
        assert "another worker was faster" in fleet.log("slow")
        for first in range(64, 128, BATCH):
            append(valkey, first % PARTITIONS, range(first, first + BATCH))
        eventually(lambda: _drained(valkey), "both go on")
    assert_each_once(valkey, 128)


HURRIES = """
worker.COMMIT_INTERVAL_S = 0.01
worker.MAX_COMMIT_BATCHES = 3
"""
"""Many small commits without pauses, so that workers meet and kills hit."""

BELIEVES = """
from dither_estimator.store import Store
Store.holders = lambda _, keys: [None] * len(keys)
Store.lease = lambda *_: True
leases.fair_share = lambda partitions, _: partitions
"""


def test_workers_that_all_believe_to_hold_everything_count_everything_once(valkey: Valkey) -> None:
    """Leases save work, nothing more: without them the compare-and-set alone keeps the counts right."""
    with worker_fleet(valkey) as fleet:
        for name in ("a", "b", "c"):
            fleet.start(name, SHORT_TTL + HURRIES + BELIEVES + RUN)
        eventually(lambda: len(states(valkey)) == 3, "all are there")
        _append_all(valkey, 1_536)
        eventually(lambda: _drained(valkey), "all is counted")
        for name in ("a", "b", "c"):
            assert fleet.stop(name) == EXIT_OK
        assert_each_once(valkey, 1_536)
        assert all("another worker was faster" in fleet.log(name) for name in ("a", "b", "c"))


DAWDLES = """
import time
real = worker.tally
def slowly(decoded):
    time.sleep(0.02)
    return real(decoded)
worker.tally = slowly
"""
"""Most of a worker's time passes between reading and writing, so that stops and kills fall there."""


def test_kills_and_stops_at_random_under_load_double_nothing(valkey: Valkey) -> None:
    """Workers are killed, stopped beyond their leases and started again while reports arrive."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # shown where the test fails
    chance = random.Random(seed)  # noqa: S311  a schedule, no privacy noise
    program = SHORT_TTL + HURRIES + DAWDLES + RUN
    names = ["a", "b", "c"]
    with worker_fleet(valkey) as fleet:
        for name in names:
            fleet.start(name, program)
        load = threading.Thread(target=_append_all, args=(valkey, VALUES, 0.012))
        load.start()
        while load.is_alive():
            time.sleep(chance.uniform(0.1, 0.4))
            name = chance.choice(names)
            if chance.random() < 0.5:
                fleet.kill(name)
                fleet.start(name, program)
            else:
                fleet.pause(name)
                time.sleep(chance.uniform(1.0, 3.0))  # up to and beyond its lease
                fleet.resume(name)
        load.join()
        eventually(lambda: _drained(valkey) and shares(valkey) == [2, 3, 3], "all is counted, all are back")
        for name in names:  # one that was started last may not have come so far as to hear the signal
            assert fleet.stop(name) in (EXIT_OK, -signal.SIGTERM)
    assert_each_once(valkey, VALUES)


class _Flaky(Store):
    """The store goes away at every commit of counts, until the test lets it be."""

    away = True

    def apply(self, partition: int, commit: Commit) -> bool:
        if self.away and not commit.dead_entries:
            raise StoreUnavailableError("away")
        return super().apply(partition, commit)

    def take_back_attempt(self, partition: int, text: str, before: str) -> None:
        if self.away:
            raise StoreUnavailableError("away")
        super().take_back_attempt(partition, text, before)


@pytest.mark.parametrize("away_long", [False, True], ids=["flapping", "away beyond the time to live"])
def test_nobody_takes_the_attempts_of_the_living_for_deaths(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch, *, away_long: bool
) -> None:
    """Two workers fail at the same entry in turn, a store that comes and goes being the cause: it is no poison.

    Both believe that they hold the partition, and neither can take its note back.
    """

    class Believing(_Flaky):
        def holders(self, keys: Sequence[str]) -> list[str | None]:
            return [None] * len(keys)

        def lease(self, key: str, owner: str, ttl_ms: int, replaces: str) -> bool:
            return True

    monkeypatch.setattr("dither_estimator.leases.fair_share", lambda partitions, _: partitions)
    append(valkey, 0, range(BATCH))
    stores = [Believing(valkey.url), Believing(valkey.url)]
    pair = [Worker(store, name) for store, name in zip(stores, "ab", strict=True)]
    failed = 0
    for number in range(24):
        if away_long:
            valkey.client().delete(storage.WORKERS_KEY)  # all were silent for too long
        try:
            pair[number % 2].tick()
        except StoreUnavailableError:
            failed += 1
    assert failed >= 12
    assert valkey.client().xlen(KEYS[0].dead) == 0
    for store in stores:
        store.away = False
    for number in range(4):
        pair[number % 2].tick()
    assert_each_once(valkey, BATCH)


POISON = """
import os, signal
from dither_estimator import tally
real = tally.tally
def deadly(decoded):
    if any(each.entry[1] == bytes.fromhex(POISON) for each in decoded):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(decoded)
worker.tally = deadly
"""


def test_an_entry_that_kills_real_workers_is_found_without_waiting(valkey: Valkey) -> None:
    """Restarted by the same name, six deaths find one entry of two; the other is counted once, and it is said."""
    for first in range(0, 2 * BATCH, BATCH):
        append(valkey, 0, range(first, first + BATCH))
    poison = valkey.client().xrange(KEYS[0].stream)[0][1][storage.ENTRY_FIELD]
    program = SHORT_TTL + f"POISON = {poison.hex()!r}" + POISON + RUN
    deaths = 0
    with worker_fleet(valkey) as fleet:
        process = fleet.start("a", program)

        def restarted_until_drained() -> bool:
            nonlocal deaths, process
            if process.poll() is not None:
                deaths += 1
                process = fleet.start("a", program)
            return _drained(valkey)

        eventually(restarted_until_drained, "the poison is set aside")
        assert fleet.stop("a") == EXIT_OK
        log = fleet.log("a")
    n, counters = counted(valkey)
    assert (n, counters[: 2 * BATCH]) == (BATCH, [0] * BATCH + [1] * BATCH)
    assert deaths == 6  # three beside the other, three alone
    assert log.count("ended while it counted") == deaths
    assert "several workers ended while they decoded it" in log
    assert "partition 0 keeps 1 entries that were set aside" in log
