"""Published estimates on a cluster: every script and query stays within the keys of one metric."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dither_estimator.worker import Worker
from dither_server.app import create_app
from support.cluster import Cluster, running_cluster
from support.server import OPERATOR_KEY, Clock, batch, bearer, report, settings
from support.worker_store import TimedStore


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three masters."""
    with running_cluster() as cluster:
        yield cluster


def _estimates(server: FlaskClient, metric: str, query: str = "") -> list[dict[str, Any]]:
    answer = server.get(f"/v1/metrics/{metric}/estimates{query}", headers=bearer(OPERATOR_KEY))
    assert answer.status_code == 200, answer.text
    return [document for version in answer.json["versions"] for document in version["estimates"]]


def test_windows_close_and_roll_up_on_a_cluster(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics on several nodes are published, closed, summed over windows, and read by range and dimensions."""
    monkeypatch.setattr("dither_estimator.publisher.CLOSING_INTERVAL_S", 0.0)
    server = create_app(settings(tmp_path, cluster.url), clock=Clock()).test_client()
    metrics = ("dark_mode", "browser", "toolbar")
    reports = [report("dark_mode"), report("browser"), report("toolbar", data="AAA")]
    for _ in range(4):
        answer = server.post("/v1/reports", json=batch(*reports), headers=bearer())
        assert answer.status_code == 202, answer.text
        assert answer.json["rejected"] == []
    store = TimedStore(cluster.url)
    worker = Worker(store)
    worker.tick()
    before = {metric: _estimates(server, metric, "?dimensions=*") for metric in metrics}
    assert all([found["n"] for found in each] == [4] for each in before.values())
    assert not any(found["final"] for each in before.values() for found in each)
    store.ahead = timedelta(days=101 * 366)
    worker.tick()
    for metric in metrics:
        (found,) = _estimates(server, metric, "?dimensions=*")
        assert (found["final"], found["revision"], found["n"]) == (True, 2, 4)
        label = found["window"]["label"]
        (rollup,) = _estimates(server, metric, f"?rollup=28&from={label}&to={label}")
        assert (rollup["n"], rollup["windows"]["last"], rollup["target"]) == (4, label, "reporters")
        assert _estimates(server, metric, "?to=2026-01&dimensions=*") == []
    store.close()
