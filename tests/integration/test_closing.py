"""Windows close at a watermark: final when every report in time is counted, also where nobody reports any more."""

from collections.abc import Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dither_estimator.definitions import Definitions
from dither_estimator.publisher import Publisher
from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol import storage
from dither_protocol.registry import Registry, registry_from_document
from dither_protocol.storage import Cell, encode_entry
from support.registries import small_document
from support.store import Store as Valkey
from support.worker_store import (
    PARTITIONS,
    Killed,
    MortalStore,
    TimedStore,
    announce,
    announce_again,
    append_entry,
    dark_entry,
    day,
    new_worker,
    partition_keys,
    published_estimates,
)

pytestmark = pytest.mark.usefixtures("engine")

LATE = timedelta(days=3)  # what the small registry leaves at its default


@pytest.fixture(autouse=True)
def looking_at_every_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks for windows to close whenever it publishes, not every few seconds."""
    monkeypatch.setattr("dither_estimator.publisher.CLOSING_INTERVAL_S", 0.0)


def _dark(valkey: Valkey, window: str) -> dict[str, Any]:
    document: dict[str, Any] = published_estimates(valkey, "dark_mode", 1)[f"{window}|*"]
    return document


def _open(valkey: Valkey, metric: str = "dark_mode") -> list[str]:
    return list(valkey.client(decode=True).zrange(storage.open_key(metric), 0, -1))


def _worker(valkey: Valkey, ahead: timedelta = timedelta()) -> Worker:
    store = TimedStore(valkey.url)
    store.ahead = ahead
    return Worker(store)


def _written(valkey: Valkey) -> dict[bytes, object]:
    """All that was published, and the accounts of it."""
    kinds = (b"estimate:", b"published:", b"open:", b"totals:", b"rollup:", b"{")
    found = {k: v for k, v in valkey.dump().items() if k.removeprefix(b"dither:").startswith(kinds)}
    return {k: v for k, v in found.items() if not k.endswith(b":lease")}


def _next_week(registry: Registry) -> str:
    """A window of `color` that closes in ten to seventeen days."""
    return registry.metric("color").window_at(datetime.now(UTC) + timedelta(days=7)).label


def _color_entry(window: str, **reports: int) -> bytes:
    cells = [
        (Cell("color", 2, window, (("os", system),)).name, [b"\x01"] * n) for system, n in reports.items()
    ]
    return encode_entry(cells)


def test_a_window_is_final_once_its_late_days_are_over(valkey: Valkey, registry: Registry) -> None:
    """Each document says when its window closes, and whether every report that came in time is counted."""
    for window, status in ((day(-10), "final"), (day(-4), "final"), (day(-3), "open"), (day(), "open")):
        append_entry(valkey, 0, dark_entry(1, window=window))
        new_worker(valkey).tick()
        document = _dark(valkey, window)
        assert (document["status"], document["final"]) == (status, status == "final")
        end = datetime.fromisoformat(document["window"]["end"])
        assert datetime.fromisoformat(document["closes"]) == end + LATE
        behind = datetime.now(UTC) - datetime.fromisoformat(document["watermark"])
        assert timedelta() <= behind < timedelta(minutes=10)
    assert _open(valkey) == [f"1:{day(-3)}", f"1:{day()}"]


def _watermark(valkey: Valkey, partition: int = 0) -> int:
    store = Store(valkey.url)
    store.open()
    return store.watermark(partition)


def test_the_watermark_is_now_where_everything_is_counted(valkey: Valkey, registry: Registry) -> None:
    """By the store's clock; entries that are counted and kept for an archive do not hold it back."""
    client = valkey.client()
    client.xadd(partition_keys(0).stream, {"b": b"x"}, id="5000-1")
    for checkpoint in ("5000-1", "5000-1.7", "9000-0"):
        client.set(partition_keys(0).checkpoint, checkpoint)
        before, found = client.time(), _watermark(valkey)
        after = client.time()
        assert before[0] * 1_000 + before[1] // 1_000 <= found <= after[0] * 1_000 + after[1] // 1_000


@pytest.mark.parametrize("checkpoint", [None, "4000-3", "5000-0", "5000-0.2", "4999-12.1"])
def test_the_first_entry_that_is_not_counted_holds_the_watermark(
    valkey: Valkey, registry: Registry, checkpoint: str | None
) -> None:
    """It is that entry's time, whatever comes after it."""
    client = valkey.client()
    for entry in ("5000-1", "5000-2", "7000-0"):
        client.xadd(partition_keys(0).stream, {"b": b"x"}, id=entry)
    if checkpoint is not None:
        client.set(partition_keys(0).checkpoint, checkpoint)
    assert _watermark(valkey) == 5_000


def test_the_partition_that_is_farthest_behind_decides(valkey: Valkey, registry: Registry) -> None:
    """A window stays open while any partition may hold a report about it, and closes when that is counted."""
    append_entry(valkey, 0, dark_entry(1, window=day(-10)))
    Worker(Store(valkey.url)).count()
    admitted = int((datetime.now(UTC) - timedelta(days=8)).timestamp() * 1_000)
    payload = dark_entry(1, 0, window=day(-10))
    valkey.client().xadd(partition_keys(PARTITIONS - 1).stream, {"b": payload}, id=f"{admitted}-0")
    store = Store(valkey.url)
    store.open()
    Publisher(store, Definitions(store)).publish(PARTITIONS, 60)
    held = _dark(valkey, day(-10))
    assert (held["n"], held["status"], held["watermark"][:10]) == (1, "open", day(-8))
    new_worker(valkey).tick()
    done = _dark(valkey, day(-10))
    assert (done["n"], done["status"], done["revision"]) == (3, "final", 2)
    assert _open(valkey) == []


def test_the_watermark_is_older_than_the_cells(valkey: Valkey, registry: Registry) -> None:
    """What closes while its cells are being read is not final yet: a report may have come after they were read."""

    class PassingStore(TimedStore):
        def cells_by_partition(self, names: Sequence[str]) -> list[list[bytes | None]]:
            found = super().cells_by_partition(names)
            self.ahead = timedelta(days=30)
            return found

    append_entry(valkey, 0, dark_entry(1, window=day()))
    Worker(Store(valkey.url)).count()
    store = PassingStore(valkey.url)
    store.open()
    publisher = Publisher(store, Definitions(store))
    publisher.publish(PARTITIONS, 60)
    assert _dark(valkey, day())["status"] == "open"
    publisher.publish(PARTITIONS, 60)
    assert _dark(valkey, day())["status"] == "final"


def test_a_quiet_metric_closes_by_time(valkey: Valkey, registry: Registry) -> None:
    """No further report: when its time has come each estimate of the window is published once more, as final."""
    window = _next_week(registry)
    append_entry(valkey, 0, _color_entry(window, linux=3, macos=2))
    append_entry(valkey, 1, dark_entry(1, window=day()))
    _worker(valkey).tick()
    before = published_estimates(valkey, "color", 2)
    assert {document["status"] for document in before.values()} == {"open"}
    _worker(valkey, timedelta(days=5)).tick()
    assert (_dark(valkey, day())["status"], _open(valkey)) == ("final", [])
    assert published_estimates(valkey, "color", 2) == before
    _worker(valkey, timedelta(days=30)).tick()
    after = published_estimates(valkey, "color", 2)
    assert {document["status"] for document in after.values()} == {"final"}
    assert {document["revision"] for document in after.values()} == {2}
    changed = {"status", "final", "revision", "watermark"}
    for field, document in before.items():
        assert {k: v for k, v in document.items() if k not in changed} == {
            k: v for k, v in after[field].items() if k not in changed
        }
    assert _open(valkey, "color") == []


def test_equal_content_changes_nothing(valkey: Valkey, registry: Registry) -> None:
    """An estimate that is published again as it was keeps its revision and its watermark, open or final."""
    append_entry(valkey, 0, dark_entry(1, 0, window=day()))
    append_entry(valkey, 0, dark_entry(1, 0, window=day(-9)))
    _worker(valkey).tick()
    assert [_dark(valkey, day(-age))["revision"] for age in (0, 9)] == [1, 1]
    before = _written(valkey)
    for window in (day(), day(-9)):
        valkey.client().hset(partition_keys(0).dirty, Cell("dark_mode", 1, window, ()).name, "5-0")
    _worker(valkey, timedelta(hours=1)).tick()
    assert _written(valkey) == before


def test_late_reports_give_a_new_revision_that_is_final_too(valkey: Valkey, registry: Registry) -> None:
    """What was accepted in time and counted late is published; nothing that is final becomes open again."""
    window = day()
    append_entry(valkey, 0, dark_entry(1, window=window))
    _worker(valkey, timedelta(days=5)).tick()
    for ahead, n in ((timedelta(days=6), 2), (timedelta(), 3)):  # the second one by a clock that was set back
        append_entry(valkey, 0, dark_entry(1, window=window))
        _worker(valkey, ahead).tick()
        document = _dark(valkey, window)
        assert (document["n"], document["revision"], document["status"], document["final"]) == (
            n, n, "final", True,
        )  # fmt: skip
    assert _open(valkey) == []
    total = valkey.client().hget(storage.totals_key("dark_mode", 1), window)
    assert storage.decode_cell(total) == (3, (0, 3))


def test_what_is_suppressed_says_whether_it_is_final(valkey: Valkey, registry: Registry) -> None:
    """Too few reports stay too few when the window closes, and no value is told."""
    document = small_document()
    document["metrics"]["dark_mode"]["min_reports"] = 5
    announce_again(valkey, registry_from_document(document))
    append_entry(valkey, 0, dark_entry(1, 1, window=day()))
    for ahead, final in ((timedelta(), False), (timedelta(days=5), True)):
        _worker(valkey, ahead).tick()
        found = _dark(valkey, day())
        assert (found["status"], found["final"], found["values"]) == ("suppressed", final, [])


def test_a_once_window_closes_after_the_last_day_of_its_metric(valkey: Valkey) -> None:
    """The end of the day on which it expires, and the late days."""
    document = small_document()
    document["metrics"]["first_color"]["expires"] = day(2)
    announce(valkey, registry_from_document(document))
    append_entry(valkey, 0, encode_entry([("first_color:1:once:", [b"\x01\0\0\0"])]))
    for days, status in ((0, "open"), (4, "open"), (6, "final")):
        _worker(valkey, timedelta(days=days)).tick()
        (found,) = published_estimates(valkey, "first_color", 1).values()
        assert (found["status"], found["closes"][:10]) == (status, day(6))
    assert valkey.client().exists(storage.totals_key("first_color", 1)) == 0


def _redefined(**changes: Any) -> Registry:
    document = deepcopy(small_document())
    document["metrics"]["dark_mode"] |= changes
    return registry_from_document(document)


def test_the_newest_definition_decides_when_a_window_closes(valkey: Valkey, registry: Registry) -> None:
    """More late days keep it open, fewer close it, with no further report; so does another min_reports count."""
    append_entry(valkey, 0, dark_entry(1, 0, window=day()))
    _worker(valkey).tick()
    announce_again(valkey, _redefined(late_days=10))
    _worker(valkey, timedelta(days=5)).tick()
    longer = _dark(valkey, day())
    assert (longer["status"], longer["closes"][:10]) == ("open", day(11))
    announce_again(valkey, _redefined(late_days=1, min_reports=3))
    _worker(valkey, timedelta(days=1)).tick()
    shorter = _dark(valkey, day())
    assert (shorter["status"], shorter["final"], shorter["closes"][:10]) == ("suppressed", False, day(2))
    _worker(valkey, timedelta(days=3)).tick()
    assert (_dark(valkey, day())["final"], _open(valkey)) == (True, [])


def test_a_window_stays_open_while_one_of_its_cells_does(valkey: Valkey, registry: Registry) -> None:
    """A change of one cell just when the window closes makes the others final too, in the same round."""
    window = _next_week(registry)
    append_entry(valkey, 0, _color_entry(window, linux=3, macos=2))
    _worker(valkey).tick()
    append_entry(valkey, 0, _color_entry(window, linux=1))
    _worker(valkey, timedelta(days=30)).tick()
    found = published_estimates(valkey, "color", 2)
    assert {field.partition("|")[2]: (d["n"], d["final"]) for field, d in found.items()} == {
        "*": (6, True),
        "os=linux": (4, True),
        "os=macos": (2, True),
    }
    assert _open(valkey, "color") == []


@pytest.mark.parametrize("quiet", [True, False], ids=["quiet", "with a late report"])
def test_a_kill_anywhere_in_a_closing_is_made_up_for(valkey: Valkey, registry: Registry, quiet: bool) -> None:
    """Wherever the worker dies, the next one leaves what an undisturbed one would have left."""
    week = _next_week(registry)
    last: dict[bytes, object] = {}
    for survives in range(20):
        announce(valkey, registry)
        append_entry(valkey, 0, _color_entry(week, linux=3, macos=2))
        _worker(valkey).tick()
        if not quiet:
            append_entry(valkey, 1, _color_entry(week, linux=1))
        store = MortalStore(valkey.url)
        store.ahead, store.left = timedelta(days=30), survives
        worker = Worker(store)
        try:
            worker.tick()
            died = False
        except Killed:
            died = True
        _worker(valkey, timedelta(days=30)).tick()
        found = {
            key: {f: without_times(d) for f, d in published_estimates(valkey, "color", key).items()}
            for key in (2,)
        }
        rollups = valkey.client(decode=True).hkeys(storage.rollups_key("color", 2, 90))
        state = {b"estimates": found, b"rollups": sorted(rollups), b"open": _open(valkey, "color")}
        assert not last or state == last, f"after {survives} writes"
        last = state
        if not died:
            break
    assert not died
    assert survives >= 4
    assert (last[b"open"], last[b"rollups"]) == ([], [week, storage.companion_field(week)])


def without_times(document: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on when and how often it was published."""
    return {key: value for key, value in document.items() if key not in ("watermark", "revision")}
