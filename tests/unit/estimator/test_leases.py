"""Who counts which partition: shared evenly, taken over when somebody goes, and never more than a saving of work."""

import logging
import time
from collections.abc import Iterator

import pytest

from dither_estimator.leases import Leases, fair_share
from dither_estimator.presence import TTL_MS, Fate, Presence, workers
from dither_estimator.store import Store, StoreUnavailableError
from dither_protocol.storage import (
    LAYOUT,
    META_KEY,
    PUBLISHER_KEY,
    WORKERS_KEY,
    PartitionKeys,
    partition_tags,
)
from support.store import Store as Valkey
from support.store import running_store

PARTITIONS = 8
KEYS = [PartitionKeys(tag).lease for tag in partition_tags(PARTITIONS)]
HOUR_MS = 3_600_000
HANG_LIMIT_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """One server for the module; each test empties it."""
    with running_store() as store:
        yield store


@pytest.fixture
def valkey(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> Valkey:
    """Empty, with eight partitions; leases are looked at at every refresh."""
    client = server.client()
    client.flushall()
    client.hset(META_KEY, mapping={"partitions": PARTITIONS, "layout": LAYOUT})
    monkeypatch.setattr("dither_estimator.leases.RENEW_S", 0.0)
    return server


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is gone after one second."""
    monkeypatch.setattr("dither_estimator.leases.TTL_MS", 1_000)
    monkeypatch.setattr("dither_estimator.presence.TTL_MS", 1_000)


def _leases(valkey: Valkey, name: str) -> Leases:
    return Leases(Store(valkey.url), name)


def _rounds(*all_leases: Leases, rounds: int = 3) -> list[int]:
    """So many rounds of refreshing; how many partitions each holds then."""
    for _ in range(rounds):
        for leases in all_leases:
            leases.refresh(PARTITIONS)
    return sorted(len(leases.partitions) for leases in all_leases)


def _held(*all_leases: Leases) -> list[int]:
    return sorted(partition for leases in all_leases for partition in leases.partitions)


@pytest.mark.parametrize(
    ("partitions", "living", "share"),
    [(8, 1, 8), (8, 2, 4), (8, 3, 3), (8, 8, 1), (8, 9, 1), (48, 5, 10), (1, 1, 1)],
)
def test_the_fair_share_is_rounded_up(partitions: int, living: int, share: int) -> None:
    """So the shares of all living workers cover every partition."""
    assert fair_share(partitions, living) == share
    assert share * living >= partitions


def test_a_sole_worker_gets_everything_at_once(valkey: Valkey) -> None:
    """At its first refresh it counts all partitions, and publishes."""
    leases = _leases(valkey, "a")
    leases.refresh(PARTITIONS)
    assert _held(leases) == list(range(PARTITIONS))
    assert leases.publishing
    assert {valkey.client(decode=True).get(key) for key in [*KEYS, PUBLISHER_KEY]} == {leases.owner}


def test_a_store_without_partitions_gives_no_leases(valkey: Valkey) -> None:
    """No server has created it yet: nothing is held, nothing is written."""
    before = valkey.dump()
    leases = _leases(valkey, "a")
    leases.refresh(0)
    assert (leases.partitions, leases.publishing) == ((), False)
    assert valkey.dump() == before


@pytest.mark.parametrize(("count", "shares"), [(2, [4, 4]), (3, [2, 3, 3]), (5, [0, 2, 2, 2, 2])])
def test_workers_share_evenly(valkey: Valkey, count: int, shares: list[int]) -> None:
    """Nobody has more than the fair share, nobody counts what another counts, and one publishes."""
    everyone = [_leases(valkey, f"w{number}") for number in range(count)]
    assert _rounds(*everyone) == shares
    assert _held(*everyone) == list(range(PARTITIONS))
    assert sum(leases.publishing for leases in everyone) == 1


def test_one_that_comes_gets_its_share_and_one_that_leaves_is_replaced_at_once(valkey: Valkey) -> None:
    """Work spreads when workers come and go; a clean shutdown costs no waiting."""
    a, b, c = (_leases(valkey, name) for name in "abc")
    assert _rounds(a, b) == [4, 4]
    assert _rounds(a, b, c) == [2, 3, 3]
    publishing = next(leases for leases in (a, b, c) if leases.publishing)
    others = [leases for leases in (a, b, c) if leases is not publishing]
    publishing.leave()
    assert (publishing.partitions, publishing.publishing) == ((), False)
    assert valkey.client().zcard(WORKERS_KEY) == 2
    assert _rounds(*others, rounds=2) == [4, 4]
    assert [leases.publishing for leases in others].count(True) == 1


@pytest.mark.usefixtures("_short")
def test_who_dies_is_replaced_after_the_time_to_live(valkey: Valkey) -> None:
    """Not before; then everything is taken."""
    dead, living = _leases(valkey, "a"), _leases(valkey, "b")
    dead.refresh(PARTITIONS)
    living.refresh(PARTITIONS)
    assert _held(living) == []
    deadline = time.monotonic() + HANG_LIMIT_S
    while len(living.partitions) < PARTITIONS and time.monotonic() < deadline:
        living.refresh(PARTITIONS)
        time.sleep(0.02)
    assert _held(living) == list(range(PARTITIONS))
    assert valkey.client(decode=True).zrange(WORKERS_KEY, 0, -1) == [living.owner]


def test_a_worker_takes_the_place_of_its_earlier_self_at_once(valkey: Valkey) -> None:
    """The same name after a crash: no waiting, neither for leases nor for the share; another name has to wait."""
    before, other, after = (_leases(valkey, name) for name in ("serve", "serve2", "serve"))
    before.refresh(PARTITIONS)
    other.refresh(PARTITIONS)
    assert _held(other) == []
    other.leave()
    after.refresh(PARTITIONS)
    assert _held(after) == list(range(PARTITIONS))
    assert after.publishing
    assert valkey.client(decode=True).zrange(WORKERS_KEY, 0, -1) == [after.owner]


def test_two_living_workers_of_one_name_share_all_the_same(
    valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake of the operator's: it is said once, and wastes a little work at the start."""
    everyone = [_leases(valkey, "twin") for _ in range(2)]
    assert _rounds(*everyone) == [4, 4]
    assert _rounds(*everyone) == [4, 4]
    assert _held(*everyone) == list(range(PARTITIONS))
    assert caplog.text.count("is named twin too") == 2  # once by each


def test_a_lease_that_was_lost_is_not_believed_in_any_longer(valkey: Valkey) -> None:
    """It lapsed while its holder stood still, and another one took it."""
    leases = _leases(valkey, "a")
    leases.refresh(PARTITIONS)
    valkey.client().set(KEYS[3], "b/1", px=60_000)
    valkey.client().set(PUBLISHER_KEY, "b/1", px=60_000)
    leases.refresh(PARTITIONS)
    assert _held(leases) == [0, 1, 2, 4, 5, 6, 7]
    assert not leases.publishing
    valkey.client().set(KEYS[4], "b/1", px=60_000)
    leases.leave()
    assert [valkey.client().get(key) for key in KEYS[3:6]] == [b"b/1", b"b/1", None]


def test_leases_are_renewed(valkey: Valkey) -> None:
    """Each refresh lets them last for the whole time to live again."""
    leases = _leases(valkey, "a")
    leases.refresh(PARTITIONS)
    client = valkey.client()
    for key in (*KEYS, PUBLISHER_KEY):
        client.pexpire(key, TTL_MS // 3)
    leases.refresh(PARTITIONS)
    assert min(client.pttl(key) for key in (*KEYS, PUBLISHER_KEY)) > TTL_MS // 3


def test_leases_are_renewed_no_oftener_than_needed(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load ticks follow each other at once; the store is asked about once a second."""
    monkeypatch.setattr("dither_estimator.leases.RENEW_S", 60.0)
    leases = _leases(valkey, "a")
    leases.refresh(PARTITIONS)
    valkey.client().flushall()
    leases.refresh(PARTITIONS)
    assert len(leases.partitions) == PARTITIONS
    assert valkey.client().keys("*") == []
    leases.lost_contact()
    leases.refresh(PARTITIONS)
    assert valkey.client().exists(*KEYS) == PARTITIONS


@pytest.mark.usefixtures("_short")
def test_a_clock_that_was_set_back_keeps_no_dead_worker_alive(valkey: Valkey) -> None:
    """Presence that lies ahead and leases that last too long, or for ever, end in the usual time."""
    client = valkey.client()
    seconds, _ = client.time()
    client.zadd(WORKERS_KEY, {"dead/1": seconds * 1_000 + HOUR_MS})
    client.set(KEYS[0], "dead/1", px=HOUR_MS)
    client.set(KEYS[1], "dead/1")
    leases = _leases(valkey, "a")
    leases.refresh(PARTITIONS)
    assert client.zscore(WORKERS_KEY, "dead/1") is not None
    deadline = time.monotonic() + HANG_LIMIT_S
    while len(leases.partitions) < PARTITIONS and time.monotonic() < deadline:
        leases.refresh(PARTITIONS)
        time.sleep(0.02)
    assert _held(leases) == list(range(PARTITIONS))
    assert client.zscore(WORKERS_KEY, "dead/1") is None


def test_a_full_store_gives_leases(valkey: Valkey) -> None:
    """Counting frees memory, so nothing on the way to it may need any."""
    client = valkey.client()
    client.config_set("maxmemory", "1")
    try:
        leases = _leases(valkey, "a")
        leases.refresh(PARTITIONS)
        assert len(leases.partitions) == PARTITIONS
        leases.leave()
        assert client.keys("dither:*lease") == []
    finally:
        client.config_set("maxmemory", "256mb")


def test_a_store_that_is_away_is_an_error_at_work_and_none_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker waits for it; what it cannot give back lapses."""
    caplog.set_level(logging.INFO)
    with running_store() as valkey:
        leases = _leases(valkey, "a")
        leases.refresh(PARTITIONS)
        valkey.kill()
        leases.lost_contact()
        with pytest.raises(StoreUnavailableError):
            leases.refresh(PARTITIONS)
        leases.leave()
    assert "will lapse" in caplog.text


def test_operators_can_see_who_counts_what(valkey: Valkey) -> None:
    """Name, process, partitions, publisher, and when each was seen last by the store's clock."""
    a, b = _leases(valkey, "a"), _leases(valkey, "b")
    _rounds(a, b)
    seconds, _ = valkey.client().time()
    first, second = workers(Store(valkey.url))
    assert (first.name, first.owner, first.publishing) == ("a", a.owner, True)
    assert (second.name, second.owner, second.publishing) == ("b", b.owner, False)
    assert first.partitions == tuple(sorted(a.partitions))
    assert second.partitions == tuple(sorted(b.partitions))
    assert abs(first.last_seen_ms / 1_000 - seconds) < HANG_LIMIT_S


class _Clock:
    """Seconds that pass when the test says so."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


TTL_S = TTL_MS / 1_000


def _presence(valkey: Valkey, name: str, clock: _Clock) -> Presence:
    presence = Presence(Store(valkey.url), name, clock)
    presence.beat()
    return presence


def test_the_living_live(valkey: Valkey) -> None:
    """This process, and whoever the store lists."""
    clock = _Clock()
    other = _presence(valkey, "b", clock)
    presence = _presence(valkey, "a", clock)
    clock.now += 2 * TTL_S
    assert presence.fate(presence.owner) is Fate.LIVES
    assert presence.fate(other.owner) is Fate.LIVES


def test_silence_is_death_only_after_the_time_to_live(valkey: Valkey) -> None:
    """From the last sign of life on; for one who was never heard of, from the first contact on."""
    clock = _Clock()
    other = _presence(valkey, "b", clock)
    presence = _presence(valkey, "a", clock)
    clock.now += TTL_S / 2
    other.beat()
    presence.beat()
    other.leave()
    presence.beat()
    clock.now += 0.75 * TTL_S
    assert presence.fate(other.owner) is Fate.UNKNOWN
    assert presence.fate("never/1") is Fate.DIED
    clock.now += TTL_S / 2
    assert presence.fate(other.owner) is Fate.DIED


def test_a_worker_that_was_dropped_and_comes_back_has_not_died(valkey: Valkey) -> None:
    """It stood still, or the store did; it lives as soon as it is heard of."""
    clock = _Clock()
    other = _presence(valkey, "b", clock)
    presence = _presence(valkey, "a", clock)
    valkey.client().zrem(WORKERS_KEY, other.owner)
    presence.beat()
    assert presence.fate(other.owner) is Fate.UNKNOWN
    other.beat()
    presence.beat()
    clock.now += 2 * TTL_S
    assert presence.fate(other.owner) is Fate.LIVES


def test_nobody_is_judged_by_the_silence_of_a_store_that_was_away(valkey: Valkey) -> None:
    """After lost contact the time begins anew: the others had no chance to be heard."""
    clock = _Clock()
    presence = _presence(valkey, "a", clock)
    presence.lost_contact()
    clock.now += 2 * TTL_S
    assert presence.fate("b/1") is Fate.UNKNOWN
    presence.beat()
    assert presence.fate("b/1") is Fate.UNKNOWN
    clock.now += TTL_S
    assert presence.fate("b/1") is Fate.DIED


def test_an_earlier_process_of_the_same_name_has_died(valkey: Valkey) -> None:
    """This one was started in its place; but not one that is heard of afterwards."""
    clock = _Clock()
    earlier = _presence(valkey, "a", clock)
    presence = _presence(valkey, "a", clock)
    assert presence.fate(earlier.owner) is Fate.DIED
    assert presence.fate("a/never-heard-of") is Fate.DIED
    earlier.beat()
    presence.beat()
    assert presence.fate(earlier.owner) is Fate.LIVES
    earlier.leave()
    presence.beat()
    assert presence.fate(earlier.owner) is Fate.UNKNOWN
