"""A calibration metric from real SDKs through a real server and worker: real figures, quiet and ringing alarms."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from dither_cli.main import cli
from dither_client import Client, RecordResult, RecordStatus
from dither_fleet import randomize_many
from dither_protocol import mechanism
from dither_protocol.registry import parse_registry
from support.dashboard import read_page
from support.server import INGEST_KEY, OPERATOR_KEY, Server, batch, running_server, write_files
from support.store import Store as Valkey
from support.worker_store import new_worker

pytestmark = pytest.mark.usefixtures("engine")

REGISTRY = """
schema = 1
project = "example-editor"

[metrics.lot]
version = 1
type = "categorical"
description = "Drawn by lot"
categories = ["half", "third", "rest"]
calibration = [0.5, 0.3, 0.2]
epsilon = 2.0
mechanism = "grr"
period = "month"
min_reports = 10

[metrics.asked]
version = 1
type = "boolean"
description = "Asks somebody"
epsilon = 2.0
mechanism = "rr"
period = "month"
min_reports = 10
"""
DEVICES = 40
REPORTS = 4_000


@pytest.fixture
def server(valkey: Valkey, tmp_path: Path) -> Iterator[Server]:
    """A real gunicorn over an empty store."""
    write_files(tmp_path, REGISTRY)
    valkey.client().flushall()
    with running_server(tmp_path, valkey.url) as running:
        yield running


def _send(server: Server, epsilon: float) -> None:
    """Reports of many devices that randomise at another epsilon than the registry's, or at its own."""
    metric, now = parse_registry(REGISTRY).metric("lot"), datetime.now(UTC)
    made = mechanism("grr", epsilon, 3)
    held = np.random.default_rng(5).choice(3, size=REPORTS, p=[0.5, 0.3, 0.2]).astype(np.int64)
    fields: dict[str, Any] = {"metric": "lot", "version": 1, "params": metric.params_hash}
    fields |= {"window": metric.window_at(now).label, "dimensions": {}}
    reports = [fields | {"data": data} for data in randomize_many(made, held)]
    for start in range(0, REPORTS, 1_000):
        part = batch(*reports[start : start + 1_000], until=now.date() + timedelta(days=1))
        assert server.post(part).json()["accepted"] == 1_000


def _alarms(server: Server) -> list[str]:
    found = json.loads(server.get("/v1/status").text)["alarms"]
    return [each["metric"] for each in found if each["kind"] == "calibration"]


def _scraped(server: Server, name: str) -> str:
    (line,) = [line for line in server.get("/metrics").text.splitlines() if line.startswith(name)]
    return line.rpartition(" ")[2]


def test_answers_by_lot_reach_their_real_errors(server: Server, valkey: Valkey) -> None:
    """The SDK asks nobody; quality, page and scrape hold what is published against the truth."""
    registry = parse_registry(REGISTRY)
    for _ in range(DEVICES):
        with Client(server.url, registry, ingest_key=INGEST_KEY, delay_s=0, exit_timeout_s=30) as client:
            assert client.record("lot") == RecordResult(RecordStatus.QUEUED)
            assert client.record("asked", True) == RecordResult(RecordStatus.QUEUED)
            client.flush(30)
    new_worker(valkey).tick()
    utilities = {}
    for name in ("lot", "asked"):
        (window,) = server.get(f"/v1/metrics/{name}/quality").json()["windows"]
        utilities[name] = window["utility"]
    assert utilities["asked"]["real"] is None
    assert utilities["asked"]["shares"] == "norm_sub"
    lot = utilities["lot"]
    assert (lot["shares"], lot["predicted"]["coverage"], lot["real"]["values"]) == ("truth", 0.95, 3)
    (version,) = server.get("/v1/metrics/lot/estimates").json()["versions"]
    (document,) = [each for each in version["estimates"] if each["dimensions"] is None]
    errors = [
        abs(row["estimate"] - share) for row, share in zip(document["values"], (0.5, 0.3, 0.2), strict=True)
    ]
    assert document["n"] == DEVICES
    assert lot["real"]["mean_absolute_error"] == pytest.approx(sum(errors) / 3)
    for name, words in (("lot", f"{lot['real']['covered']} of 3"), ("asked", "nobody knows the true ones")):
        shown = CliRunner().invoke(cli, ["quality", name, "--url", server.url, "--key", OPERATOR_KEY])
        assert shown.exit_code == 0, shown.output
        assert words in " ".join(shown.output.split())
        assert f"{100 * utilities[name]['predicted']['mean_absolute_error']:.2f} %" in shown.output
    printed = CliRunner().invoke(
        cli, ["quality", "lot", "--json", "--url", server.url, "--key", OPERATOR_KEY]
    )
    assert [each["utility"] for each in json.loads(printed.output)["windows"]] == [lot]
    assert _alarms(server) == []
    assert _scraped(server, 'dither_calibration_values{metric="lot"}') == "3.0"
    assert (
        float(_scraped(server, 'dither_calibration_covered_values{metric="lot"}')) == lot["real"]["covered"]
    )
    assert server.get("/v1/metrics/lot").json()["calibration"] == [0.5, 0.3, 0.2]
    privacy = {each["metric"]: each["calibration"] for each in server.get("/v1/privacy").json()["metrics"]}
    assert privacy == {"lot": True, "asked": False}
    server.get(f"/login?token={OPERATOR_KEY}", key=None)
    said = [each.text for each in read_page(server.get("/privacy", key=None).text).root.every("li")]
    assert [each.split()[0] for each in said if "asks nothing about anybody" in each] == ["lot"]
    for name, columns in (("lot", ["Figure", "predicted", "real"]), ("asked", ["Figure", "predicted"])):
        page = read_page(server.get(f"/metrics/{name}", key=None).text)
        section = page.root.one("section", id="utility-1")
        assert [each.text for each in section.one("thead").every("th")] == columns
        assert f"{lot['real']['covered']} of 3" in section.text or name == "asked"
        assert ("drawn by lot" in page.root.one("section", id="about").text) is (name == "lot")


@pytest.mark.parametrize(("epsilon", "rings"), [(2.0, False), (0.5, True)])
def test_devices_with_another_noise_ring(
    server: Server, valkey: Valkey, epsilon: float, *, rings: bool
) -> None:
    """A p and q that are not the registry's are seen in status, scrape and page; the right ones are not."""
    _send(server, epsilon)
    worker = new_worker(valkey)
    while worker.tick():
        pass
    assert _alarms(server) == (["lot"] if rings else [])
    assert _scraped(server, 'dither_alarm{alarm="calibration",metric="lot"}') == f"{float(rings)}"
    server.get(f"/login?token={OPERATOR_KEY}", key=None)
    for path in ("/metrics/lot", "/"):
        assert ("known truth gives" in server.get(path, key=None).text) is rings
