"""Who counts and what waits, as a real store has it."""

from datetime import timedelta

from dither_protocol.storage import PUBLISHER_KEY, WORKERS_KEY, PartitionKeys, partition_tags
from dither_server.counting_state import WORKER_TTL, read_counting_state
from support.server import NOW
from support.store import Store

KEYS = [PartitionKeys(tag) for tag in partition_tags(2)]
NOW_MS = int(NOW.timestamp() * 1_000)


def test_an_empty_store_has_no_workers_and_nothing_waits(store: Store) -> None:
    """Before anything happened there is nobody, and there are the partitions."""
    with store.client() as client:
        found = read_counting_state(client, KEYS, NOW)
    assert (found.living, found.waiting, list(found.workers)) == (0, None, [])
    assert [(p.number, p.waiting, p.backlog_bytes, p.dead_entries) for p in found.partitions] == [
        (0, None, 0, 0),
        (1, None, 0, 0),
    ]


def test_workers_are_told_by_their_sign_of_life_and_their_leases(store: Store) -> None:
    """One that was heard of lives, with its partitions and the right to publish; a silent one does not."""
    with store.client() as client:
        silent_ms = NOW_MS - int(WORKER_TTL.total_seconds() * 1_000) - 1
        client.zadd(WORKERS_KEY, {"b/1": NOW_MS - 1_000, "a/2": silent_ms, "c/3": NOW_MS + 500})
        client.set(KEYS[1].lease, "b/1")
        client.set(PUBLISHER_KEY, "b/1")
        found = read_counting_state(client, KEYS, NOW)
    assert [(w.name, w.lives, w.partitions, w.publishing) for w in found.workers] == [
        ("a", False, (), False),
        ("b", True, (1,), True),
        ("c", True, (), False),
    ]
    assert found.workers[2].silent == timedelta()  # a clock that runs ahead
    assert found.living == 2


def test_what_waits_is_the_oldest_entry_after_the_checkpoint(store: Store) -> None:
    """Entries that are counted do not wait, whether they were trimmed or not; a checkpoint's mark is no matter."""
    first, second = f"{NOW_MS - 90_000}-0", f"{NOW_MS - 30_000}-0"
    with store.client() as client:
        for entry in (first, second):
            client.xadd(KEYS[0].stream, {"b": b"x"}, id=entry)
        client.set(KEYS[0].backlog, 2)
        client.xadd(KEYS[1].dead, {"b": b"x"})
        waits = read_counting_state(client, KEYS, NOW)
        assert waits.waiting == timedelta(seconds=90)
        assert [(p.backlog_bytes, p.dead_entries) for p in waits.partitions] == [(2, 0), (0, 1)]
        for checkpoint, seconds in ((first, 30), (first + ".7", 30), ("damaged", 90)):
            client.set(KEYS[0].checkpoint, checkpoint)
            assert read_counting_state(client, KEYS, NOW).waiting == timedelta(seconds=seconds)
        client.set(KEYS[0].checkpoint, second)
        assert read_counting_state(client, KEYS, NOW).waiting is None
