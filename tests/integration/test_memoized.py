"""A memoised metric from the devices through a real server and a worker to what is published."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from dither_cli.tables import estimate_table
from dither_client import Client, RecordResult, RecordStatus
from dither_client.testing import FakeClock
from dither_estimator import estimate
from dither_estimator.longitudinal import estimate_repeated
from dither_estimator.serving import restate
from dither_protocol.mechanisms import Memoized
from dither_protocol.registry import parse_registry, registry_from_document
from dither_protocol.storage import Cell, encode_entry
from support.memo import memo_document
from support.server import INGEST_KEY, OPERATOR_KEY, Server, bearer, running_server, write_files
from support.store import Store as Valkey
from support.worker_store import (
    PARTITIONS,
    announce,
    append_entry,
    day,
    new_worker,
    published_rollups,
)

pytestmark = pytest.mark.usefixtures("engine")

REGISTRY = """
schema = 1
project = "example-editor"

[metrics.mood]
version = 1
type = "categorical"
description = "Mood"
categories = ["red", "green", "blue", "violet", "orange"]
collection = "memoized"
epsilon = 1.0
epsilon_permanent = 2.0
max_distinct_values = 1
mechanism = "grr"
min_reports = 1
late_days = 3
"""
DEVICES = 25
QUEUED = RecordResult(RecordStatus.QUEUED)


@pytest.fixture
def server(valkey: Valkey, tmp_path: Path) -> Iterator[Server]:
    """A real gunicorn over an empty store."""
    write_files(tmp_path, REGISTRY)
    valkey.client().flushall()
    with running_server(tmp_path, valkey.url) as running:
        yield running


def _three_days(server: Server, folder: Path, clock: FakeClock) -> None:
    """Every device answers on three days, restarts in between, and has a second value, which is beyond its cap."""
    for value in ("red", "red", "blue"):
        for number in range(DEVICES):
            with Client(
                server.url,
                parse_registry(REGISTRY),
                ingest_key=INGEST_KEY,
                state_dir=folder / f"device {number}",
                clock=clock,
                delay_s=0,
                exit_timeout_s=30,
            ) as client:
                assert client.record("mood", value) == QUEUED
                assert client.privacy_ledger().spent_lifetime == 2.0
                client.flush(30)
                assert client.pending_reports() == 0
                assert client.stats().get("sent", 0) + client.stats().get("duplicate", 0) == 1
        clock.advance(days=1)


def test_a_memoised_metric_reaches_its_published_estimate(
    server: Server, valkey: Valkey, tmp_path: Path
) -> None:
    """Devices past their cap go on reporting; what is published counts every report, and says what holds for it."""
    clock = FakeClock(datetime.now(UTC) - timedelta(days=2))
    days = [(clock.now + timedelta(days=later)).date().isoformat() for later in range(3)]
    _three_days(server, tmp_path / "devices", clock)
    new_worker(valkey).tick()
    (version,) = server.get("/v1/metrics/mood/estimates").json()["versions"]
    documents = {each["window"]["label"]: each for each in version["estimates"] if each["dimensions"] is None}
    assert sorted(documents) == days
    metric = parse_registry(REGISTRY).metric("mood")
    for document in documents.values():
        assert document["n"] == DEVICES
        assert sum(row["support"] for row in document["values"]) == DEVICES
        assert (document["p"], document["q"]) == (metric.mechanism.p, metric.mechanism.q)
        said = document["memoized"]
        assert (said["epsilon_permanent"], said["max_distinct_values"], said["repeats"]) == (2.0, 1, 1)
        assert [each["about"] for each in said["guarantees"]] == ["report", "life", "reports"]
        assert said["std_error_floor"] > 0
    console = Console(width=200, file=StringIO())
    console.print(estimate_table(documents[days[0]], console))
    server.get(f"/login?token={OPERATOR_KEY}", key=None)
    page = server.get("/metrics/mood", key=None)
    for shown in (console.file.getvalue(), page.text):  # type: ignore[attr-defined]
        assert "between histories of answers that change at the same times" in shown
        assert "Without that assumption" in shown
    again = server.get("/v1/metrics/mood/estimates?level=0.8").json()["versions"][0]["estimates"][0]
    assert again["level"] == 0.8
    described = server.get("/v1/metrics/mood").json()
    assert described["memoized"]["guarantees"][1]["epsilon"] == 2.0
    planned = server.session.post(
        f"{server.url}/v1/plans",
        json={"metric": "mood", "reports": [1_000]},
        headers=bearer(OPERATOR_KEY),
    ).json()
    assert planned["memoized"]["floors"][0]["std_error"] > 0


def test_rollups_of_memoised_reports_are_widened(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each device may have a report in each window with reports: intervals are those of fewer, independent ones."""
    monkeypatch.setattr("dither_estimator.publisher.CLOSING_INTERVAL_S", 0.0)
    registry = registry_from_document(memo_document("oue"))
    announce(valkey, registry)
    metric = registry.metric("mood")
    chain = metric.mechanism
    assert isinstance(chain, Memoized)
    rows = {9: [1, 2, 4, 16] * 30, 8: [1, 3, 4, 16] * 30}
    for age, reports in rows.items():
        name = Cell(metric.name, metric.version, day(-age), ()).name
        packed = [bits.to_bytes(1, "little") for bits in reports]
        append_entry(valkey, age % PARTITIONS, encode_entry([(name, packed)]))
    new_worker(valkey).tick()
    document = published_rollups(valkey, "mood", 1, 7)[day(-8)]
    assert (document["n"], document["target"], document["support_total"]) == (240, "reporters", None)
    assert document["memoized"]["repeats"] == 2
    counters = np.array([sum(bits >> v & 1 for each in rows.values() for bits in each) for v in range(5)])
    expected = estimate_repeated(chain, counters, 240, 2)
    found = [row["interval"] for row in document["values"]]
    assert found == [
        list(pair) for pair in zip(expected.lower.tolist(), expected.upper.tolist(), strict=True)
    ]
    plain = estimate(chain, counters, 240, target="reporters")
    assert (expected.upper - expected.lower > plain.upper - plain.lower).all()
    again = restate(document, 0.95, simultaneous=False)
    assert again is not None
    assert again["values"] == document["values"]
