"""What was published last about each metric, of whatever versions."""

import json
from datetime import UTC, datetime
from typing import Any

from dither_protocol.storage import COMBINED, estimates_key, published_key, published_member
from dither_server.latest import read_latest
from support.store import Store


def _publish(
    redis: Any, version: int | str, day: int, n: int, watermark: str = "2026-11-29T12:00:00Z"
) -> None:
    label, start = f"2026-11-{day}", datetime(2026, 11, day, tzinfo=UTC)
    window = {"label": label, "start": f"{label}T00:00:00Z", "end": f"2026-11-{day + 1}T00:00:00Z"}
    document = {"metric": "m", "window": window, "status": "open", "n": n, "watermark": watermark}
    redis.hset(estimates_key("m", version, label), mapping={"*": json.dumps(document), "n|*": f"{n} 0 1"})
    redis.zadd(published_key("m"), {published_member(version, label): start.timestamp()})


def test_nothing_published(store: Store) -> None:
    """A metric without estimates is not there."""
    with store.client() as redis:
        assert read_latest(redis, ["m", "other"]) == {}
        assert read_latest(redis, []) == {}


def test_the_last_window_counts(store: Store) -> None:
    """Whatever came before, and whatever was published about a window that was forgotten meanwhile."""
    with store.client() as redis:
        for day, n in ((27, 5), (28, 7)):
            _publish(redis, 1, day, n)
        found = read_latest(redis, ["other", "m"])
        assert {name: (each.estimate.window.label, each.n) for name, each in found.items()} == {
            "m": ("2026-11-28", 7)
        }
        redis.delete(estimates_key("m", 1, "2026-11-28"))
        assert read_latest(redis, ["m"]) == {}


def test_versions_add_up_and_the_estimate_over_several_is_shown(store: Store) -> None:
    """Of two versions in the last window n is of both; an older version without reports in it has no part."""
    with store.client() as redis:
        _publish(redis, 1, 27, 100)
        _publish(redis, 2, 28, 20, "2026-11-28T13:00:00Z")
        _publish(redis, 3, 28, 10, "2026-11-28T14:00:00Z")
        found = read_latest(redis, ["m"])["m"]
        assert (found.n, found.estimate.n, found.watermark) == (
            30,
            10,
            datetime(2026, 11, 28, 14, tzinfo=UTC),
        )
        _publish(redis, COMBINED, 28, 25)
        found = read_latest(redis, ["m"])["m"]
        assert (found.n, found.estimate.n) == (30, 25)


def test_earlier_windows_are_read_where_they_are_asked_for(store: Store) -> None:
    """Estimates of single versions, latest first; the last window stays what it is."""
    with store.client() as redis:
        for day, n in ((26, 3), (27, 5), (28, 7)):
            _publish(redis, 1, day, n)
        _publish(redis, 2, 28, 9)
        _publish(redis, COMBINED, 28, 16)
        found = read_latest(redis, ["m"], frozenset({"m"}))["m"]
        assert (found.estimate.n, found.n) == (16, 16)
        assert sorted((each.window.label, each.n) for each in found.recent) == [
            ("2026-11-26", 3), ("2026-11-27", 5), ("2026-11-28", 7), ("2026-11-28", 9),
        ]  # fmt: skip
        assert found.recent[-1].n == 3
        assert read_latest(redis, ["m"])["m"].recent == ()


def test_a_damaged_document_is_passed_over(store: Store) -> None:
    """One that cannot be read hides no other."""
    with store.client() as redis:
        _publish(redis, 1, 28, 20)
        _publish(redis, 2, 28, 10)
        redis.hset(estimates_key("m", 2, "2026-11-28"), "*", "{")
        assert read_latest(redis, ["m"])["m"].n == 20
