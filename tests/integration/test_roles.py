"""Devices and people served by processes of their own, over one store: each side has its routes and no others."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dither_client import Client
from dither_server.auth import key_hash
from support.server import (
    INGEST_KEY,
    OPERATOR_KEY,
    Server,
    batch,
    registry,
    report,
    running_server,
    write_files,
)
from support.store import Store, running_store

VIEWER_KEY = "viewer_test"
DEVICES = ("/v1/registry",)
PEOPLE = (
    "/v1/metrics",
    "/v1/metrics/browser",
    "/v1/metrics/browser/estimates",
    "/v1/ledger",
    "/v1/keys",
    "/metrics",
    "/login",
    "/static/dashboard.css",
    "/privacy",
)
_QUOTA = 3_000


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """One Valkey for this file."""
    with running_store() as found:
        yield found


@pytest.fixture(scope="module")
def sides(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """A gunicorn of either role over one store, with an access log, as somebody may want one."""
    folders = {role: tmp_path_factory.mktemp(role) for role in ("ingest", "operator")}
    for folder in folders.values():
        _write_keys(folder)
    wanted = {"GUNICORN_CMD_ARGS": "--access-logfile -", "DITHER_WORKERS": "2"}
    with (
        running_server(folders["ingest"], store.url, wanted | {"DITHER_ROLE": "ingest"}) as ingest,
        running_server(folders["operator"], store.url, wanted | {"DITHER_ROLE": "operator"}) as operator,
    ):
        yield {"ingest": ingest, "operator": operator}


def _write_keys(folder: Path) -> None:
    write_files(folder)
    entries = [
        {"name": "app", "role": "ingest", "sha256": key_hash(INGEST_KEY), "quota": f"{_QUOTA}/day"},
        {"name": "reader", "role": "viewer", "sha256": key_hash(VIEWER_KEY), "expires": "2199-12-31"},
        {"name": "people", "role": "admin", "sha256": key_hash(OPERATOR_KEY), "created": "2026-11-29"},
    ]
    (folder / "keys.json").write_text(json.dumps({"keys": entries}))


def _batch(reports: int = 1) -> dict[str, Any]:
    """One that is accepted today."""
    today = datetime.now(UTC).date()
    return batch(*[report(window=today.isoformat())] * reports, until=today + timedelta(days=3))


@pytest.mark.parametrize("path", PEOPLE)
def test_the_side_for_devices_has_nothing_for_people(sides: dict[str, Server], path: str) -> None:
    """To the internet there is no estimate, no ledger, no dashboard, whatever key is presented."""
    answer = sides["ingest"].get(path, OPERATOR_KEY)
    assert (answer.status_code, answer.json()["type"]) == (404, "not-found")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert sides["operator"].get(path, OPERATOR_KEY).status_code in (200, 303)


@pytest.mark.parametrize("path", DEVICES)
def test_the_side_for_people_has_nothing_for_devices(sides: dict[str, Server], path: str) -> None:
    """Where people read, no report comes in."""
    answer = sides["operator"].get(path, None)
    assert (answer.status_code, answer.json()["type"]) == (404, "not-found")
    assert sides["ingest"].get(path, None).status_code == 200
    assert sides["operator"].post(_batch()).status_code == 404


@pytest.mark.parametrize("role", ["ingest", "operator"])
def test_either_side_says_that_it_is_well(sides: dict[str, Server], role: str) -> None:
    """A proxy in front of each can ask."""
    for path in ("/healthz", "/readyz"):
        assert sides[role].get(path, None).status_code == 200


def test_a_full_backlog_stops_devices_and_not_people(tmp_path: Path) -> None:
    """Where nothing more can be taken, people have to be able to look."""
    full = {"DITHER_HIGH_WATER_BYTES": "1", "DITHER_PARTITIONS": "1"}
    for role in ("ingest", "operator"):
        (tmp_path / role).mkdir()
    with (
        running_store() as store,
        running_server(tmp_path / "ingest", store.url, full | {"DITHER_ROLE": "ingest"}) as ingest,
        running_server(tmp_path / "operator", store.url, full | {"DITHER_ROLE": "operator"}) as operator,
    ):
        assert ingest.post(_batch()).json()["accepted"] == 1
        assert ingest.get("/readyz").json()["failing"] == ["backlog"]
        assert operator.get("/readyz").status_code == 200
        store.stop()
        assert operator.get("/readyz").json()["failing"] == ["store-readable"]
        assert operator.get("/healthz").status_code == 200


KEYS = {"ingest": INGEST_KEY, "viewer": VIEWER_KEY, "admin": OPERATOR_KEY}


@pytest.mark.parametrize(
    ("role", "path", "status", "problem"),
    [
        ("viewer", "/v1/metrics", 200, None),
        ("viewer", "/v1/ledger", 200, None),
        ("viewer", "/metrics", 200, None),
        ("viewer", "/v1/keys", 403, "forbidden"),
        ("admin", "/v1/metrics", 200, None),
        ("admin", "/v1/keys", 200, None),
        ("ingest", "/v1/metrics", 403, "forbidden"),
        ("ingest", "/v1/keys", 403, "forbidden"),
        ("ingest", "/metrics", 403, "forbidden"),
    ],
)
def test_each_role_does_its_own_job(
    sides: dict[str, Server], role: str, path: str, status: int, problem: str | None
) -> None:
    """A viewer reads, an admin reads and sees the keys, the key of an app reads nothing."""
    answer = sides["operator"].get(path, KEYS[role])
    assert answer.status_code == status
    if problem:
        assert answer.json()["type"] == problem
        assert "insufficient_scope" in answer.headers["WWW-Authenticate"]


def test_an_admin_sees_which_keys_there_are_and_none_of_them(sides: dict[str, Server]) -> None:
    """Names, roles, days and quotas; of a hash its beginning, and nothing of the key."""
    answer = sides["operator"].get("/v1/keys")
    assert answer.json() == {
        "keys": [
            {"name": "app", "role": "ingest", "id": key_hash(INGEST_KEY)[:12], "created": None, "expires": None,
             "quota": "3000/day", "expired": False},
            {"name": "reader", "role": "viewer", "id": key_hash(VIEWER_KEY)[:12], "created": None,
             "expires": "2199-12-31", "quota": None, "expired": False},
            {"name": "people", "role": "admin", "id": key_hash(OPERATOR_KEY)[:12], "created": "2026-11-29",
             "expires": None, "quota": None, "expired": False},
        ]
    }  # fmt: skip
    for key in KEYS.values():
        assert key not in answer.text
        assert key_hash(key) not in answer.text


@pytest.mark.usefixtures("engine")
def test_processes_and_servers_share_a_quota(tmp_path: Path) -> None:
    """Two servers of two processes each take no report more than the quota, and all but what a process may hold."""
    environ = {"DITHER_ROLE": "ingest", "DITHER_WORKERS": "2"}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        _write_keys(tmp_path / name)
    documents = [_batch(50) for _ in range(90)]
    with (
        running_store() as store,
        running_server(tmp_path / "a", store.url, environ) as first,
        running_server(tmp_path / "b", store.url, environ) as second,
        ThreadPoolExecutor(8) as threads,
    ):
        answers = list(
            threads.map(lambda n: (first, second)[n % 2].post(documents[n]), range(len(documents)))
        )
        with store.client() as client:
            entries = sum(client.xlen(key) for key in client.keys("dither:*:stream"))
    accepted = [answer.json()["accepted"] for answer in answers if answer.status_code == 202]
    assert {answer.status_code for answer in answers} == {202, 429}
    assert _QUOTA - 4 * 50 <= sum(accepted) <= _QUOTA
    assert entries == len(accepted)


def test_a_device_keeps_what_is_over_the_quota(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK holds the batch, and delivers it, whole and once, when there is room again."""
    monkeypatch.setattr("dither_client.transport.MAX_RETRY_AFTER_S", 0.1)  # the longest that a device waits
    _write_keys(tmp_path)
    with (
        running_server(tmp_path, store.url, {"DITHER_ROLE": "ingest"}) as server,
        Client(server.url, registry(), ingest_key=INGEST_KEY) as client,
    ):
        while server.post(_batch(1_000)).status_code == 202:
            pass
        client.record("dark_mode", True)
        kept = client.flush(0.5)
        assert (kept.sent, kept.pending) == (0, 1)
        entries = json.loads((tmp_path / "keys.json").read_text())["keys"]
        entries[0]["quota"] = "1000000/day"
        (tmp_path / "keys.json").write_text(json.dumps({"keys": entries}))
        delivered = client.flush(60)
        assert (delivered.sent, delivered.duplicate, delivered.pending) == (1, 0, 0)


def test_no_token_reaches_a_log(sides: dict[str, Server]) -> None:
    """The address that signs in carries a token: even a log that somebody asked for has neither it nor an address."""
    operator = sides["operator"]
    operator.session.get(f"{operator.url}/login?token={OPERATOR_KEY}", allow_redirects=False, timeout=60)
    operator.session.get(f"{operator.url}/login?token=wrong-{OPERATOR_KEY}", timeout=60)
    operator.get(f"/nowhere?token={OPERATOR_KEY}")
    operator.raw(f"GET /login?token={OPERATOR_KEY}%zz HTTP/1.1\r\nbad header\r\n\r\n".encode())
    log = operator.log_text()
    assert '"GET /login" 303' in log
    assert "/nowhere" in log
    assert OPERATOR_KEY not in log
    assert "token=" not in log
    assert "127.0.0.1" not in log.replace(f"http://127.0.0.1:{operator.port}", "")


def test_an_unknown_role_is_named(store: Store, tmp_path: Path) -> None:
    """A slip must not open the side that was meant to stay shut."""
    with (
        pytest.raises(RuntimeError, match="DITHER_ROLE: must be one of all, ingest, operator"),
        running_server(tmp_path, store.url, {"DITHER_ROLE": "Ingest"}),
    ):
        pass
