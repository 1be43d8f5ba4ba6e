"""The fleet: what it posts, and how it retries."""

import json
from datetime import UTC, datetime

import numpy as np

from dither_fleet import Fleet, MetricTruth
from dither_protocol.wire import decode_json, parse_envelope, parse_report
from support.http import Answer, scripted_server
from support.registries import small_registry

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
