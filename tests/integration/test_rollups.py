"""Estimates over 7, 28 and 90 windows: from closed ones, about the reports themselves, right after every revision."""

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from dither_estimator import estimate
from dither_estimator.worker import Worker
from dither_protocol import storage
from dither_protocol.registry import Metric, Registry, registry_from_document
from dither_protocol.storage import COMBINED, ROLLUPS, Cell, encode_cell, encode_entry
from support.registries import COLORS, small_document
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
    published_rollups,
)

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(autouse=True)
def looking_at_every_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks for windows to close whenever it publishes, not every few seconds."""
    monkeypatch.setattr("dither_estimator.publisher.CLOSING_INTERVAL_S", 0.0)


def _report(valkey: Valkey, age: int, *answers: int) -> None:
    """Reports about the day so many days ago, over the partitions."""
    for number, answer in enumerate(answers):
        append_entry(valkey, number % PARTITIONS, dark_entry(answer, window=day(-age)))


def _expected(metric: Metric, counters: list[int]) -> list[dict[str, Any]]:
    result = estimate(metric.mechanism, np.array(counters), sum(counters), target="reporters")
    return [
        {"estimate": share, "std_error": error, "interval": [low, high]}
        for share, error, low, high in zip(
            result.estimate.tolist(),
            result.std_error.tolist(),
            result.lower.tolist(),
            result.upper.tolist(),
            strict=True,
        )
    ]


def test_a_rollup_is_the_estimate_of_the_summed_counters(valkey: Valkey, registry: Registry) -> None:
    """Of the windows of the range that had reports; it says how many these were, and is about the reporters."""
    _report(valkey, 40, 1, 1, 1)
    _report(valkey, 12, 0, 1)
    _report(valkey, 11, 1, 1, 0)
    _report(valkey, 2, 1)
    new_worker(valkey).tick()
    last = day(-11)
    found = {size: published_rollups(valkey, "dark_mode", 1, size) for size in ROLLUPS}
    assert all(sorted(documents) == [day(-40), day(-12), last] for documents in found.values())
    for size, n, counters, with_reports in ((7, 5, [2, 3], 2), (28, 5, [2, 3], 2), (90, 8, [2, 6], 3)):
        document = found[size][last]
        assert (document["n"], document["rollup"], document["target"]) == (n, size, "reporters")
        assert (document["status"], document["final"]) == ("final", True)
        first = day(-11 - size + 1)
        assert document["windows"] == {"first": first, "last": last, "with_reports": with_reports}
        assert document["window"] == {
            "label": f"{first}/{last}",
            "start": f"{first}T00:00:00Z",
            "end": f"{day(-10)}T00:00:00Z",
        }
        rows = [
            {key: row[key] for key in ("estimate", "std_error", "interval")} for row in document["values"]
        ]
        assert rows == _expected(registry.metric("dark_mode"), counters)


def test_a_revision_of_a_window_reaches_every_rollup_that_contains_it(
    valkey: Valkey, registry: Registry
) -> None:
    """A late report raises n, and the revision, wherever its window is part of the range, and nowhere else."""
    ages = (20, 15, 14, 13, 9, 5)
    for age in ages:
        _report(valkey, age, 1, 0)
    new_worker(valkey).tick()
    _report(valkey, 15, 1)
    new_worker(valkey).tick()
    for size in ROLLUPS:
        documents = published_rollups(valkey, "dark_mode", 1, size)
        for place, age in enumerate(ages):
            inside = age <= 15 < age + size
            reach = [other for other in ages[: place + 1] if other < age + size]
            assert documents[day(-age)]["n"] == 2 * len(reach) + inside
            assert documents[day(-age)]["revision"] == 1 + inside


def test_windows_that_close_later_join_in_whatever_the_order(valkey: Valkey, registry: Registry) -> None:
    """An earlier window that is counted after a later one has closed is in its rollups too."""
    for age in (6, 9, 7):
        _report(valkey, age, 1)
        new_worker(valkey).tick()
    documents = published_rollups(valkey, "dark_mode", 1, 7)
    assert {label: found["n"] for label, found in documents.items()} == {day(-9): 1, day(-7): 2, day(-6): 3}


def test_open_windows_and_once_metrics_have_no_rollups(valkey: Valkey, registry: Registry) -> None:
    """Only what is closed is summed; `once` has no neighbours."""
    _report(valkey, 0, 1)
    append_entry(valkey, 0, encode_entry([("first_color:1:once:", [b"\x01\0\0\0"])]))
    new_worker(valkey).tick()
    keys = valkey.client(decode=True).keys("dither:rollup:*") + valkey.client(decode=True).keys("dither:tot*")
    assert keys == []


def test_min_reports_is_asked_of_the_sum(valkey: Valkey) -> None:
    """Windows that are suppressed one by one may be enough together; too few are said to be."""
    document = small_document()
    document["metrics"]["dark_mode"]["min_reports"] = 4
    announce(valkey, registry_from_document(document))
    _report(valkey, 9, 1, 0)
    _report(valkey, 8, 1, 0)
    new_worker(valkey).tick()
    documents = published_rollups(valkey, "dark_mode", 1, 7)
    assert [(documents[day(-age)]["status"], len(documents[day(-age)]["values"])) for age in (9, 8)] == [
        ("suppressed", 0),
        ("final", 2),
    ]


def test_a_wide_domain_is_read_in_slices(
    valkey: Valkey, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ninety windows, a few at a time: the sum is that of all of them."""
    monkeypatch.setattr("dither_estimator.rollup.SLICE_BYTES", 100)
    for age in range(94, 4, -1):
        window = day(-age)
        valkey.client().hset(storage.totals_key("dark_mode", 1), window, encode_cell(2, [1, 1]))
    _report(valkey, 4, 1, 1, 1)
    new_worker(valkey).tick()
    found = [published_rollups(valkey, "dark_mode", 1, size)[day(-4)] for size in ROLLUPS]
    assert [(each["n"], each["windows"]["with_reports"]) for each in found] == [(15, 7), (57, 28), (181, 90)]


def _shades(*mechanisms: str, min_reports: int = 2, late_days: int = 3) -> list[Registry]:
    """Versions 1, 2, ... of one metric with the same labels."""
    registries = []
    for version, mechanism in enumerate(mechanisms, start=1):
        table = {
            "version": version,
            "type": "categorical",
            "description": "Shade",
            "categories": COLORS,
            "epsilon": float(version),
            "mechanism": mechanism,
            "min_reports": min_reports,
            "late_days": late_days,
        }
        document = {"schema": 1, "project": "test-app", "metrics": {"shade": table}}
        registries.append(registry_from_document(document))
    return registries


def _shade(valkey: Valkey, version: int, age: int, n: int) -> None:
    report = b"\x05" if version == 1 else b"\x02\0\0\0"
    name = Cell("shade", version, day(-age), ()).name
    append_entry(valkey, version, encode_entry([(name, [report] * n)]))


def test_versions_are_combined_over_the_range(valkey: Valkey, registry: Registry) -> None:
    """Also where no single window has reports of both; weighted by n, and the parts are named."""
    for each in _shades("oue", "grr"):
        announce_again(valkey, each)
    _shade(valkey, 1, 9, 3)
    _shade(valkey, 2, 8, 4)
    _shade(valkey, 2, 30, 1)
    new_worker(valkey).tick()
    own = [published_rollups(valkey, "shade", version, 7) for version in (1, 2)]
    both = published_rollups(valkey, "shade", COMBINED, 7)
    assert [sorted(found) for found in (*own, both)] == [[day(-9)], [day(-30), day(-8)], [day(-8)]]
    document = both[day(-8)]
    assert [(part["version"], part["n"]) for part in document["parts"]] == [(1, 3), (2, 4)]
    assert (document["n"], document["windows"]["with_reports"], document["target"]) == (7, 2, "reporters")
    assert (document["status"], document["rollup"]) == ("final", 7)
    estimates = [
        [row["estimate"] for row in found["values"]] for found in (own[0][day(-9)], own[1][day(-8)], document)
    ]
    assert estimates[2] == pytest.approx([(3 * a + 4 * b) / 7 for a, b in zip(*estimates[:2], strict=True)])
    wide = published_rollups(valkey, "shade", COMBINED, 28)
    assert (wide[day(-8)]["n"], wide[day(-8)]["windows"]["with_reports"]) == (8, 3)
    _shade(valkey, 1, 9, 1)
    new_worker(valkey).tick()
    assert published_rollups(valkey, "shade", COMBINED, 7)[day(-8)]["n"] == 8


@pytest.mark.parametrize("second", ["labels", "period"])
def test_versions_of_different_questions_are_not_combined(
    valkey: Valkey, registry: Registry, second: str
) -> None:
    """Each has its own rollups."""
    document: dict[str, Any] = small_document()
    table = document["metrics"]["color"] | {"version": 3}
    table |= {"categories": [*COLORS, "grey"]} if second == "labels" else {"period": "day"}
    document["metrics"]["color"] = table
    other = registry_from_document(document)
    announce_again(valkey, other)
    for each in (registry, other):
        metric = each.metric("color")
        label = metric.parse_window("2026-W01" if metric.period == "week" else "2026-01-02").label
        name = Cell("color", metric.version, label, (("os", "linux"),)).name
        append_entry(valkey, 0, encode_entry([(name, [b"\x01"] * 3)]))
    new_worker(valkey).tick()
    assert [len(published_rollups(valkey, "color", version, 28)) for version in (2, 3)] == [1, 1]
    assert published_rollups(valkey, "color", COMBINED, 28) == {}


def _state(valkey: Valkey) -> dict[str, Any]:
    """Everything published about the shades, without how often it was."""
    found: dict[str, Any] = {}
    for version in (1, 2, COMBINED):
        for size in ROLLUPS:
            for label, document in published_rollups(valkey, "shade", version, size).items():
                kept = {k: v for k, v in document.items() if k not in ("revision", "watermark")}
                found[f"{version} {size} {label}"] = kept
    client = valkey.client(decode=True)
    return found | {"open": client.zrange(storage.open_key("shade"), 0, -1)}


def test_a_kill_anywhere_between_windows_and_rollups_is_made_up_for(
    valkey: Valkey, registry: Registry
) -> None:
    """Two windows of two versions close; wherever the worker dies, the next one leaves the same rollups."""
    states = []
    for survives in range(100):
        announce(valkey, registry)
        for each in _shades("oue", "grr"):
            announce_again(valkey, each)
        for version, age, n in ((1, 1, 3), (2, 1, 2), (2, 0, 4)):
            _shade(valkey, version, age, n)
        new_worker(valkey).tick()
        store = MortalStore(valkey.url)
        store.ahead, store.left = timedelta(days=9), survives
        try:
            Worker(store).tick()
            died = False
        except Killed:
            died = True
        later = TimedStore(valkey.url)
        later.ahead = timedelta(days=9)
        Worker(later).tick()
        states.append(_state(valkey))
        assert states[-1] == states[0], f"after {survives} writes"
        if not died:
            break
    assert not died
    assert survives > 15
    assert states[0]["open"] == []
    assert states[0][f"{COMBINED} 7 {day()}"]["n"] == 9
