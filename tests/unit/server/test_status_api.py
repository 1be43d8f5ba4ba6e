"""``GET /v1/status``: for viewers, and an answer whatever the store does."""

from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dither_protocol.errors import Rejection
from dither_protocol.storage import WORKERS_KEY
from dither_server.app import create_app
from support.server import (
    INGEST_KEY,
    NOW,
    OPERATOR_KEY,
    batch,
    bearer,
    registry,
    report,
    settings,
)
from support.store import Store


def _status(client: FlaskClient) -> dict[str, Any]:
    answer = client.get("/v1/status", headers=bearer(OPERATOR_KEY))
    assert answer.status_code == 200
    found: dict[str, Any] = answer.get_json()
    return found


@pytest.mark.parametrize(
    ("key", "status"), [(None, 401), ("guess", 401), (INGEST_KEY, 403), (OPERATOR_KEY, 200)]
)
def test_it_is_for_viewers(client: FlaskClient, key: str | None, status: int) -> None:
    """As all numbers of small metrics."""
    assert client.get("/v1/status", headers=bearer(key) if key else {}).status_code == status


def test_parameters_are_refused(client: FlaskClient) -> None:
    """There are none."""
    answer = client.get("/v1/status?metric=x", headers=bearer(OPERATOR_KEY))
    assert (answer.status_code, answer.get_json()["type"]) == (400, "query-invalid")


def test_the_whole_answer(client: FlaskClient, store: Store) -> None:
    """Alarms in words, the accounts of every metric, workers and partitions."""
    client.post("/v1/reports", json=batch(report(), report(), report(data=7)), headers=bearer())
    with store.client() as redis:
        redis.zadd(WORKERS_KEY, {"one/1": NOW.timestamp() * 1_000 - 1_500})
    found = _status(client)
    assert (found["project"], found["failing"], found["trouble"]) == ("example-editor", [], None)
    alarms = {(alarm["level"], alarm["kind"], alarm["metric"]) for alarm in found["alarms"]}
    assert ("warn", "rejected", "dark_mode") in alarms
    assert all(alarm["text"].endswith(".") for alarm in found["alarms"])
    ledger = found["ledger"]
    assert (ledger["balanced"], ledger["unsettled"], ledger["unreadable"]) == (True, [], [])
    assert [row["metric"] for row in ledger["metrics"]] == [*registry().metrics, "_unknown"]
    assert ledger["total"]["received"] == 3
    assert ledger["metrics"][0]["rejected"] == {Rejection.PAYLOAD_INVALID: 1}
    assert ledger["metrics"][0]["latest"] is None
    counting = found["counting"]
    (worker,) = counting["workers"]
    assert worker == {"name": "one", "lives": True, "silent_s": 1.5, "partitions": [], "publishing": False}
    assert [each["partition"] for each in counting["partitions"]] == list(range(8))
    assert sum(each["backlog_bytes"] for each in counting["partitions"]) > 0
    assert counting["high_water_bytes"] > 0


def test_a_store_that_is_away_is_an_answer(tmp_path: Path) -> None:
    """Why it cannot be read, and what that means."""
    client = create_app(settings(tmp_path, f"unix://{tmp_path}/none.sock")).test_client()
    found = _status(client)
    assert (found["ledger"], found["counting"], found["failing"]) == (None, None, ["store-writable"])
    assert "unavailable" in found["trouble"]
    assert [(alarm["level"], alarm["kind"]) for alarm in found["alarms"]] == [("bad", "not-ready")]
