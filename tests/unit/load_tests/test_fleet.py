"""The fleet: what it posts, and how it retries."""

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from dither_fleet import Fleet, MetricTruth
from dither_fleet import fleet as fleet_module
from dither_protocol.registry import registry_from_document
from dither_protocol.wire import decode_json, encode_batch, parse_envelope, parse_report
from support.groups import MEMBERS, group_document
from support.http import Answer, scripted_server
from support.registries import small_registry
from support.statistics import follows_law

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
REGISTRY = small_registry()
TRUTHS = {
    "dark_mode": MetricTruth([0.7, 0.3]),
    "color": MetricTruth([0.5, 0.2, 0.1, 0.1, 0.1], {"os": {"linux": 0.9, "macos": 0.1}}),
    "first_color": MetricTruth([0.2] * 5),
}


def _accept(reports: int) -> Answer:
    return Answer(body=json.dumps({"accepted": reports, "duplicate": False, "rejected": []}).encode())


def test_the_fleet_posts_what_the_wire_says() -> None:
    """Every report of every batch is one that the registry takes, with a date that the protocol computes."""
    with scripted_server(_accept(10)) as server:
        result = Fleet(server.url, "dik_x", REGISTRY, TRUTHS, NOON).run(30, seed=1, reports_per_batch=10)
    assert result.sent == result.accepted == {"dark_mode": 30, "color": 30, "first_color": 30}
    ids = set()
    for body in server.bodies:
        envelope = parse_envelope(decode_json(body))
        ids.add(envelope.batch_id)
        for document in envelope.reports:
            report = parse_report(document)
            metric = REGISTRY.metric(report.metric)
            assert report.params == metric.params_hash
            metric.check_dimensions(report.dimensions)
            metric.mechanism.pack(report.data)
            metric.parse_window(report.window)
    assert len(ids) == 9


def test_a_retry_sends_the_same_bytes_and_is_counted() -> None:
    """A lost answer and an overload: the same batch again, and its duplicate receipt counts as accepted."""
    duplicate = Answer(body=b'{"accepted":0,"duplicate":true,"rejected":[]}')
    with scripted_server(Answer(status=0), Answer(503, headers={"Retry-After": "0"}), duplicate) as server:
        fleet = Fleet(server.url, "dik_x", REGISTRY, TRUTHS, NOON)
        result = fleet.run(5, seed=1, threads=1)
    assert result.accepted == {"dark_mode": 5, "color": 5, "first_color": 5}
    assert len(set(server.bodies[:3])) == 1
    assert sum(result.retries.values()) == 2


def test_few_batches_are_drawn_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many devices there are, only some batches per thread are held, and each is delivered once."""
    drawn, delivered, most = 0, 0, 0

    def counted(*arguments: Any) -> bytes:
        nonlocal drawn, most
        drawn += 1
        most = max(most, drawn - delivered)
        return encode_batch(*arguments)

    def progress(reports: int) -> None:
        nonlocal delivered
        delivered += 1

    monkeypatch.setattr(fleet_module, "encode_batch", counted)
    with scripted_server(_accept(1)) as server:
        fleet = Fleet(server.url, "dik_x", REGISTRY, TRUTHS, NOON)
        result = fleet.run(100, seed=1, reports_per_batch=1, threads=2, progress=progress)
    assert drawn == delivered == len(server.bodies) == 300
    assert most <= 2 * fleet_module.BATCHES_AHEAD + 1
    assert result.accepted == {"dark_mode": 100, "color": 100, "first_color": 100}


def test_a_fault_ends_the_run_and_the_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the callback raises comes out, and no thread goes on trying to deliver."""

    def progress(reports: int) -> None:
        raise ZeroDivisionError

    again = Answer(503, headers={"Retry-After": "3600"})
    monkeypatch.setattr(fleet_module, "MAX_TRIES", 1_000)
    with scripted_server(_accept(1), again) as server:
        fleet = Fleet(server.url, "dik_x", REGISTRY, TRUTHS, NOON)
        with pytest.raises(ZeroDivisionError):
            fleet.run(100, seed=1, reports_per_batch=1, threads=4, progress=progress)
    assert len(server.bodies) < 100


def test_large_fleets_are_drawn_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device of every group answers, with the shares of the population."""
    monkeypatch.setattr(fleet_module, "DEVICES_AT_ONCE", 300)
    fleet = Fleet("http://127.0.0.1:9", "dik_x", REGISTRY, TRUTHS, NOON)
    reports = list(fleet.draw_devices(REGISTRY.metric("color"), 1_000, np.random.default_rng(3)))
    assert len(reports) == 1_000
    assert 850 < sum(report.dimensions["os"] == "linux" for report in reports) < 950


def test_a_refused_batch_is_a_failure_with_its_reason() -> None:
    """Nothing is silently lost."""
    with scripted_server(Answer(status=401)) as server:
        result = Fleet(server.url, "dik_x", REGISTRY, TRUTHS, NOON).run(5, seed=1)
    assert result.sent == {"dark_mode": 5, "color": 5, "first_color": 5}
    assert sum(result.accepted.values()) == 0
    assert result.failures == {"http:401": 3}


def test_the_seed_fixes_the_population_and_never_the_noise() -> None:
    """The same devices twice: the same dimensions, other reports."""
    fleet = Fleet("http://127.0.0.1:9", "dik_x", REGISTRY, TRUTHS, NOON)
    color = REGISTRY.metric("color")
    first, again = (list(fleet.draw_devices(color, 200, np.random.default_rng(3))) for _ in range(2))
    assert [r.dimensions for r in first] == [r.dimensions for r in again]
    assert [r.data for r in first] != [r.data for r in again]


def test_devices_answer_one_metric_of_a_group() -> None:
    """Every device draws: the parts add up to all of them and are as large as lots make them; others get all."""
    registry = registry_from_document(group_document())
    truths = {name: MetricTruth([0.5, 0.5]) for name in registry.metrics}
    with scripted_server(_accept(1)) as server:
        result = Fleet(server.url, "dik_x", registry, truths, NOON).run(900, seed=1)
    parts = np.array([result.sent[name] for name in MEMBERS])
    assert parts.sum() == result.sent["dark_mode"] == 900
    assert follows_law(parts, np.full(3, 1 / 3))
    assert len(set(parts.tolist())) > 1
